/*
 * Slots: for each CPU (or concurrency id) and each cache two words, `top` and `spare` (cache/slot/page.h).
 *
 * `top` holds the ends: offsets, from the constant sheaf, of first unused entries, four bytes each. It has two
 * formats.
 *
 * Two ends, for small objects: the low half is the pop end, where allocations take objects from one sheaf, and the
 * high half is the push end, where frees put objects into another. The two sheaves change places when the first is
 * empty (cache/ends.h). So allocations do not wait for the stores of frees, nor frees for those of allocations
 * (docs/design-notes.md, "Critical paths").
 *
 * LIFO, for large objects, whose lines are better reused at once: the low half is both ends. The high half counts
 * pops upwards, usually from slot_fold_start, so that it is full after fold_interval pops, and the next pop takes the
 * slow path.
 *
 * The sections of platform/rseq/rseq.h change `top` on the slot itself; without rseq, code under the slot's lock
 * does. Pops and pushes store one half; LIFO pops, exchanges and installs store the whole word. From any CPU a remote
 * drain (cache/remote.c) sets the ends to END_CLAIMED by compare-and-swap. Later it stores the whole word or, if a
 * late section has changed an end, gives back each end that is still claimed by compare-and-swap.
 *
 * An end of 0 leads to the constant sheaf, which is both empty and full: every operation takes the slow path, which
 * may attach a sheaf there. END_CLAIMED leads to a second constant sheaf. No sheaf may be attached while a remote
 * drain holds an end.
 *
 * `spare` holds the offset of the spare in its low half, 0 for none. The thread that exchanges the offset for 0 owns
 * the sheaf. The lower 16 bits of the high half are the capacity to which the slot's sheaves of this cache have
 * grown. The bits above count swaps of main and spare in a LIFO cache; with two ends they count exchanges until the
 * capacity is settled.
 */
#ifndef SHEAF_SLOT_SLOT_H
#define SHEAF_SLOT_SLOT_H

#include "cache/slot/counters.h"
#include "cache/slot/page.h"
#include "cache/slot/sheaf.h"
#include "sheaf/record.h"

#define SPARE_CAPACITY   (0xffffull << 32)
#define SPARE_SWAP_SHIFT 48
#define SPARE_SWAP       (1ull << SPARE_SWAP_SHIFT)
#define SPARE_SWAPS      (0x7fffull << SPARE_SWAP_SHIFT)
#define SPARE_SETTLED    (1ull << 63) /* two ends: set once exchanges no longer increase the capacity */

static inline struct sheaf *spare_sheaf(uint64_t spare)
{
    uint32_t offset = (uint32_t)spare;
    return offset ? sheaf_at(offset) : NULL;
}
static inline unsigned spare_capacity(uint64_t spare)
{
    return (unsigned)(spare >> 32) & 0xffff;
}
static inline uint64_t spare_with_capacity(uint64_t spare, unsigned capacity)
{
    return (spare & ~SPARE_CAPACITY) | (uint64_t)capacity << 32;
}
static inline unsigned spare_swaps(uint64_t spare)
{
    return (unsigned)(spare >> SPARE_SWAP_SHIFT);
}

extern hidden enum sheaf_mode slot_mode;
extern hidden uint32_t slot_fold_start;

/* Choose the mode and write the constant sheaves. The space must exist. */
void slot_init(bool rseq, bool own, bool want_cid, bool cpu_id_only, uint32_t fold_interval);

/*
 * Make every fast path miss, in all threads, while there are foreign threads (platform/os/foreign.h), and let them
 * hit again once there are none. The first is to be called after foreign_add() and before the thread is made. The
 * second may do nothing, in a signal handler; slow paths call it again while slot_paused is true. Any context.
 */
extern hidden bool slot_paused;
void slot_pause_fast(void);
void slot_resume_fast(void);

/* The slot of the calling thread: a hint, because the thread may migrate. Always below space.slots. */
unsigned slot_current(void);

/* The slot to count in: the current one, or 0 if the system grants no memory for its words. */
unsigned slot_counting(void);

/* Threads use only slots below the result while all CPUs that are online have numbers below `cpus`. */
unsigned slot_reachable(unsigned cpus);

/* The domain of the current CPU, below DOMAINS. CPUs of a domain share a last-level cache. */
unsigned slot_domain(void);

/* The number of domains that exist, at least 1. All others hold nothing. */
unsigned slot_domains(void);
#define DOMAINS 8

/*
 * The operations in every mode. They fail where a fast path misses, and where the slot's lock is busy. `lifo` is the
 * format of the cache's words.
 * slot_install() replaces the word `old`; it fails if the thread is not on that slot, or if the word has changed.
 */
void *slot_pop(struct word_id id, bool lifo);
void *slot_pop_local(struct word_id id, bool lifo); /* from the sibling of the slot's node */
bool slot_push(struct push_id id, void *object);
bool slot_install(unsigned slot, struct word_id id, uint64_t old, uint64_t new);

/*
 * Two ends: exchange the halves of `top`. `from` is the sheaf of the push end; `to` is that of the pop end, has the
 * same capacity and `n` objects less. The account moves from the first to the second (cache/ends.h). Returns false
 * if the word has changed, if the thread is not on that slot, or if the account is full.
 */
bool slot_exchange(unsigned slot, struct word_id id, uint64_t top, const struct attached_sheaf *from,
                   struct attached_sheaf *to, unsigned n);

/* Without rseq: take the lock of the slot for a remote drain. Returns false if the slot stays busy. */
bool slot_shut(unsigned slot);
void slot_open(unsigned slot);

/* Whether the slot's words are writable. Words that are not writable are 0. */
static inline bool slot_writable(unsigned slot)
{
    return slot < atomic_load_explicit(&space.slots_open, memory_order_relaxed);
}

/* Make the slot's words and counters writable. Returns false if the system refuses. */
static inline bool slot_commit(unsigned slot)
{
    return likely(slot_writable(slot)) || space_open_slots(slot + 1);
}

/* Make the slot's words and counters writable, and count the slot as used. Returns false if the system refuses. */
static inline bool slot_enter(unsigned slot)
{
    if (!slot_commit(slot))
        return false;
    if (unlikely(slot >= read_once(slot_top)))
        slot_raise_top(slot);
    return true;
}

/* The halves of `top`: two ends. The first is that of a LIFO cache, too. */
static inline struct end top_pop_end(uint64_t top)
{
    return (struct end){(uint32_t)top};
}
static inline struct end top_push_end(uint64_t top)
{
    return (struct end){(uint32_t)(top >> 32)};
}
static inline uint64_t top_of(struct end pop, struct end push)
{
    return pop.at | (uint64_t)push.at << 32;
}
/* LIFO: the high half is the count of pops. */
static inline uint32_t top_pops(uint64_t top)
{
    return (uint32_t)(top >> 32);
}
static inline uint64_t top_of_lifo(struct end end, uint32_t pops)
{
    return end.at | (uint64_t)pops << 32;
}
/* For both formats, because a count of pops is never END_CLAIMED. */
static inline bool top_claimed(uint64_t top)
{
    return top_pop_end(top).at == END_CLAIMED || top_push_end(top).at == END_CLAIMED;
}
/* LIFO: whether the count of pops is full. */
static inline bool top_full_count(uint64_t top)
{
    return top_pops(top) == UINT32_MAX;
}

/* Objects in the sheaf of an end, which is neither 0 nor END_CLAIMED. */
static inline unsigned end_depth(struct end end)
{
    return (unsigned)(sheaf_entry(end) - sheaf_containing(end)->objects);
}
/* Objects at an end; 0 if the end is empty or claimed. */
static inline unsigned end_holds(struct end end)
{
    return end.at > END_CLAIMED ? end_depth(end) : 0;
}
/* The end for a sheaf whose count is right; 0 if there is none. */
static inline struct end end_of(const struct sheaf *sheaf)
{
    return (struct end){sheaf ? sheaf_offset(sheaf) + (uint32_t)offsetof(struct sheaf, objects) + sheaf->count * 8u
                              : 0};
}

#endif
