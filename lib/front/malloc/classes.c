#include "front/malloc/classes.h"

/* Two threads may run this at once: both write the same values. */
void classes_start(void)
{
    struct class_table *table = (struct class_table *)(space.base + CLASS_TABLE_AT);
    size_t small = 0, large = 0;
    for (unsigned number = CLASS_FIRST; number < CLASS_FIRST + CLASSES; number++) {
        uint32_t most = class_size(number);
        for (; small <= most && small <= SMALL_MOST; small++)
            table->small[small] = (uint16_t)word_id(number).at;
        for (; large * LARGE_STEP <= most; large++)
            table->large[large] = (uint16_t)word_id(number).at;
    }
}

void fast_enable(void)
{
    struct slot_head *head = slot_head(0);
    head->limit = SMALL_MOST + 1;
    space_publish_lowest(&head->lowest);
    /* The release store orders it: a thread that sees the address also sees what it points to. */
    __atomic_store_n(slot_mode == SHEAF_MODE_RSEQ_MM_CID ? &rseq_roots.cid_base : &rseq_roots.cpu_base, space.base,
                     __ATOMIC_RELEASE);
}

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

early_data bool class_ready[CLASS_FIRST + CLASSES];

/*
 * Two threads may run this at once: both write the same values, and the size, which marks the cache as ready,
 * last.
 */
struct kmem_cache *class_cache(unsigned number)
{
    struct kmem_cache *cache = cache_at(number);
    if (unlikely(!__atomic_load_n(&class_ready[number], __ATOMIC_ACQUIRE))) {
        char name[32];
        uint32_t size = class_size(number);
        name_class(name, size);
        cache_setup(number, (struct cache_shape){
                                .name = name, .object_size = size, .size = size, .align = size < 16 ? 8 : 16});
        __atomic_store_n(&class_ready[number], true, __ATOMIC_RELEASE);
    }
    return cache;
}
