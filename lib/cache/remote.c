#include "cache/ends.h"
#include "cache/remote.h"
#include "platform/os/lock.h"
#include "platform/rseq/membarrier.h"
#include "cache/sheaves.h"

/*
 * A remote drain takes the sheaves of another slot in three steps.
 *
 * 1. Compare-and-swap the word: each end becomes END_CLAIMED. The count of pops of a LIFO word stays.
 *
 * 2. membarrier: sections that had read the old word have ended, or start again and find the claimed ends, at which
 * pops and pushes fail.
 *
 * 3. Check the word. If both ends are still END_CLAIMED, their sheaves belong to the remote drain, in the state that
 * the old word describes. An end that is not END_CLAIMED was stored to by such a section after step 1. That operation
 * is valid, as if it had preceded the remote drain. The other end is then restored, because one sheaf holds the
 * account of both, and the remote drain is tried again.
 *
 * Meanwhile the slot's slow paths install nothing, because they test top_claimed() first, and only remote drains
 * write END_CLAIMED. An install that had compared before step 1 and stored after it has replaced both ends. Remote
 * drains run one at a time, under their lock, so that an END_CLAIMED that step 3 finds was written by the same remote
 * drain.
 *
 * Order. Sections store with plain stores, and commit with one. What orders them for others (tests/litmus has each of
 * these as a test of aarch64's memory model, and without its barrier, where the outcome is possible):
 *
 * - A section and the next one on the slot: the kernel executes a full barrier before it gives up a CPU or an mm_cid,
 *   and one after it has taken it (slot-changes-hands). An install therefore needs no release.
 * - A section and a remote drain: membarrier makes each CPU that runs a thread of the process execute a full barrier,
 *   between its section and the answer; other CPUs have executed one when they switched. Before the answer, a commit
 *   is visible (late-commit), and so is all that was stored before it (drain-reads-entries). Step 3 reads the word,
 *   entries and accounts by plain loads after the system call, which ends with a full barrier.
 * - A remote drain and later sections: taken() stores the word with release after the accounts. What a section then
 *   reads is at addresses that depend on the word (exchange-reads-account), but for the count of a LIFO word; that
 * one is read after a load-acquire of the end (lifo-count).
 * - let_go() changes an end back that no section has stored to, and nothing else. What lies behind it is unchanged.
 * - Emptied sheaves leave by barns, whose heads are exchanged with release and acquire (barn), or by locks.
 *
 * If the thread is preempted or interrupted during a remote drain, threads on the slot find the claimed ends and
 * bypass its sheaves. Fork takes the lock of remote drains first.
 */

#define BATCH 64 /* slots for one membarrier */
#define TRIES 4

static _Atomic uint64_t drains;

uint64_t remote_drains(void)
{
    return atomic_load_explicit(&drains, memory_order_relaxed);
}

/* `sheaf` may be NULL. */
static void dispose(struct kmem_cache *cache, unsigned slot, struct sheaf *sheaf)
{
    if (sheaf)
        cache_empty_sheaf(cache, slot, sheaf, cache_barn(cache, 0));
}

static void take_spare(struct kmem_cache *cache, unsigned slot)
{
    if (!slot_writable(slot))
        return;
    dispose(cache, slot, cache_take_spare(slot, word_id(cache->number)));
    /* sheaves start small again; the capacity is returned to the slot's budget */
    uint64_t seen = atomic_fetch_and(&slot_words(slot, word_id(cache->number))->spare,
                                     ~(SPARE_CAPACITY | SPARE_SWAPS | SPARE_SETTLED));
    atomic_fetch_sub_explicit(&slot_head(slot)->budget_used,
                              2 * (int64_t)spare_capacity(seen) * (int64_t)cache->slab.size, memory_order_relaxed);
}

static void dispose_ends(struct kmem_cache *cache, unsigned slot, struct ends ends)
{
    dispose(cache, slot, ends.pop);
    dispose(cache, slot, ends.push);
}

/* The word that step 1 stores. */
static uint64_t claimed(const struct kmem_cache *cache, uint64_t top)
{
    struct end end = {END_CLAIMED};
    return cache->lifo ? top_of_lifo(end, top_pops(top)) : top_of(end, end);
}

/* Undo step 1 at each end that no section has stored to. */
static void let_go(const struct kmem_cache *cache, uint64_t *top, uint64_t old)
{
    uint32_t *half = (uint32_t *)top, seen = END_CLAIMED;
    if (!cache->lifo)
        __atomic_compare_exchange_n(&half[1], &seen, top_push_end(old).at, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    seen = END_CLAIMED;
    __atomic_compare_exchange_n(&half[0], &seen, top_pop_end(old).at, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Step 3; the word was `old` before step 1. Releases the ends, and stores in *ends the sheaves to be emptied.
 * Returns false if the sheaves were not taken. */
static bool taken(struct kmem_cache *cache, unsigned slot, uint64_t old, enum remote_aim aim, struct ends *ends)
{
    uint64_t *top = &slot_words(slot, word_id(cache->number))->top;
    *ends = (struct ends){.pop = NULL};
    if (__atomic_load_n(top, __ATOMIC_ACQUIRE) != claimed(cache, old)) {
        let_go(cache, top, old);
        return false;
    }
    struct ends found = ends_fold(cache, slot, old);
    bool back = aim == REMOTE_COUNT;
    __atomic_store_n(top, back ? ends_top(cache, slot, found) : 0, __ATOMIC_RELEASE);
    if (!back) {
        *ends = found;
        atomic_fetch_add_explicit(&drains, 1, memory_order_relaxed);
    }
    return true;
}

/* Without rseq the slot's lock keeps all other operations off its words. */
static bool take_locked(struct kmem_cache *cache, unsigned slot, enum remote_aim aim)
{
    uint64_t *top = &slot_words(slot, word_id(cache->number))->top;
    if (!slot_shut(slot))
        return false;
    uint64_t old = *top;
    if (old)
        *top = claimed(cache, old);
    slot_open(slot);
    struct ends ends;
    if (old && taken(cache, slot, old, aim, &ends))
        dispose_ends(cache, slot, ends);
    return true;
}

/* The current slot needs no barrier. Without the kernel's membarrier it is the only one that can be emptied. */
static void take_own(struct kmem_cache *cache, enum remote_aim aim)
{
    unsigned slot = slot_current();
    uint64_t old = read_once(slot_words(slot, word_id(cache->number))->top);
    struct ends ends;
    if (!old || top_claimed(old) || !ends_detach(cache, slot, old, &ends))
        return;
    if (aim == REMOTE_COUNT) {
        ends_attach(cache, slot, ends);
        return;
    }
    atomic_fetch_add_explicit(&drains, 1, memory_order_relaxed);
    dispose_ends(cache, slot, ends);
}

/* Take over the slots [from, to), at most BATCH of them. Returns false if some must be tried again. */
static bool take_batch(struct kmem_cache *cache, unsigned from, unsigned to, enum remote_aim aim)
{
    uint64_t old[BATCH];
    bool any = false, all = true;
    if (to == from + 1 && from == slot_current()) {
        take_own(cache, aim);
        return true;
    }
    for (unsigned slot = from; slot < to; slot++) {
        uint64_t *top = &slot_words(slot, word_id(cache->number))->top;
        uint64_t seen = old[slot - from] = __atomic_load_n(top, __ATOMIC_ACQUIRE);
        if (!seen)
            continue;
        if (!__atomic_compare_exchange_n(top, &seen, claimed(cache, seen), false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_RELAXED)) {
            old[slot - from] = 0;
            all = false;
            continue;
        }
        any = true;
    }
    if (any && !membarrier_rseq()) {
        /* without the barrier sections may still be running: restore all ends, and empty only the current slot */
        for (unsigned slot = from; slot < to; slot++)
            if (old[slot - from])
                let_go(cache, &slot_words(slot, word_id(cache->number))->top, old[slot - from]);
        take_own(cache, aim);
        return true;
    }
    /* release all slots first, because emptying sheaves takes locks and may call the system */
    struct ends ends[BATCH];
    for (unsigned slot = from; slot < to; slot++) {
        ends[slot - from] = (struct ends){.pop = NULL};
        if (old[slot - from] && !taken(cache, slot, old[slot - from], aim, &ends[slot - from]))
            all = false;
    }
    for (unsigned slot = from; slot < to; slot++)
        dispose_ends(cache, slot, ends[slot - from]);
    return all;
}

void remote_drain(struct kmem_cache *cache, unsigned from, unsigned to, enum remote_aim aim)
{
    for (; from < to; from += BATCH) {
        unsigned end = from + BATCH < to ? from + BATCH : to;
        for (unsigned slot = from; slot < end && aim == REMOTE_EMPTY; slot++)
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
