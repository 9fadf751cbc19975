/*
 * Sheaf's malloc under its own names, for programs that link libsheaf and keep the system's malloc. The contracts
 * are those of the C library's functions without the prefix. A pointer from one malloc must not be passed to the
 * other. The functions may be called from any thread and, unless stated otherwise, in signal handlers.
 */
#ifndef SHEAF_MALLOC_H
#define SHEAF_MALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *sheaf_malloc(size_t size);
void *sheaf_calloc(size_t count, size_t size);
void *sheaf_realloc(void *p, size_t size);
void *sheaf_aligned_alloc(size_t align, size_t size);
void sheaf_free(void *p);
size_t sheaf_malloc_usable_size(void *p);

/* Return all unused memory to the system. Returns 1 if there was any, otherwise 0. Not for signal handlers. */
int sheaf_malloc_trim(void);

#ifdef __cplusplus
}
#endif

#endif
