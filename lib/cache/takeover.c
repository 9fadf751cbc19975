#include "cache/kmem_cache.h"
#include "cache/takeover.h"
#include "os/lock.h"
#include "os/membarrier.h"

/*
 * Taking the sheaves of another slot.
 *
 * 1. compare-and-swap top to TOP_HELD;
 * 2. membarrier: sections that had read the old word are over, or will start again and see TOP_HELD;
 * 3. look again. TOP_HELD stands: the main sheaf is ours, in the state that the old word tells. Otherwise such a
 * section committed after our swap; that was a legal operation, as if we had not come, and we try again. After such a
 * section the slot itself may have replaced main or be folding; it then puts TOP_FOLDING there, never TOP_HELD, or we
 * would take for ours what it holds. One at a time, under their lock: so two takers never wait for each other's
 * words.
 *
 * Preempted or interrupted anywhere here: the slot's users see TOP_HELD and go around. Fork: the lock is taken before
 * it.
 */

#define BATCH 64 /* slots for one membarrier */
#define TRIES 4

static _Atomic uint64_t takeovers;

uint64_t takeover_count(void)
{
    return atomic_load_explicit(&takeovers, memory_order_relaxed);
}

/* There may be none. */
static void dispose(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    if (sheaf)
        cache_empty_sheaf(cache, slot, sheaf, cache_barn(cache, 0));
}

static void take_spare(struct kmem_cache *cache, unsigned slot)
{
    if (!slot_writable(slot))
        return;
    dispose(cache, slot, cache_take_spare(slot, SLOT_ID(cache->number)));
    /* sheaves start small again, and what they were allowed to hold goes back to the slot's budget */
    uint64_t seen = atomic_fetch_and(&slot_words(slot, SLOT_ID(cache->number))->spare, ~SPARE_CAPACITY);
    atomic_fetch_sub_explicit(&slot_head(slot)->budget_used,
                              2 * (int64_t)spare_capacity(seen) * (int64_t)cache->slab.size, memory_order_relaxed);
}

/* The word is TOP_HELD by us; it is free again afterwards. What main was, when it is to be emptied. */
static struct sheaf *taken(struct kmem_cache *cache, unsigned slot, uint64_t old, enum takeover_aim aim)
{
    uint64_t *top = &slot_words(slot, SLOT_ID(cache->number))->top;
    struct sheaf *sheaf = cache_fold(cache, slot, old);
    if (aim == TAKEOVER_COUNT) {
        __atomic_store_n(top, top_of(sheaf), __ATOMIC_RELEASE);
        return NULL;
    }
    __atomic_store_n(top, 0, __ATOMIC_RELEASE);
    atomic_fetch_add_explicit(&takeovers, 1, memory_order_relaxed);
    return sheaf;
}

/* Under the fallback the slot's lock keeps everybody else out. */
static bool take_locked(struct kmem_cache *cache, unsigned slot, enum takeover_aim aim)
{
    uint64_t *top = &slot_words(slot, SLOT_ID(cache->number))->top;
    if (!slot_shut(slot))
        return false;
    uint64_t old = *top;
    bool some = top_offset(old) != 0;
    if (some)
        *top = TOP_HELD;
    slot_open(slot);
    if (some)
        dispose(cache, slot, taken(cache, slot, old, aim));
    return true;
}

/* A kernel without the membarrier: only the slot that we are on can be emptied, by an install. */
static void take_own(struct kmem_cache *cache, enum takeover_aim aim)
{
    unsigned slot = slot_current();
    uintptr_t id = SLOT_ID(cache->number);
    uint64_t old = read_once(slot_words(slot, id)->top);
    if (top_offset(old) && slot_install(slot, id, old, TOP_HELD))
        dispose(cache, slot, taken(cache, slot, old, aim));
}

/* Main sheaves of the slots [from, to), at most BATCH; false when some must be tried again. */
static bool take_batch(struct kmem_cache *cache, unsigned from, unsigned to, enum takeover_aim aim)
{
    uint64_t old[BATCH];
    bool any = false;
    if (to == from + 1 && from == slot_current()) {
        take_own(cache, aim);
        return true;
    }
    bool all = true;
    for (unsigned slot = from; slot < to; slot++) {
        uint64_t *top = &slot_words(slot, SLOT_ID(cache->number))->top;
        uint64_t seen = old[slot - from] = __atomic_load_n(top, __ATOMIC_ACQUIRE);
        if (!top_offset(seen)) {
            old[slot - from] = 0;
            continue;
        }
        if (!__atomic_compare_exchange_n(top, &seen, TOP_HELD, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            old[slot - from] = 0;
            all = false;
        }
        any = true;
    }
    if (any && !membarrier_rseq()) {
        /* nothing is known of the sections: put everything back, and take what we can take alone */
        for (unsigned slot = from; slot < to; slot++) {
            uint64_t held = TOP_HELD;
            if (old[slot - from])
                __atomic_compare_exchange_n(&slot_words(slot, SLOT_ID(cache->number))->top, &held, old[slot - from],
                                            false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
        }
        take_own(cache, aim);
        return true;
    }
    /* all are let go before any is emptied, which takes locks and may call the system */
    struct sheaf *sheaves[BATCH];
    for (unsigned slot = from; slot < to; slot++) {
        sheaves[slot - from] = NULL;
        if (!old[slot - from])
            continue;
        if (__atomic_load_n(&slot_words(slot, SLOT_ID(cache->number))->top, __ATOMIC_ACQUIRE) == TOP_HELD)
            sheaves[slot - from] = taken(cache, slot, old[slot - from], aim);
        else
            all = false;
    }
    for (unsigned slot = from; slot < to; slot++)
        dispose(cache, slot, sheaves[slot - from]);
    return all;
}

void takeover(struct kmem_cache *cache, unsigned from, unsigned to, enum takeover_aim aim)
{
    for (; from < to; from += BATCH) {
        unsigned end = from + BATCH < to ? from + BATCH : to;
        for (unsigned slot = from; slot < end && aim == TAKEOVER_EMPTY; slot++)
            take_spare(cache, slot);
        if (slot_mode == SHEAF_MODE_LOCK) {
            for (unsigned slot = from; slot < end; slot++)
                take_locked(cache, slot, aim);
            continue;
        }
        for (int i = 0; i < TRIES && !take_batch(cache, from, end, aim); i++) {
        }
    }
}
