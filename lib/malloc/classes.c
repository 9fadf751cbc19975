#include "malloc/classes.h"

#define E1(i)  (CLASS_FIRST + CLASS_INDEX((i) ? (i)*8 : 1)) << 4
#define E8(i)  E1(i), E1(i + 1), E1(i + 2), E1(i + 3), E1(i + 4), E1(i + 5), E1(i + 6), E1(i + 7)
#define E64(i) E8(i), E8(i + 8), E8(i + 16), E8(i + 24), E8(i + 32), E8(i + 40), E8(i + 48), E8(i + 56)

const uint16_t class_ids[TABLE_MOST / 8 + 1] = {E64(0), E64(64), E1(128)};

static void name_class(char *name, uint32_t size)
{
    static const char prefix[] = "malloc-";
    char digits[12];
    size_t n = 0, at = sizeof(prefix) - 1;
    __builtin_memcpy(name, prefix, at);
    do {
        digits[n++] = (char)('0' + size % 10);
        size /= 10;
    } while (size);
    while (n)
        name[at++] = digits[--n];
    name[at] = 0;
}

/* Two threads may do this at once: both write the same, and the size, which tells that it is done, last. */
struct kmem_cache *class_cache(unsigned number)
{
    struct kmem_cache *cache = &caches[number];
    if (unlikely(!cache_in_use(cache))) {
        char name[32];
        uint32_t size = class_size(number);
        name_class(name, size);
        cache_setup(number, name, size, size, size < 16 ? 8 : 16, NULL, true);
    }
    return cache;
}
