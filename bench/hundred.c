/* bench-hundred: a small program that makes a hundred allocations of mixed sizes and frees half of them. */
#include "measure.h"

#include <string.h>

enum { ALLOCATIONS = 100 };

static size_t size_of(unsigned i, uint64_t *seed)
{
    if (i % 50 == 49)
        return 16384;
    return random_small_size(seed);
}

int main(void)
{
    void *blocks[ALLOCATIONS];
    uint64_t seed = 88172645463325252ULL;
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        size_t size = size_of(i, &seed);
        blocks[i] = memset(take(size), 1, size);
    }
    for (unsigned i = 0; i < ALLOCATIONS; i += 2)
        give(blocks[i]);
    return 0;
}
