/*
 * Slots: for each CPU (or concurrency id), two words for each cache.
 *
 * `top` holds offsets from the constant sheaf of first unused entries, four bytes each. It has two formats.
 *
 * Two ends, for small objects: the low half is the pop end, where allocations take objects from a sheaf, and the high
 * half is the push end, where frees put objects into another. The two sheaves change places when the first is empty
 * (cache/ends.h). Allocations and frees then do not wait for each other's stores (docs/design.md, "Critical paths").
 *
 * LIFO, for large objects, whose lines are better reused at once: the low half is both ends. The high half counts
 * pops upwards from slot_fold_start, so that it overflows, and so reaches the slow path, after fold_interval pops.
 *
 * The sections of os/rseq.h change `top` on the slot itself (or code under the slot's lock, where there is no rseq).
 * Pops and pushes store one half; LIFO pops, exchanges and installs store the whole word. From any CPU a take-over
 * (cache/takeover.c) sets the ends to END_HELD by compare-and-swap. Later it gives both back by one store, or each by
 * a compare-and-swap when a late section got in between.
 *
 * An end of 0 leads to the constant sheaf, {0, the mark of a full one}: it is empty and full at once, so that every
 * operation takes the slow path. The slot has no sheaf at that end, and a slow path may attach one. END_HELD leads to
 * a second such sheaf: nothing may be installed while a take-over owns an end.
 *
 * `spare` holds the offset of the spare sheaf in its low half, 0 for none; whoever exchanges it for 0 owns the sheaf.
 * In the high half, 16 bits are the capacity that the slot's sheaves of this cache have grown to. The other 16 count
 * swaps of main and spare where words are LIFO, and exchanges of two ends until the capacity is settled.
 *
 * The head of a slot lies before the words. Cache number 0 (units that hold no slab) has top 0 for ever. In slot 0
 * the constant sheaves lie there: words [6] to [10] are 0, 0, the mark, 0, the mark; offsets start at word 8.
 */
#ifndef SHEAF_SLOT_SLOT_H
#define SHEAF_SLOT_SLOT_H

#include "slot/counters.h"
#include "slot/page.h"
#include "slot/sheaf.h"
#include "sheaf/record.h"

#define SPARE_CAPACITY   (0xffffull << 32)
#define SPARE_SWAP_SHIFT 48
#define SPARE_SWAP       (1ull << SPARE_SWAP_SHIFT)
#define SPARE_SWAPS      (0x7fffull << SPARE_SWAP_SHIFT)
#define SPARE_SETTLED    (1ull << 63) /* two ends: set once exchanges no longer increase the capacity */

static inline unsigned spare_capacity(uint64_t spare)
{
    return (unsigned)(spare >> 32) & 0xffff;
}

extern hidden enum sheaf_mode slot_mode;
extern hidden uint32_t slot_fold_start;

/* Choose the mode and set up the constant sheaf. The space exists. */
void slot_init(bool rseq, bool own, bool want_cid, bool cpu_id_only, uint32_t fold_interval);

/* The slot to use now: a hint, the thread may move on. Always below space.slots. */
unsigned slot_current(void);

/* The slot to count in now: the current one, or 0 where the system grants it no memory. */
unsigned slot_counting(void);

/* The slots that threads can use while only CPUs below `cpus` are online: those below the result. */
unsigned slot_reachable(unsigned cpus);

/* The domain of the current CPU: those that share its last-level cache. */
unsigned slot_domain(void);
#define DOMAINS 8

/*
 * The operations in whatever mode; they fail where the fast paths do, and where a lock is busy. `lifo` tells the
 * format of the cache's words. slot_push() takes the id that the units of the cache have (struct slab_cache, `id`).
 */
void *slot_pop(uintptr_t id, bool lifo);
void *slot_pop_near(uintptr_t id, bool lifo); /* from the sibling of the slot's node */
bool slot_push(uintptr_t id, void *object);
bool slot_install(unsigned slot, uintptr_t id, uint64_t old, uint64_t new);

/*
 * Two ends: change the halves of `top` over. `from` is the sheaf of the push end, `to` that of the pop end, which has
 * `n` objects less; both have the same capacity. The account moves from the first to the second (cache/ends.h).
 * False: the word has changed, the thread is not on that slot, or the account is full.
 */
bool slot_exchange(unsigned slot, uintptr_t id, uint64_t top, const struct sheaf *from, struct sheaf *to, unsigned n);

/* Without rseq: shut the slot for a take-over; false when it stays busy. */
bool slot_shut(unsigned slot);
void slot_open(unsigned slot);

/* Whether the slot's words are writable; those that are not hold nothing. */
static inline bool slot_writable(unsigned slot)
{
    return slot < atomic_load_explicit(&space.slots_open, memory_order_relaxed);
}

/* Make them writable, and the slot's counters. False: the system refused. */
static inline bool slot_commit(unsigned slot)
{
    return likely(slot_writable(slot)) || space_open_slots(slot + 1);
}

/* The halves of `top`. */
static inline uint32_t top_pop_end(uint64_t top)
{
    return (uint32_t)top;
}
static inline uint32_t top_push_end(uint64_t top)
{
    return (uint32_t)(top >> 32);
}
static inline uint64_t top_of(uint32_t pop_end, uint32_t high)
{
    return pop_end | (uint64_t)high << 32;
}
/* A count of pops is never END_HELD, so that this holds for both formats. */
static inline bool top_held(uint64_t top)
{
    return top_pop_end(top) == END_HELD || top_push_end(top) == END_HELD;
}
/* LIFO: pops since the count was folded last, and whether it is full. */
static inline uint32_t top_pops(uint64_t top)
{
    return (uint32_t)(top >> 32) - slot_fold_start;
}
static inline bool top_full_count(uint64_t top)
{
    return top >> 32 == UINT32_MAX;
}

/* Objects in the sheaf of an end, which is neither 0 nor END_HELD. */
static inline unsigned end_depth(uint32_t end)
{
    return (unsigned)(sheaf_entry(end) - sheaf_containing(end)->objects);
}
/* Objects at an end; 0 if the end is empty or held. */
static inline unsigned end_holds(uint32_t end)
{
    return end > END_HELD ? end_depth(end) : 0;
}
/* The end that makes a slot use a sheaf that holds what its count says; 0 for none. */
static inline uint32_t end_of(const struct sheaf *sheaf)
{
    return sheaf ? sheaf_offset(sheaf) + (uint32_t)offsetof(struct sheaf, objects) + sheaf->count * 8u : 0;
}

#endif
