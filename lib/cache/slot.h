/*
 * Slots: for each CPU (or concurrency id), two words for each cache.
 *
 * `top` holds, in its low half, the offset from the constant sheaf of the first unused entry of the main sheaf, and
 * in its high half the number of objects popped, counted up from fold_start so that it overflows (and so reaches the
 * slow path) after fold_interval of them. It is changed only
 *   - by the sections of os/rseq.h on the slot itself (or under the slot's lock, where there is no rseq); one of them
 *     puts TOP_FOLDING there while the slot folds its own count (cache/alloc.c), and
 *   - by a take-over (cache/takeover.c), which puts TOP_HELD there by compare-and-swap.
 * An offset of 0 is the constant sheaf, {0, the mark of a full one}: empty and full at once, so that every operation
 * goes slow. With a count of 0 the slot is unused and may be installed to; TOP_HELD and TOP_FOLDING: hands off.
 *
 * `spare` holds the offset of the spare sheaf in its low half, 0 for none; whoever exchanges it for 0 owns the sheaf.
 * In the high half, 16 bits are the capacity that the slot's sheaves of this cache have grown to, and 16 count swaps.
 *
 * Words 0 to 15 of a slot belong to no cache. Cache number 0 (units that hold no slab) has top 0 for ever.
 * In slot 0 the constant sheaf lies there: [6] [7] = 0, [8] = the mark; offsets start at word 8.
 */
#ifndef SHEAF_CACHE_SLOT_H
#define SHEAF_CACHE_SLOT_H

#include "cache/sheaf.h"
#include "cache/counters.h"
#include "os/rseq.h"
#include "sheaf/record.h"

#define TOP_HELD    (1ull << 32)
#define TOP_FOLDING (2ull << 32)   /* held by its own slot: a taker must not think that it holds it */
#define POP_STEP    (TOP_HELD - 8) /* one entry down, one pop more */

/*
 * Numbers of caches: below CACHE_FIRST they have no words, then come malloc's (malloc/classes.h), then a gap, and
 * from CACHE_USERS up those that kmem_cache_create() gives out. In the gap they have no siblings: in slot 0 malloc's
 * table lies where their words would be (with node_stride added it does not).
 */
#define CACHE_FIRST 8
#define CACHE_GAP   81
#define CACHE_USERS 256
static inline bool cache_gap(unsigned number)
{
    return number >= CACHE_GAP && number < CACHE_USERS;
}

#define SLOT_ID(number) ((uintptr_t)(number) << 4)
#define SLOT_SEEN_AT    32768 /* behind the words, and malloc's table in slot 0 */
#define SLOT_RCU_AT     49152 /* behind those of all caches */

struct slot_head {               /* words 0 to 15 */
    uint64_t none;               /* the top of cache number 0 */
    _Atomic uint32_t near;       /* from a cache's id to that of its sibling for this slot's node */
    _Atomic uint32_t node;       /* one more than the index of the slot's node, 0: not known yet (cache/node.h) */
    _Atomic uint64_t lock;       /* without rseq: 1 while an operation is under way */
    _Atomic int64_t budget_used; /* bytes of objects that its sheaves may hold */
    uint64_t barn_traffic;       /* decay: bytes of objects that went to barns from here, since its last step */
    uint64_t slow_calls;         /* decay: looks at the clock now and then */
    uint64_t constant[3];        /* [6] .. [8] in slot 0 */

    /* Of slot 0 alone, one cache line with the mark: what the fast paths read. */
    size_t limit; /* malloc's requests below go by the table of small sizes */
    struct rseq_area area;
    uint64_t step;    /* POP_STEP, which no immediate holds */
    uintptr_t last;   /* base - 1: (last - p) >> 16, signed, indexes the ids from base downwards */
    uintptr_t lowest; /* indices at or below it, unsigned, are not ours */
};
_Static_assert(offsetof(struct slot_head, area) == AREA_AT && offsetof(struct slot_head, step) == STEP_AT,
               "as os/rseq.h says");
_Static_assert(offsetof(struct slot_head, near) == NEAR_AT, "as os/rseq.h says");
_Static_assert(offsetof(struct slot_head, constant[2]) == CONSTANT_AT && sizeof(struct slot_head) <= CACHE_FIRST * 16,
               "as os/rseq.h says");

struct slot_words {
    uint64_t top;
    _Atomic uint64_t spare;
};

#define SPARE_CAPACITY   (0xffffull << 32)
#define SPARE_SWAP_SHIFT 48
#define SPARE_SWAP       (1ull << SPARE_SWAP_SHIFT)

static inline unsigned spare_capacity(uint64_t spare)
{
    return (unsigned)(spare >> 32) & 0xffff;
}

extern hidden enum sheaf_mode slot_mode;
extern hidden uint64_t slot_fold_start;

/* Choose the mode and set up the constant sheaf. The space exists. */
void slot_init(bool rseq, bool own, bool want_cid, bool cpu_id_only, uint32_t fold_interval);

/* The slot to use now: a hint, the thread may move on. Always below space.slots. */
unsigned slot_current(void);

/* The slot to count in now: the current one, or 0 where the system grants it no memory. */
unsigned slot_counting(void);

/* The domain of the current CPU: those that share its last-level cache. */
unsigned slot_domain(void);
#define DOMAINS 8

/* The operations in whatever mode; they fail where the fast paths do, and where a lock is busy. */
void *slot_pop(uintptr_t id);
void *slot_pop_near(uintptr_t id); /* from the sibling of the slot's node */
bool slot_push(uintptr_t id, void *object);
bool slot_install(unsigned slot, uintptr_t id, uint64_t old, uint64_t new);

/* Without rseq: shut the slot for a take-over; false when it stays busy. */
bool slot_shut(unsigned slot);
void slot_open(unsigned slot);

/* Make the slot's words writable; free of cost when nothing is staged. */
bool slot_commit(unsigned slot);

/* Whether they are; those that are not hold nothing. */
bool slot_writable(unsigned slot);

static inline struct slot_head *slot_head(unsigned slot)
{
    return (struct slot_head *)(space.base + ((uintptr_t)slot << SLOT_SHIFT));
}
static inline struct slot_words *slot_words(unsigned slot, uintptr_t id)
{
    return (struct slot_words *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + id);
}

/* Decay: what each word was, hashed, when it looked last. */
static inline uint32_t *slot_seen(unsigned slot)
{
    return (uint32_t *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + SLOT_SEEN_AT);
}

/* Deferred frees (cache/rcu.c): for each cache the sheaf that collects them. */
static inline uint32_t *slot_rcu(unsigned slot)
{
    return (uint32_t *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + SLOT_RCU_AT);
}
_Static_assert(SLOT_SEEN_AT + CACHE_MAX * 4 <= SLOT_RCU_AT && SLOT_RCU_AT + CACHE_MAX * 4 <= 1 << 16,
               "both lie in the slot");

static inline bool top_held(uint64_t top)
{
    return top && !(uint32_t)top;
}
static inline uint32_t top_offset(uint64_t top)
{
    return (uint32_t)top;
}
/* Objects in the main sheaf; the offset is not 0. */
static inline unsigned top_depth(uint64_t top)
{
    struct sheaf *sheaf = sheaf_containing(top_offset(top));
    return (unsigned)(sheaf_entry(top_offset(top)) - sheaf->objects);
}
static inline uint64_t top_pops(uint64_t top)
{
    return (top >> 32) - (slot_fold_start >> 32);
}
static inline bool top_full_count(uint64_t top)
{
    return top >> 32 == UINT32_MAX;
}
/* The word that makes a sheaf main, holding what its count says. */
static inline uint64_t top_of(const struct sheaf *sheaf)
{
    return slot_fold_start | (sheaf_offset(sheaf) + (uint32_t)offsetof(struct sheaf, objects) + sheaf->count * 8u);
}

#endif
