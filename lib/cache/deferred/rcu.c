#include "cache/deferred/rcu.h"
#include "diagnostics/feature/instrument.h"
#include "cache/misuse.h"
#include "cache/node/node.h"
#include "platform/os/clock.h"
#include "memory/slab/retire.h"
#include "cache/sheaves.h"
#include "platform/os/hooks.h"

/* The bottom word of a sheaf of deferred frees: in its low half the time of the first object; above, the cache's
 * number, and the slot and domain where the sheaf was begun. */
#define NUMBER_SHIFT 32 /* 12 bits */
#define SLOT_AT      44 /* 13 bits */
#define DOMAIN_SHIFT 57 /* 3 bits */
#define HERE         (1ull << 60)
_Static_assert(CACHE_MAX <= 4096 && DOMAINS <= 8, "they fit the bottom word");

static unsigned number_in(uint64_t bottom)
{
    return (unsigned)(bottom >> NUMBER_SHIFT) & 0xfff;
}
static unsigned slot_in(uint64_t bottom)
{
    return (unsigned)(bottom >> SLOT_AT) & 0x1fff;
}
static unsigned domain_in(uint64_t bottom)
{
    return (unsigned)(bottom >> DOMAIN_SHIFT) & 7;
}

#define HANDS          63u /* in the slot's word: the number of threads that hold a sheaf taken from it */
#define LARGE_CAPACITY 61
#define LARGE_AT_ONCE  (1ul << 20) /* a block of this size is sealed at once, and near the limit any block is */

/* A bit for each slot (modulo 64) that may collect objects of a cache, and for each cache with such slots: those
 * to visit. */
static large_table _Atomic uint64_t slots_of[CACHE_MAX];
static large_table _Atomic uint64_t caches_with[CACHE_MAX / 64];

static struct sheaf_stack sealed; /* waiting for a grace period to begin */
static struct sheaf *in_grace;    /* linked by `next`; belongs to the thread between rcu_collect() and rcu_finish() */
static bool slabs_in_grace;
static large_table _Atomic uint64_t waiting[CACHE_MAX]; /* objects in sealed sheaves */
static _Atomic uint64_t bytes, sheaves;                 /* in sealed sheaves, and large blocks from their free on */
static uint64_t grace_periods;
static _Atomic uint64_t waits, lost;

static _Atomic uint32_t *word_of(unsigned slot, unsigned number)
{
    return (_Atomic uint32_t *)&slot_rcu(slot)[number];
}

static void kick(void)
{
    if (hooks.rcu_kick)
        hooks.rcu_kick();
}

static uint32_t size_of(unsigned number)
{
    return number == RCU_LARGE ? 0 : cache_at(number)->slab.size; /* rcu_put_large() counts large blocks */
}

/* ---- a slot's word ---- */

/* Take the slot's sheaf and count this thread as a holder. Returns the word as it was. If its count was HANDS,
 * nothing is taken and the thread is not counted. */
static uint32_t take(_Atomic uint32_t *word)
{
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if ((seen & HANDS) == HANDS)
            break;
    } while (!atomic_compare_exchange_weak(word, &seen, (seen & HANDS) + 1));
    return seen;
}

static struct sheaf *sheaf_in(uint32_t seen)
{
    return seen & ~HANDS ? sheaf_at(seen & ~HANDS) : NULL;
}

/* The count is already 0 only in a child forked by a handler that interrupted a holder: rcu_fork_child() cleared
 * it. */
static uint32_t one_hand_less(uint32_t seen)
{
    return seen & HANDS ? seen - 1 : seen;
}

static void let_go(_Atomic uint32_t *word)
{
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(word, &seen, one_hand_less(seen))) {
    }
}

/* Put the sheaf back and end the hold. Returns false and keeps the hold if another sheaf has taken the place. */
static bool put_back(_Atomic uint32_t *word, const struct sheaf *sheaf)
{
    uint32_t offset = sheaf_offset(sheaf);
    sheaf_assert(!(offset & HANDS));
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if (seen & ~HANDS)
            return false;
    } while (!atomic_compare_exchange_weak(word, &seen, one_hand_less(seen) | offset));
    return true;
}

/* Mark the slot as one that collects objects. Must follow the change of the word, because sealing clears the bit
 * before it reads the word. */
static void note(unsigned slot, unsigned number)
{
    uint64_t bit = 1ull << (slot % 64), cache_bit = 1ull << (number % 64);
    bool both = atomic_load(&slots_of[number]) & bit;
    if (unlikely(!both))
        atomic_fetch_or(&slots_of[number], bit);
    if (unlikely(!(atomic_load(&caches_with[number / 64]) & cache_bit))) { /* another thread may be in between */
        atomic_fetch_or(&caches_with[number / 64], cache_bit);
        both = false;
    }
    if (unlikely(!both))
        kick();
}

/* ---- sealing ---- */

/* Put a sheaf that belongs to this thread alone on the stack of sealed sheaves. */
static void seal(unsigned slot, struct sheaf *sheaf)
{
    unsigned number = number_in(sheaf->bottom);
    atomic_fetch_add(&waiting[number], sheaf->count);
    atomic_fetch_add(&bytes, (uint64_t)sheaf->count * size_of(number));
    atomic_fetch_add(&sheaves, 1);
    if (number != RCU_LARGE)
        count(slot, number, COUNT_rcu_sheaf, 1);
    sheaf_stack_push(&sealed, sheaf);
    kick();
}

/* A hint: another thread may own the sheaf by now, and a younger one may be sealed in its place. */
static bool old_enough(uint32_t seen, uint32_t age_ms)
{
    uint32_t since = (uint32_t)read_once(sheaf_in(seen)->bottom);
    return !age_ms || clock_ms() - since >= age_ms;
}

static unsigned held_in(uint32_t seen)
{
    return seen & HANDS ? SHEAF_RCU_HELD : 0;
}

/* Seal the slot's sheaf if it is old enough. Returns bits as rcu_seal() does. SHEAF_RCU_HELD follows from the word
 * that take() returned, because another thread may have taken the sheaf after the first read. */
static unsigned seal_slot(unsigned slot, unsigned number, uint32_t age_ms)
{
    _Atomic uint32_t *word = word_of(slot, number);
    uint32_t seen = atomic_load(word);
    if (!(seen & ~HANDS))
        return held_in(seen);
    if (!old_enough(seen, age_ms))
        return held_in(seen) | SHEAF_RCU_LEFT;
    seen = take(word);
    if ((seen & HANDS) == HANDS)
        return SHEAF_RCU_HELD | SHEAF_RCU_LEFT;
    if (seen & ~HANDS)
        seal(slot, sheaf_in(seen));
    let_go(word);
    return held_in(seen);
}

/* Only one caller at a time may clear bits: another would miss the slots that the first is visiting. */
static unsigned seal_number(unsigned number, uint32_t age_ms, bool clear)
{
    unsigned all = 0;
    for (uint64_t bits = atomic_load(&slots_of[number]); bits; bits &= bits - 1) {
        unsigned first = (unsigned)__builtin_ctzll(bits), left = 0;
        if (clear)
            atomic_fetch_and(&slots_of[number], ~(1ull << first));
        for (unsigned slot = first; slot < read_once(slot_top); slot += 64)
            if (slot_writable(slot))
                left |= seal_slot(slot, number, age_ms);
        if (left && clear)
            atomic_fetch_or(&slots_of[number], 1ull << first);
        all |= left;
    }
    return all;
}

static unsigned seal_all(uint32_t age_ms, bool clear)
{
    unsigned all = 0;
    for (unsigned i = 0; i < CACHE_MAX / 64; i++)
        for (uint64_t bits = atomic_load(&caches_with[i]); bits; bits &= bits - 1) {
            uint64_t bit = bits & -bits;
            if (clear)
                atomic_fetch_and(&caches_with[i], ~bit);
            unsigned left = seal_number(i * 64 + (unsigned)__builtin_ctzll(bit), age_ms, clear);
            if (left && clear)
                atomic_fetch_or(&caches_with[i], bit);
            all |= left;
        }
    return all;
}

unsigned rcu_seal(const struct kmem_cache *cache, uint32_t age_ms)
{
    unsigned all = 0;
    if (!cache)
        return seal_all(age_ms, true);
    for (unsigned k = 0; k < cache_siblings(cache); k++)
        all |= seal_number(cache->home + k * node_stride, age_ms, true);
    return all;
}

void rcu_age(void)
{
    seal_all(sheaf_config.rcu_age_ms, false);
}

/* ---- taking objects ---- */

/* For lack of memory, take the spare or a sheaf of the barn and flush its objects. Returns NULL if there is none
 * or it cannot be flushed. */
static struct sheaf *empty_one(struct kmem_cache *cache, unsigned slot)
{
    struct sheaf *sheaf = cache_take_spare(slot, word_id(cache->number));
    if (!sheaf)
        sheaf = barn_get(cache_barn_here(cache));
    if (!sheaf || !sheaf->count || cache_flush_sheaf(cache, slot, sheaf))
        return sheaf;
    cache_barn_put(cache, slot, sheaf, true);
    return NULL;
}

/* Take the slot's spare if it is empty. So the sheaves of a load that allocates as much as it frees never leave
 * the slot. */
static struct sheaf *empty_spare(struct kmem_cache *cache, unsigned slot)
{
    struct word_id id = word_id(cache->number);
    struct sheaf *spare = spare_sheaf(atomic_load_explicit(&slot_words(slot, id)->spare, memory_order_relaxed));
    if (!spare || read_once(spare->count))
        return NULL;
    spare = cache_take_spare(slot, id);
    if (likely(!spare || !spare->count))
        return spare;
    cache_put_sheaf(cache, slot, spare); /* another sheaf is the spare by now */
    return NULL;
}

static struct sheaf *fresh_for(struct kmem_cache *cache, unsigned slot)
{
    if (!cache || !cache->capacity)
        return empty_sheaf_alloc(cache ? CAPACITY_START : LARGE_CAPACITY);
    struct sheaf *sheaf = empty_spare(cache, slot);
    if (!sheaf)
        sheaf = empty_sheaf_alloc(cache_next_capacity(cache, slot));
    return likely(sheaf != NULL) ? sheaf : empty_one(cache, slot);
}

static struct sheaf *fresh(struct kmem_cache *cache, unsigned slot, unsigned number)
{
    struct sheaf *sheaf = fresh_for(cache, slot);
    if (sheaf)
        sheaf->bottom = HERE | (uint64_t)slot_domain() << DOMAIN_SHIFT | (uint64_t)slot << SLOT_AT |
                        (uint64_t)number << NUMBER_SHIFT | clock_ms();
    return sheaf;
}

static enum sheaf_rcu_put put(struct kmem_cache *cache, unsigned number, void *object, bool at_once)
{
    unsigned slot = slot_counting();
    _Atomic uint32_t *word = word_of(slot, number);
    uint32_t seen = take(word);
    bool held = (seen & HANDS) != HANDS;
    struct sheaf *sheaf = held ? sheaf_in(seen) : NULL;
    if (!sheaf && !(sheaf = fresh(cache, slot, number))) {
        if (held)
            let_go(word);
        return SHEAF_RCU_NO_MEMORY;
    }
    sheaf_assert(sheaf->count < sheaf->capacity && number_in(sheaf->bottom) == number);
    sheaf->objects[sheaf->count++] = object;
    if (cache)
        count(slot, number, COUNT_free_rcu, 1);
    if (held && !at_once && sheaf->count < sheaf->capacity && put_back(word, sheaf)) {
        note(slot, number);
        return SHEAF_RCU_TAKEN;
    }
    seal(slot, sheaf);
    if (held)
        let_go(word);
    return SHEAF_RCU_SEALED;
}

enum sheaf_rcu_put rcu_put(struct kmem_cache *cache, void *object)
{
    return put(cache, cache->number, object, false);
}

enum sheaf_rcu_put rcu_put_large(void *p, size_t size)
{
    uint64_t all = atomic_fetch_add(&bytes, size) + size;
    bool at_once = size >= LARGE_AT_ONCE || all > sheaf_config.rcu_limit / 2;
    enum sheaf_rcu_put done = put(NULL, RCU_LARGE, p, at_once);
    if (unlikely(done == SHEAF_RCU_NO_MEMORY))
        atomic_fetch_sub(&bytes, size);
    return done;
}

/* ---- after a grace period ---- */

/* Replace the objects by raw ones. Objects that an instrument keeps back leave the sheaf. */
static void take_back_raw(struct kmem_cache *cache, struct sheaf *sheaf)
{
    unsigned n = 0;
    for (unsigned i = 0; i < sheaf->count; i++) {
        void *raw = cache_op(cache, free)(cache, sheaf->objects[i]);
        if (raw)
            sheaf->objects[n++] = raw;
    }
    sheaf->count = (uint16_t)n;
}

/*
 * Reuse the sheaf as a full one: as the spare of its slot, or in the barn of that slot's domain. Returns false if
 * the caller must flush it. The barn takes no sheaf that is at most half full, because it would fill with unused
 * room.
 */
static bool recycled(struct kmem_cache *cache, unsigned slot, unsigned domain, struct sheaf *sheaf)
{
    if (!sheaf->count || sheaf->capacity > cache->capacity || cache_is_short(cache))
        return false;
    if (cache_grow_sheaves(cache, slot, sheaf->capacity, false) &&
        cache_put_spare(slot, word_id(cache->number), sheaf))
        return true;
    if (sheaf->count <= sheaf->capacity / 2)
        return false;
    __typeof__(cache->ops->barn) barn_of = cache_op(cache, barn);
    struct barn *barn = unlikely(barn_of != NULL) ? barn_of(cache, slot) : cache_barn(cache, domain);
    bool taken = barn_put(barn, sheaf, barn_limit(barn, cache->barn_least));
    count(slot, cache->number, taken ? COUNT_barn_put : COUNT_barn_put_fail, 1);
    return taken;
}

/* Objects are counted as freed after they have been put in their place, because kmem_cache_destroy() waits for
 * that count. */
static void give_back(struct kmem_cache *cache, unsigned slot, unsigned domain, struct sheaf *sheaf)
{
    if (unlikely(cache->instruments))
        take_back_raw(cache, sheaf);
    unsigned n = sheaf->count;
    if (recycled(cache, slot, domain, sheaf))
        count(slot, cache->number, COUNT_rcu_recycle, 1);
    else
        cache_discard_sheaf(cache, slot, sheaf);
    atomic_thread_fence(memory_order_release); /* pairs with the fence in rcu_waits() */
    count(slot, cache->number, COUNT_free_rcu_done, n);
}

static void free_all_large(struct sheaf *sheaf)
{
    while (sheaf->count) {
        void *p = sheaf->objects[--sheaf->count];
        atomic_fetch_sub(&bytes, hooks.rcu_large_size(p));
        hooks.rcu_free_large(p);
    }
    empty_sheaf_free(sheaf);
}

static void hand_back(struct sheaf *sheaf)
{
    uint64_t bottom = sheaf->bottom;
    unsigned number = number_in(bottom);
    unsigned n = sheaf->count;
    sheaf_assert(bottom & HERE);
    sheaf->bottom = 0;
    sheaf->next = 0;
    atomic_fetch_sub(&bytes, (uint64_t)n * size_of(number));
    atomic_fetch_sub(&sheaves, 1);
    atomic_fetch_sub(&waiting[number], n);
    if (number == RCU_LARGE) {
        free_all_large(sheaf);
    } else {
        give_back(cache_at(number), slot_in(bottom), domain_in(bottom), sheaf);
        cache_publish(cache_at(number));
    }
}

bool rcu_collect(void)
{
    struct sheaf *more = sheaf_stack_take_all(&sealed);
    uint32_t left = in_grace ? sheaf_offset(in_grace) : 0;
    if (more && left) { /* left by a thread that does not exist in this child of a fork */
        struct sheaf *last = more;
        while (last->next)
            last = sheaf_at(last->next);
        last->next = left;
    }
    if (more)
        in_grace = more;
    slabs_in_grace = slab_retired_collect();
    return in_grace || slabs_in_grace;
}

void rcu_finish(void)
{
    grace_periods++;
    while (in_grace) {
        struct sheaf *sheaf = in_grace;
        in_grace = sheaf->next ? sheaf_at(sheaf->next) : NULL;
        hand_back(sheaf);
    }
    if (slabs_in_grace)
        slab_retired_release();
}

/* ---- what waits ---- */

bool rcu_waits(const struct kmem_cache *cache)
{
    bool waits_for = false;
    for (unsigned k = 0; k < cache_siblings(cache); k++) {
        const struct kmem_cache *sibling = cache_sibling(cache, k);
        uint64_t given = sibling->inherited_rcu + counter_sum(sibling->number, COUNT_free_rcu);
        waits_for |= given != counter_sum(sibling->number, COUNT_free_rcu_done);
    }
    atomic_thread_fence(memory_order_acquire); /* what is counted as freed is in its place: give_back() */
    return waits_for;
}

uint64_t rcu_objects(const struct kmem_cache *cache)
{
    uint64_t n = atomic_load(&waiting[cache->number]);
    for (uint64_t bits = atomic_load(&slots_of[cache->number]); bits; bits &= bits - 1)
        for (unsigned slot = (unsigned)__builtin_ctzll(bits); slot < read_once(slot_top); slot += 64) {
            const struct sheaf *sheaf =
                slot_writable(slot) ? sheaf_in(atomic_load(word_of(slot, cache->number))) : NULL;
            n += sheaf ? read_once(sheaf->count) : 0;
        }
    return n;
}

void rcu_note(bool was_lost)
{
    atomic_fetch_add(was_lost ? &lost : &waits, 1);
}

void rcu_stats(struct sheaf_rcu_stats *stats)
{
    int64_t now = (int64_t)atomic_load(&bytes); /* below 0 after a fork in a handler that interrupted a change */
    stats->bytes += now > 0 ? (uint64_t)now : 0;
    stats->sheaves += atomic_load(&sheaves);
    stats->slabs += slab_retired_count();
    stats->grace_periods += read_once(grace_periods);
    stats->waits += atomic_load(&waits);
    stats->lost += atomic_load(&lost);
}

/* ---- fork ---- */

static void count_anew(const struct sheaf *sheaf)
{
    unsigned number = number_in(sheaf->bottom);
    waiting[number] += sheaf->count;
    bytes += (uint64_t)sheaf->count * size_of(number);
    for (unsigned i = 0; i < sheaf->count && number == RCU_LARGE; i++)
        bytes += hooks.rcu_large_size(sheaf->objects[i]);
}

static void count_all_anew(uint32_t offset)
{
    for (; offset; offset = sheaf_at(offset)->next) {
        sheaves++;
        count_anew(sheaf_at(offset));
    }
}

/* Sets the slot's bits again, which another thread may have cleared for sealing at the moment of the fork. */
static void collects_anew(unsigned slot, unsigned number)
{
    uint32_t seen = atomic_load(word_of(slot, number));
    if (seen & HANDS)
        atomic_store(word_of(slot, number), seen & ~HANDS);
    if (!(seen & ~HANDS))
        return;
    slots_of[number] |= 1ull << (slot % 64);
    caches_with[number / 64] |= 1ull << (number % 64);
    if (number == RCU_LARGE)
        count_anew(sheaf_in(seen));
}

/*
 * Sheaves that other threads held at the fork are lost to the child, so everything that waits is counted anew.
 * After a fork in a signal handler, the interrupted code of this thread may still hold a sheaf; its hold is
 * cleared as well.
 */
void rcu_fork_child(void)
{
    bytes = sheaves = 0;
    for (unsigned number = 0; number < cache_top; number++) {
        waiting[number] = 0;
        for (unsigned slot = 0; slot < slot_top; slot++)
            if (slot_writable(slot))
                collects_anew(slot, number);
    }
    waiting[RCU_LARGE] = 0;
    count_all_anew((uint32_t)sealed.head);
    count_all_anew(in_grace ? sheaf_offset(in_grace) : 0);
}
