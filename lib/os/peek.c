#define _GNU_SOURCE
#include "os/peek.h"
#include "os/syscall.h"

bool peek_all(const struct iovec *to, const struct iovec *from, unsigned n)
{
    size_t size = 0;
    for (unsigned i = 0; i < n; i++)
        size += from[i].iov_len;
    long pid = sys_call3(SYS_getpid, 0, 0, 0); /* not kept: a child of a fork has another one */
    return sys_call(SYS_process_vm_readv, pid, (long)to, n, (long)from, n, 0) == (long)size;
}
