/* Only in the static libraries: strong references to what platform/rseq/rseq.c refers to weakly, because a weak
 * reference takes no member from libc.a. */
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

__attribute__((used)) static const void *const needed[] = {&__rseq_offset, &__rseq_size};
#endif
