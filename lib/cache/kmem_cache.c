#include "deferred/rcu.h"
#include "kmem/alias.h"
#include "feature/debug.h"
#include "feature/detour.h"
#include "feature/fail.h"
#include "feature/harden.h"
#include "node/node.h"
#include "feature/quarantine.h"
#include "feature/sample.h"
#include "slot/stash.h"
#include "cache/takeover.h"
#include "feature/debug_spec.h"
#include "os/cpu.h"
#include "os/message.h"
#include "os/vm.h"
#include "region/guard.h"
#include "region/huge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHEAF_BYTES_MOST (128ul << 10) /* of objects in one sheaf */
#define TINY_KEEP        (1ul << 20)
#define FOLD_SELDOM      4096 /* 0.02 ns an operation */
#define FOLD_RECORDED    1024 /* a record is behind by at most so many operations for each slot and cache */

large_table struct lock_group locks_others[CACHE_MAX / LOCK_GROUP - 1];
large_table struct kmem_cache caches[CACHE_MAX];
large_table struct barn cache_barns[DOMAINS][CACHE_MAX];
unsigned cache_top = CACHE_FIRST;
early_data bool cache_layer_ready;
uintptr_t counters_file;
struct sheaf_config sheaf_config = SHEAF_CONFIG_DEFAULT;
void (*cache_publish)(const struct kmem_cache *cache);

/* ---- start ---- */

static void budget_init(void)
{
    if (sheaf_config.slot_budget)
        return;
    sheaf_config.slot_budget_by_memory = true;
    size_t share = vm_machine_memory() / 64 / cpu_allowed_count;
    sheaf_config.slot_budget = share < (1ul << 20) ? 1ul << 20 : share > (8ul << 20) ? 8ul << 20 : share;
    if (slot_mode == SHEAF_MODE_LOCK) /* which has several slots for each CPU */
        sheaf_config.slot_budget /= 4;
}

/* Pushes (of LIFO caches: pops) between two visits to the slow path at most; where requests are sampled, it must see
 * them often enough. */
static uint32_t fold_interval(void)
{
    uint32_t most = sheaf_config.record[0] ? FOLD_RECORDED : FOLD_SELDOM, sample = sheaf_config.harden.sample;
    return sample && sample < most ? sample + (sample == 1) : most;
}

/* What a caller did not choose: little stays resident that is free, and nothing comes in steps of 2 MiB. */
static void tiny_init(void)
{
    if (!sheaf_config.keep_chosen)
        sheaf_config.keep = TINY_KEEP;
    sheaf_config.huge = false;
}

static bool init_locked(void)
{
    unsigned possible, allowed;
    sheaf_configure(&sheaf_config);
    cpu_count(&possible, &allowed);
    if (!space_init(possible, sheaf_config.region))
        return false;
    lock_may_wait = cache_may_wait;
    /* with several nodes a slot must stay on its node */
    if (sheaf_config.slots != SLOTS_MM_CID)
        numa_init(sheaf_config.numa, sheaf_config.nodes);
    bool by_cpu = sheaf_config.slots == SLOTS_CPU_ID || numa.count > 1;
    /* a section takes any CPU number as its slot; with fewer slots than that, the fallback chooses among them */
    bool rseq = sheaf_config.rseq != RSEQ_OFF && space.slots >= possible;
    slot_init(rseq, sheaf_config.rseq == RSEQ_AUTO, true, by_cpu, fold_interval());
    budget_init();
    if (sheaf_config.tiny)
        tiny_init();
    node_init();
    region_init(sheaf_config.keep, sheaf_config.keep_chosen, sheaf_config.decay_ms);
    stash_init(sheaf_config.keep);
    huge_init(sheaf_config.huge && !sheaf_config.harden.guard);
    guard_on = sheaf_config.harden.guard;
    if (sheaf_config.harden.sample)
        sample_init(sheaf_config.harden.sample, slot_mode == SHEAF_MODE_LOCK || slot_mode == SHEAF_MODE_RSEQ_OWN);
    if (sheaf_config.harden.quarantine)
        quarantine_init(sheaf_config.harden.quarantine);
    return true;
}

bool cache_layer_init(void)
{
    if (__atomic_load_n(&cache_layer_ready, __ATOMIC_ACQUIRE))
        return true;
    if (!lock_acquire(lock_of(LOCK_SETUP)))
        return false; /* from within: a signal handler over the start */
    bool before = cache_layer_ready;
    bool done = before || init_locked();
    if (done)
        __atomic_store_n(&cache_layer_ready, true, __ATOMIC_RELEASE);
    lock_release(lock_of(LOCK_SETUP));
    if (done && !before)
        sheaf_started();
    return done;
}

/* ---- capacity ---- */

/* Measured: producer and consumer 0.78 s against 1.26 s with the kernel's smaller ones (design). */
static unsigned capacity_by_size(uint32_t size)
{
    unsigned capacity = size <= 256 ? 253 : size <= 1024 ? 61 : size <= 4096 ? 29 : 13;
    while (capacity > 5 && (size_t)capacity * size > SHEAF_BYTES_MOST)
        capacity = sheaf_capacity_of(sheaf_order_for(capacity) - 1);
    return capacity;
}

/* The option: "N" or "CACHE=N,CACHE=N". It was checked when it was read. */
static bool capacity_by_option(const char *name, unsigned *capacity)
{
    const char *at = sheaf_config.capacity;
    size_t length = strlen(name);
    if (*at >= '0' && *at <= '9') {
        *capacity = (unsigned)strtoul(at, NULL, 10);
        return true;
    }
    while (*at) {
        if (!strncmp(at, name, length) && at[length] == '=') {
            *capacity = (unsigned)strtoul(at + length + 1, NULL, 10);
            return true;
        }
        at = strchr(at, ',');
        if (!at)
            break;
        at++;
    }
    return false;
}

static void capacity_setup(struct kmem_cache *cache, uint32_t size, unsigned wanted)
{
    unsigned fixed = wanted;
    unsigned most = sheaf_capacity_of(SHEAF_ORDER_MAX);
    bool is_fixed = capacity_by_option(cache->name, &fixed) || wanted;
    unsigned capacity = is_fixed ? fixed : capacity_by_size(size);
    bool none = cache->detour || sheaf_config.tiny || sheaf_config.harden.check || (numa.strict && cache->nodes);
    /* a sheaf holds at most one sampling interval, so that pops are counted often enough */
    if (cache->sampled && !cache->lifo && capacity > sheaf_config.harden.sample)
        capacity = sheaf_config.harden.sample;
    cache->capacity = (uint16_t)(none ? 0 : capacity < most ? capacity : most);
    cache->capacity_fixed = is_fixed;
}

static void barn_setup(struct kmem_cache *cache, uint32_t size)
{
    uint64_t cpus = cpu_allowed_count;
    uint64_t least = sheaf_config.barn * (cpus > 2 ? cpus : 2) / 2 / size;
    uint64_t most = sheaf_config.barn_max * (cpus > 2 ? cpus : 2) / 2 / size;
    if (!sheaf_config.barn || sheaf_config.tiny)
        least = most = 0;
    else if (least < cache->capacity) /* a barn that cannot take one sheaf is none */
        least = cache->capacity;
    cache->barn_least = (uint32_t)(least < UINT32_MAX ? least : UINT32_MAX);
    most = most > least ? most : least;
    cache->barn_most = (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX);
}

static void raise_top(unsigned number)
{
    unsigned top = read_once(cache_top);
    while (top <= number &&
           !__atomic_compare_exchange_n(&cache_top, &top, number + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

void cache_setup(unsigned number, const char *name, uint32_t object_size, uint32_t size, uint32_t align,
                 const struct kmem_cache_args *args, slab_flags_t flags, bool is_malloc)
{
    struct kmem_cache *cache = &caches[number];
    strncpy(cache->name, name, sizeof(cache->name) - 1);
    cache->is_malloc = is_malloc;
    if (unlikely(sheaf_config.debug != NULL))
        flags |= debug_spec_flags(sheaf_config.debug, name);
    cache->flags = flags;
    cache->object_size = object_size;
    cache->slab.ctor = args ? args->ctor : NULL;
    bool seldom = flags & DEBUG_FLAGS || fail_is_on || harden_objects(); /* nobody else touches that code */
    cache->detour = unlikely(seldom) ? detour_for(name, flags) : 0;
    cache->sampled = is_malloc && sheaf_config.harden.sample && !(cache->detour & DETOUR_DEBUG);
    if (unlikely(cache->detour & DETOUR_DEBUG))
        size = debug_layout(cache, object_size, align);
    cache->lifo = object_size > TWO_ENDS_MOST;
    slab_cache_init(&cache->slab, number, size);
    cache->slab.id = (uint16_t)(SLOT_ID(number) + (cache->lifo ? 0 : SLOT_PUSH_AT));
    if (unlikely(sheaf_config.harden.random))
        slab_cache_shuffle(&cache->slab, size);
    cache->slab.typesafe = flags & SLAB_TYPESAFE_BY_RCU;
    cache->align = align;
    cache->number = (uint16_t)number;
    node_setup(cache);
    capacity_setup(cache, size, args ? args->sheaf_capacity : 0);
    barn_setup(cache, size);
    raise_top(number);
    __atomic_store_n(&cache->slab.size, size, __ATOMIC_RELEASE); /* last: it tells that the rest is there */
}

/* ---- create and destroy ---- */

static uint32_t alignment_for(unsigned size, const struct kmem_cache_args *args, slab_flags_t flags)
{
    uint32_t align = size < 16 ? 8 : 16;
    if (args && args->align > align)
        align = args->align;
    if (flags & SLAB_HWCACHE_ALIGN) {
        uint32_t line = 64;
        while (line / 2 >= size)
            line /= 2;
        align = line > align ? line : align;
    }
    return align;
}

static unsigned find_number(void)
{
    for (unsigned i = CACHE_USERS; i < node_stride; i++)
        if (!cache_in_use(&caches[i]))
            return i;
    for (unsigned i = node_stride; i < CACHE_MAX; i++) /* all have siblings: without, then */
        if (cache_gap(i % node_stride) && !cache_in_use(&caches[i]))
            return i;
    return 0;
}

static bool is_valid(const char *name, unsigned size, const struct kmem_cache_args *args)
{
    if (!name || !size || size > 32768)
        return false;
    if (args && args->align && (!is_power_of_two(args->align) || args->align > 4096))
        return false;
    return !args || args->sheaf_capacity <= sheaf_capacity_of(SHEAF_ORDER_MAX);
}

#define CREATE_FLAGS (SLAB_HWCACHE_ALIGN | SLAB_TYPESAFE_BY_RCU | SLAB_MERGE | SLAB_NO_MERGE | DEBUG_FLAGS)

/* setup_lock is held. NULL: there are too many. */
static struct kmem_cache *find_or_setup(const char *name, uint32_t size, uint32_t align,
                                        const struct kmem_cache_args *args, slab_flags_t flags)
{
    struct kmem_cache *alike = alias_find(size, align, args, flags);
    if (alike && alias_add(alike, name, size))
        return alike;
    unsigned number = find_number();
    if (!number || !space_grow_counters(number))
        return NULL;
    cache_setup(number, name, size, (uint32_t)round_up(size, align), align, args, flags, false);
    for (unsigned k = 1; k < cache_siblings(&caches[number]); k++)
        node_sibling(&caches[number], k);
    return &caches[number];
}

sheaf_export struct kmem_cache *kmem_cache_create(const char *name, unsigned size, const struct kmem_cache_args *args,
                                                  slab_flags_t flags)
{
    if (!is_valid(name, size, args) || flags & ~CREATE_FLAGS) {
        errno = EINVAL;
        return NULL;
    }
    if (flags & SLAB_TYPESAFE_BY_RCU && !rcu_kick) {
        errno = ENOTSUP; /* nobody waits for grace periods */
        return NULL;
    }
    if (!cache_layer_init() || !lock_acquire(lock_of(LOCK_SETUP))) {
        errno = ENOMEM;
        return NULL;
    }
    struct kmem_cache *cache = find_or_setup(name, size, alignment_for(size, args, flags), args, flags);
    lock_release(lock_of(LOCK_SETUP));
    if (!cache)
        errno = ENOSPC;
    else if (flags & SLAB_TYPESAFE_BY_RCU)
        rcu_start(); /* its slabs retire where that cannot be done */
    return cache;
}

/* Everything but which lock is its own, because a late look may find it gone, and is about to take that. */
static void forget_cache(struct kmem_cache *cache)
{
    unsigned number = cache->number;
    for (unsigned slot = 0; slot < slot_top; slot++) {
        if (!slot_writable(slot))
            continue;
        atomic_store(&slot_words(slot, SLOT_ID(number))->spare, 0);
        /* a slot that could not be taken over may have ends yet; their sheaves are empty, and are lost */
        write_once(slot_words(slot, SLOT_ID(number))->top, 0);
        memset(counter_at(slot, number, 0), 0, COUNTER_STRIDE);
    }
    slab_cache_forget(&cache->slab);
    for (unsigned i = 0; i < DOMAINS; i++)
        memset(cache_barn(cache, i), 0, sizeof(struct barn));
    char *start = (char *)cache, *lock = (char *)&cache->slab.lock;
    memset(start, 0, (size_t)(lock - start));
    lock += sizeof(cache->slab.lock);
    memset(lock, 0, sizeof(*cache) - (size_t)(lock - start));
}

static void report_left(const struct kmem_cache *cache, uint64_t left)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: cache ");
    message_text(&m, cache->name);
    message_text(&m, " not destroyed: ");
    message_number(&m, left);
    message_text(&m, " objects were not freed");
    message_write(&m);
}

/* The lock of takeovers keeps out decay, trims and forks, which look at all caches. */
static bool destroy_locked(struct kmem_cache *cache, uint64_t *left)
{
    uint32_t slabs = 0;
    unsigned siblings = cache_siblings(cache);
    *left = 0;
    for (unsigned k = 0; k < siblings; k++) {
        cache_drain_locked(cache_sibling(cache, k));
        *left += slab_out(&cache_sibling(cache, k)->slab);
        slabs += cache_sibling(cache, k)->slab.slabs;
    }
    if (*left || slabs)
        return false;
    /* the first one last: it is what the user has, and knows the others */
    for (unsigned k = siblings; k--;) {
        struct kmem_cache *sibling = cache_sibling(cache, k);
        if (!lock_acquire(sibling->slab.lock))
            return false;
        forget_cache(sibling);
        lock_release(sibling->slab.lock);
    }
    return true;
}

/* One of several names goes, and the cache stays. */
static bool drop_name(struct kmem_cache *cache)
{
    if (!(cache->flags & SLAB_MERGE) || !lock_acquire(lock_of(LOCK_SETUP)))
        return false;
    bool dropped = alias_drop(cache);
    lock_release(lock_of(LOCK_SETUP));
    return dropped;
}

sheaf_export int kmem_cache_destroy(struct kmem_cache *cache)
{
    if (!cache || drop_name(cache))
        return 0;
    if (rcu_barrier_on)
        rcu_barrier_on(cache);
    if (cache->reserve.size) {
        cache_drain(cache);
        if (slab_out(&cache->slab) == reserve_objects(&cache->reserve)) /* nobody else has any */
            kmem_cache_reserve(cache, 0);
    }
    bool done = false;
    uint64_t left = 0;
    if (!lock_acquire(lock_of(LOCK_SETUP)))
        return -EBUSY;
    if (lock_acquire(lock_of(LOCK_TAKEOVER))) {
        done = destroy_locked(cache, &left);
        lock_release(lock_of(LOCK_TAKEOVER));
    }
    lock_release(lock_of(LOCK_SETUP));
    if (left)
        report_left(cache, left);
    return done ? 0 : -EBUSY;
}

sheaf_export int kmem_cache_shrink(struct kmem_cache *cache)
{
    bool slabs = false;
    for (unsigned k = 0; k < cache_siblings(cache); k++) {
        cache_drain(cache_sibling(cache, k));
        slabs |= cache_sibling(cache, k)->slab.slabs != 0;
    }
    region_purge(false);
    return slabs;
}

sheaf_export unsigned kmem_cache_size(const struct kmem_cache *cache)
{
    return cache->object_size;
}
