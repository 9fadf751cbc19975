#define _GNU_SOURCE
#include "platform/os/peek.h"
#include "platform/os/syscall.h"

long peek_self(void)
{
    return sys_call3(SYS_gettid, 0, 0,
                     0); /* the number of the process has no memory once its main thread has ended */
}

bool peek_all(long self, const struct iovec *to, const struct iovec *from, unsigned n)
{
    size_t size = 0;
    for (unsigned i = 0; i < n; i++)
        size += from[i].iov_len;
    return sys_call(SYS_process_vm_readv, self, (long)to, n, (long)from, n, 0) == (long)size;
}
