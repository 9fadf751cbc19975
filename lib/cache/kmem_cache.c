#include "cache/kmem_cache.h"
#include "platform/os/cpu.h"
#include "platform/os/text.h"

#include <string.h>

#define SHEAF_BYTES_MOST (128ul << 10) /* of objects in one sheaf */

/* At the start of a page: otherwise the number of pages that small programs write here changes with the tables
 * before. */
large_table __attribute__((aligned(4096))) struct kmem_cache caches_first[COUNTER_GROUP];
large_table struct barn barns_first[COUNTER_GROUP];
unsigned cache_top = CACHE_FIRST;
early_data bool cache_layer_ready;

/* ---- features ---- */

static large_table struct cache_ops ops_first[COUNTER_GROUP];

static struct cache_ops *ops_of(const struct kmem_cache *cache)
{
    return cache->number < COUNTER_GROUP ? &ops_first[cache->number] : &cache_tables_of(cache->number)->ops;
}

/* Copied entry by entry: all entries are pointers, and a NULL entry of `ops` leaves that of another feature
 * alone. */
void cache_attach(struct kmem_cache *cache, const struct cache_ops *ops)
{
    void *const *from = (void *const *)ops;
    void **to = (void **)ops_of(cache);
    _Static_assert(sizeof(*ops) % sizeof(void *) == 0, "a table of pointers");
    for (size_t i = 0; i < sizeof(*ops) / sizeof(void *); i++)
        if (from[i])
            write_once(to[i], from[i]);
    __atomic_store_n(&cache->ops, ops_of(cache), __ATOMIC_RELEASE);
}

static void detach_all(struct kmem_cache *cache)
{
    write_once(cache->ops, NULL);
    memset(ops_of(cache), 0, sizeof(struct cache_ops));
}

struct barn *cache_barn_row(const struct kmem_cache *cache, unsigned domain)
{
    return &cache_tables_of(cache->number)->barns[domain];
}

/* ---- capacity ---- */

/* Larger than the kernel's capacities, because that makes pairs of producer and consumer faster
 * (docs/design-notes.md, "Constants of the code"). */
static unsigned capacity_by_size(uint32_t size)
{
    unsigned capacity = size <= 256 ? 253 : size <= 1024 ? 61 : size <= 4096 ? 29 : 13;
    while (capacity > 5 && (size_t)capacity * size > SHEAF_BYTES_MOST)
        capacity = sheaf_capacity_of(sheaf_order_for(capacity) - 1);
    return capacity;
}

/* Find the cache in the option "N" or "CACHE=N,CACHE=N", whose syntax was checked when it was read. */
static bool capacity_by_option(const char *name, unsigned *capacity)
{
    uint64_t n = 0;
    const char *at = sheaf_config.capacity;
    bool found = at && text_number(&at, false, &n);
    while (at && !found) {
        const char *number = at;
        found = text_word(&number, name) && text_word(&number, "=") && text_number(&number, false, &n);
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (found)
        *capacity = (unsigned)n;
    return found;
}

static void capacity_setup(struct kmem_cache *cache, const struct cache_shape *shape)
{
    unsigned wanted = shape->args ? shape->args->sheaf_capacity : 0, fixed = wanted;
    unsigned most = sheaf_capacity_of(SHEAF_ORDER_MAX);
    bool is_fixed = capacity_by_option(cache->name, &fixed) || wanted;
    unsigned capacity = is_fixed ? fixed : capacity_by_size(shape->size);
    most = shape->capacity_most < most ? shape->capacity_most : most;
    cache->capacity = (uint16_t)(cache->instruments || sheaf_config.tiny ? 0 : capacity < most ? capacity : most);
    cache->capacity_fixed = is_fixed;
}

void cache_barn_limits(struct kmem_cache *cache, uint32_t size)
{
    uint64_t cpus = cpu_allowed_count;
    uint64_t least = sheaf_config.barn * (cpus > 2 ? cpus : 2) / 2 / size;
    uint64_t most = sheaf_config.barn_max * (cpus > 2 ? cpus : 2) / 2 / size;
    if (!sheaf_config.barn || sheaf_config.tiny)
        least = most = 0;
    else if (least < cache->capacity) /* a barn must be able to hold one sheaf */
        least = cache->capacity;
    write_once(cache->barn_least, (uint32_t)(least < UINT32_MAX ? least : UINT32_MAX));
    most = most > least ? most : least;
    write_once(cache->barn_most, (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX));
}

static void raise_top(unsigned number)
{
    unsigned top = read_once(cache_top);
    while (top <= number &&
           !__atomic_compare_exchange_n(&cache_top, &top, number + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

bool cache_reach(unsigned number)
{
    return space_open_caches(number / COUNTER_GROUP) && space_grow_counters(number);
}

void cache_setup(unsigned number, struct cache_shape shape)
{
    struct kmem_cache *cache = cache_at(number);
    strncpy(cache->name, shape.name, sizeof(cache->name) - 1);
    cache->number = (uint16_t)number;
    cache->object_size = shape.object_size;
    cache->align = shape.align;
    cache->lifo = shape.object_size > TWO_ENDS_MOST;
    cache->slab.ctor = shape.args ? shape.args->ctor : NULL;
    shape.capacity_most = UINT16_MAX;
    hooks.attach_features(cache, &shape);
    slab_cache_init(&cache->slab, number, shape.size);
    cache->slab.id = (uint16_t)push_id(word_id(number), cache->lifo).at;
    if (unlikely(shape.shuffled))
        slab_cache_shuffle(&cache->slab, shape.size);
    cache->slab.typesafe = shape.flags & SLAB_TYPESAFE_BY_RCU;
    capacity_setup(cache, &shape);
    cache_barn_limits(cache, shape.size);
    raise_top(number);
    __atomic_store_n(&cache->slab.size, shape.size, __ATOMIC_RELEASE);
}

/* Clears all but the pointer to the lock, because a thread that looked the cache up before may still take that
 * lock. */
void cache_forget(struct kmem_cache *cache)
{
    unsigned number = cache->number;
    for (unsigned slot = 0; slot < slot_top; slot++) {
        if (!slot_writable(slot))
            continue;
        atomic_store(&slot_words(slot, word_id(number))->spare, 0);
        /* a slot that could not be taken over may still have ends; their sheaves are empty and are lost */
        write_once(slot_words(slot, word_id(number))->top, 0);
        memset(counter_at(slot, number, 0), 0, COUNTER_STRIDE);
    }
    slab_cache_forget(&cache->slab);
    for (unsigned i = 0; i < slot_domains(); i++)
        memset(cache_barn(cache, i), 0, sizeof(struct barn));
    detach_all(cache);
    char *start = (char *)cache, *lock = (char *)&cache->slab.lock;
    memset(start, 0, (size_t)(lock - start));
    lock += sizeof(cache->slab.lock);
    memset(lock, 0, sizeof(*cache) - (size_t)(lock - start));
}
