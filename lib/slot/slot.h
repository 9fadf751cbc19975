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

#include "slot/sheaf.h"
#include "slot/counters.h"
#include "os/rseq.h"
#include "sheaf/record.h"

#define END_HELD 16u /* the offset of the second constant sheaf */

/*
 * Numbers of caches: below CACHE_FIRST they have no words, then come malloc's (malloc/classes.h), then a gap, in
 * whose words slots keep other things (slot/stash.h), and from CACHE_USERS up those that kmem_cache_create() gives
 * out.
 */
#define CACHE_FIRST 8
#define CACHE_GAP   81
#define CACHE_USERS 256
static inline bool cache_gap(unsigned number)
{
    return number >= CACHE_GAP && number < CACHE_USERS;
}

/*
 * Where in a slot the words of a cache lie. The first ones begin behind malloc's table of classes, which slot 0 has
 * behind its head, where instructions reach it by a displacement of one byte. In the table of units an id has
 * SLOT_PUSH_AT added, or not, so that it is the place that frees work on.
 */
#define SLOT_WORDS_AT   2560u
#define SLOT_ID(number) (SLOT_WORDS_AT + ((uintptr_t)(number) << 4))
static inline unsigned slot_id_number(uintptr_t id)
{
    return (unsigned)(id - SLOT_WORDS_AT) >> 4;
}
#define SLOT_PUSH_AT  4u    /* from a cache's id to its push end, where it has two ends */
#define TWO_ENDS_MOST 1024  /* bytes of an object; what larger ones cost is in docs/design.md */
#define SLOT_SEEN_AT  36864 /* behind the words */
#define SLOT_RCU_AT   49152 /* behind those of all caches */

struct slot_head {               /* before the words */
    uint64_t none;               /* the top of cache number 0 */
    _Atomic uint32_t near;       /* from a cache's id to that of its sibling for this slot's node */
    _Atomic uint32_t node;       /* one more than the index of the slot's node, 0: not known yet (node/node.h) */
    _Atomic uint64_t lock;       /* without rseq: 1 while an operation is under way */
    _Atomic int64_t budget_used; /* bytes of objects that its sheaves may hold */
    uint64_t barn_traffic;       /* decay: bytes of objects that went to barns from here, since its last step */
    uint64_t slow_calls;         /* decay: looks at the clock now and then */
    uint64_t constant[5];        /* [6] .. [10] in slot 0 */

    /* Of slot 0 alone, in one cache line with the marks: what the fast paths read. */
    size_t limit; /* malloc's requests below go by the table of small sizes */
    struct rseq_area area;
    uintptr_t lowest; /* (base - 1 - p) >> 16, signed, indexes the ids from base downwards; at or below this,
                         unsigned, are none of ours */
};
_Static_assert(offsetof(struct slot_head, area) == AREA_AT, "as os/rseq.h says");
_Static_assert(offsetof(struct slot_head, near) == NEAR_AT, "as os/rseq.h says");
_Static_assert(offsetof(struct slot_head, constant[2]) == CONSTANT_AT && sizeof(struct slot_head) == CLASS_TABLE_AT,
               "as os/rseq.h says");

struct slot_words {
    uint64_t top; /* little endian: the pop end comes first */
    _Atomic uint64_t spare;
};

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

static inline struct slot_head *slot_head(unsigned slot)
{
    return (struct slot_head *)(space.base + ((uintptr_t)slot << SLOT_SHIFT));
}
static inline struct slot_words *slot_words(unsigned slot, uintptr_t id)
{
    return (struct slot_words *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + id);
}

/* The half of the word that frees update; `id` is that of struct slab_cache. */
static inline uint32_t *slot_push_end(unsigned slot, uintptr_t id)
{
    return (uint32_t *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + id);
}

/* Decay: what each word was, hashed, when it looked last. */
static inline uint32_t *slot_seen(unsigned slot)
{
    return (uint32_t *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + SLOT_SEEN_AT);
}

/* Deferred frees (deferred/rcu.c): for each cache the sheaf that collects them. */
static inline uint32_t *slot_rcu(unsigned slot)
{
    return (uint32_t *)(space.base + ((uintptr_t)slot << SLOT_SHIFT) + SLOT_RCU_AT);
}
_Static_assert(SLOT_ID(CACHE_MAX) <= SLOT_SEEN_AT, "the words end before");
_Static_assert(SLOT_SEEN_AT + CACHE_MAX * 4 <= SLOT_RCU_AT && SLOT_RCU_AT + CACHE_MAX * 4 <= 1 << 16,
               "both lie in the slot");

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
