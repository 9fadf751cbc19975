/*
 * Sheaf's malloc under names of its own, for programs that link libsheaf and leave the system's malloc alone.
 * The contracts are those of the C library's functions without the prefix. Pointers of the two must not be mixed.
 * Thread- and signal-safe.
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

/* Give all memory back that is not in use; 1 if any was, else 0. Not for signal handlers. */
int sheaf_malloc_trim(void);

#ifdef __cplusplus
}
#endif

#endif
