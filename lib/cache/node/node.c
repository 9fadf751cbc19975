#include "cache/node/node.h"
#include "cache/misuse.h"
#include "cache/sheaves.h"

/*
 * No lock is held on entry or exit. A sheaf leaves the spare's word by an exchange and returns by a
 * compare-and-swap into a word without a spare. That orders two threads on one slot, and a signal handler and the
 * code that it interrupted: a thread that finds the place taken owns its own sheaf alone, and sends it. A thread
 * that is preempted or migrated in between continues with the slot where it took the sheaf, which is as good as
 * any of that node. A child of fork loses the outbound sheaves that other threads had detached, as it loses any
 * detached sheaf.
 */

unsigned node_stride = CACHE_MAX;

static const struct cache_ops node_ops, defrag_ops;

/* For each node, a bit for each domain in which one of its slots was found. Their barns take the sheaves sent to
 * the node. */
static _Atomic uint8_t domains[NODES_MAX];
_Static_assert(DOMAINS <= 8, "a bit for each domain");

void node_init(void)
{
    unsigned rooms = 1;
    for (unsigned number = CACHE_USERS; numa.count > 1 && number < CACHE_MAX; number += COUNTER_GROUP)
        if (!cache_reach(number))
            numa.count = 1; /* no memory for the tables and counters of siblings: use one node */
    while (rooms < numa.count)
        rooms *= 2;
    node_stride = CACHE_MAX / rooms;
}

void node_attach(struct kmem_cache *cache, struct cache_shape *shape)
{
    unsigned first = cache->number % node_stride;
    bool alone = numa.count < 2 || cache_gap(first);
    cache->home = alone ? cache->number : (uint16_t)first;
    cache->slab.node = alone ? 0 : (uint8_t)(cache->number / node_stride);
    cache->nodes = alone ? 0 : (uint8_t)numa.count;
    if (likely(alone))
        return;
    cache_attach(cache, unlikely(sheaf_config.defrag) ? &defrag_ops : &node_ops);
    if (unlikely(numa.strict))
        shape->capacity_most = 0;
}

/* Two threads may set up a sibling at once: both write the same values, and the size, which marks it as complete,
 * last. */
apart struct kmem_cache *node_sibling(const struct kmem_cache *cache, unsigned index)
{
    struct kmem_cache *sibling = cache_sibling(cache, index);
    const struct kmem_cache *first = cache_sibling(cache, 0);
    if (unlikely(!cache_in_use(sibling))) {
        struct kmem_cache_args args = {.ctor = first->slab.ctor};
        if (first->capacity_fixed)
            args.sheaf_capacity = first->capacity;
        cache_setup(first->home + index * node_stride, (struct cache_shape){.name = first->name,
                                                                            .object_size = first->object_size,
                                                                            .size = first->slab.size,
                                                                            .align = first->align,
                                                                            .args = &args,
                                                                            .flags = first->flags});
    }
    return sibling;
}

/* ---- nodes of slots ---- */

/*
 * Returns the index of the slot's node, or -1 if the thread is not on the slot's CPU now. The kernel returns the
 * CPU and its node together; they are stored only if the CPU is the slot's, so that all threads store the same.
 * `node` is stored before `local`, because a thread that sees `local` may install a sheaf only after it has seen
 * `node`.
 */
static noinline_cold int find_node(unsigned slot)
{
    unsigned cpu = 0;
    unsigned index = slot_mode == SHEAF_MODE_LOCK ? slot % numa.count : numa_here(&cpu);
    if (slot_mode != SHEAF_MODE_LOCK && cpu != slot)
        return -1;
    struct slot_head *head = slot_head(slot);
    if (!slot_commit(slot))
        return -1;
    atomic_fetch_or_explicit(&domains[index], (uint8_t)(1u << slot_domain()), memory_order_relaxed);
    atomic_store_explicit(&head->node, index + 1, memory_order_relaxed);
    atomic_store_explicit(&head->local, (uint32_t)(SLOT_WORD_AT(index * node_stride) - SLOT_WORD_AT(0)),
                          memory_order_relaxed);
    return (int)index;
}

int node_of_slot(unsigned slot)
{
    uint64_t node = atomic_load_explicit(&slot_head(slot)->node, memory_order_relaxed);
    return likely(node) ? (int)node - 1 : find_node(slot);
}

static apart bool node_enter(struct kmem_cache **cache, unsigned slot)
{
    static _Atomic unsigned turns;
    int node = node_of_slot(slot);
    if (node < 0)
        return false;
    if (unlikely(numa.strict))
        node = (int)numa_by_policy((unsigned)node, atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed));
    *cache = node_sibling(*cache, (unsigned)node);
    return true;
}

static apart bool node_is_far(const struct kmem_cache *cache, unsigned slot)
{
    return node_of_slot(slot) != cache->slab.node;
}

static apart struct barn *node_barn(const struct kmem_cache *cache, unsigned slot)
{
    if (!node_is_far(cache, slot))
        return cache_barn(cache, slot_domain());
    unsigned seen = atomic_load_explicit(&domains[cache->slab.node], memory_order_relaxed);
    unsigned n = seen ? slot % (unsigned)__builtin_popcount(seen) : 0;
    while (n--) /* senders are distributed over the node's domains */
        seen &= seen - 1;
    return cache_barn(cache, seen ? (unsigned)__builtin_ctz(seen) : 0);
}

/* ---- frees on far slots ---- */

static bool put_home(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    struct barn *barn = node_barn(cache, slot);
    return barn_put(barn, sheaf, barn_limit(barn, cache->barn_least));
}

static apart void node_send(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    if (sheaf->count && put_home(cache, slot, sheaf)) {
        count(slot, cache->number, COUNT_outbound_barn, 1);
        return;
    }
    if (sheaf->count)
        count(slot, cache->number, COUNT_outbound_flush, 1);
    cache_empty_sheaf(cache, slot, sheaf, node_barn(cache, slot));
}

static apart bool node_free(struct kmem_cache *cache, unsigned slot, void *object)
{
    struct word_id id = word_id(cache->number);
    count(slot, cache->number, COUNT_remote_free, 1);
    if (!cache_has_sheaves(cache))
        return false;
    struct sheaf *sheaf = cache_take_spare(slot, id);
    if (unlikely(sheaf && sheaf->count == sheaf->capacity)) { /* full: from a grace period or a prefill */
        node_send(cache, slot, sheaf);
        sheaf = NULL;
    }
    if (!sheaf && !(sheaf = empty_sheaf_alloc(cache_next_capacity(cache, slot))))
        return false;
    if (unlikely(sheaf->count && sheaf->objects[sheaf->count - 1] == object))
        misuse_report("double free of", object, cache->name);
    sheaf->objects[sheaf->count++] = object;
    count(slot, cache->number, COUNT_free_slowpath, 1);
    if (sheaf->count < sheaf->capacity && cache_put_spare(slot, id, sheaf))
        return true;
    node_send(cache, slot, sheaf);
    cache_publish(cache);
    return true;
}

/* ---- memory of other nodes ---- */

static void *from_barns(struct kmem_cache *cache)
{
    for (unsigned d = 0; d < slot_domains(); d++) {
        void *object = barn_get_object(cache_barn(cache, d));
        if (object)
            return object;
    }
    return NULL;
}

static apart void *node_alloc_elsewhere(struct kmem_cache *cache, unsigned slot)
{
    for (unsigned k = 1; k < cache->nodes; k++) {
        struct kmem_cache *other = cache_sibling(cache, (cache->slab.node + k) % cache->nodes);
        if (!cache_in_use(other) || cache_is_short(other))
            continue;
        void *object = from_barns(other);
        if (!object)
            slab_try_take(&other->slab, &object, 1);
        if (!object)
            continue;
        count(slot, other->number, COUNT_alloc_slowpath, 1);
        count(slot, other->number, COUNT_alloc_elsewhere, 1);
        return object;
    }
    return NULL;
}

static apart void *node_defrag(struct kmem_cache *cache, unsigned slot)
{
    static _Atomic unsigned turns;
    const struct slot_words *words = slot_words(slot, word_id(cache->number));
    uint64_t top = read_once(words->top);
    bool none = !read_once(cache->slab.free) && !barn_objects(node_barn(cache, slot)) &&
                !(uint32_t)atomic_load_explicit(&words->spare, memory_order_relaxed) &&
                !end_holds(top_pop_end(top)) && (cache->lifo || !end_holds(top_push_end(top)));
    if (!none || atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed) % 100 >= sheaf_config.defrag)
        return NULL;
    return node_alloc_elsewhere(cache, slot);
}

/* ---- operations ---- */

#define NODE_OPS                                                                                                     \
    .enter = node_enter, .is_far = node_is_far, .free_far = node_free, .send_home = node_send, .barn = node_barn,    \
    .alloc_elsewhere = node_alloc_elsewhere
static const struct cache_ops node_ops = {NODE_OPS};
static const struct cache_ops defrag_ops = {NODE_OPS, .before_refill = node_defrag};
