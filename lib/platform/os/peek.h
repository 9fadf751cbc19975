/*
 * Copies of this process's memory at addresses that may be wrong: what is not mapped makes the copy fail, and never
 * the process. Where the system forbids process_vm_readv(), all copies fail. Leaves errno alone. Any context.
 */
#ifndef SHEAF_OS_PEEK_H
#define SHEAF_OS_PEEK_H

#include "platform/os/compiler.h"

#include <sys/uio.h>

/* The number of this thread, for the functions below. */
long peek_self(void);

/* Copy n ranges to as many places of the same sizes. Returns whether all could be read. */
bool peek_all(long self, const struct iovec *to, const struct iovec *from, unsigned n);

static inline bool peek(long self, void *to, uintptr_t from, size_t size)
{
    return peek_all(self, &(struct iovec){to, size}, &(struct iovec){(void *)from, size}, 1);
}

#endif
