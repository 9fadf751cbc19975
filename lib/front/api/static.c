/* Only in the static libraries: strong references to what platform/rseq/rseq.c refers to weakly, because a weak
 * reference takes no member from libc.a. */
#include <stddef.h>

#if defined(__GLIBC__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

__attribute__((used)) static const void *const needed[] = {&__rseq_offset, &__rseq_size};
#else
_Static_assert(sizeof(size_t) == 8, "a translation unit is not empty");
#endif
