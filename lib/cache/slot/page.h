/*
 * The slot page: the 64 KiB of words of one slot, from space.base + slot * 64 KiB. No other header says what lies
 * where; the offsets that instructions contain come from platform/rseq/layout.h, for the assembler's sake.
 *
 *   offset   bytes  what
 *        0     120  struct slot_head:
 *                      0   8  none          the word of cache number 0, always 0: both ids 0 lead here
 *                      8   4  local
 *                     12   4  node
 *                     16   8  lock
 *                     24   8  budget_used
 *                     32   8  barn_traffic
 *                     40   8  slow_calls
 *                     48  40  constant      the rest is of slot 0 alone
 *                     88   8  limit
 *                     96  16  area
 *                    112   8  lowest
 *      120   2,564  slot 0 alone: malloc's ids by size (struct class_table, front/malloc/classes.h)
 *    2,688          words of malloc's caches, numbers from 8 up, 16 bytes each (struct slot_words)
 *   SPAN_CACHE_AT    32  cached, behind them: a word for each length of span (cache/slot/span_cache.h)
 *    6,656  28,672  words of all other caches, numbers 256 to 2,047
 *   36,864   8,192  decay: 4 bytes for each number, a hash of the cache's word at the last step
 *   49,152   8,192  deferred frees: 4 bytes for each number (cache/deferred/rcu.h)
 *
 * All other bytes are unused. What malloc uses of a slot lies in one page of 4 KiB: the words
 * follow the class table at the next multiple of 16, and the span cache takes the place of the words of the next two
 * numbers. The parts by number begin a page, so that a process without user caches touches one page of each.
 */
#ifndef SHEAF_SLOT_PAGE_H
#define SHEAF_SLOT_PAGE_H

#include "platform/rseq/rseq.h"
#include "memory/space/space.h"

/* ---- malloc's size classes ---- */

/* Classes by index: CLASS_128 is that of 128 bytes. */
enum class_index {
#define CLASS(size) CLASS_##size,
#include "cache/slot/spacing.def"
    CACHE_CLASSES
};

enum class_bytes {
#define CLASS(size) CLASS_BYTES_##size = (size),
#include "cache/slot/spacing.def"
    CLASS_BEYOND /* one more than the largest */
};
#define CLASS_MOST (CLASS_BEYOND - 1) /* larger requests are large blocks */

#define TWO_ENDS_MOST 1024 /* bytes of the largest object of a cache with two ends (docs/design-notes.md) */
#define LARGE_STEP    128  /* bytes: larger classes are multiples of it */
_Static_assert(CLASS_8 == 0 && CLASS_MOST % LARGE_STEP == 0 && CLASS_1024 > CLASS_128, "what spacing.def says");
#define CLASS(size)                                                                                                  \
    _Static_assert((size) == 8 || (size) % ((size) > TWO_ENDS_MOST ? LARGE_STEP : 16) == 0, "the class is aligned");
#include "cache/slot/spacing.def"

/* Bytes by index. */
extern hidden const uint16_t class_sizes[CACHE_CLASSES];

/* ---- in slot 0: the table of ids by size ---- */

/* Two bytes for each size up to TWO_ENDS_MOST, and for each multiple of LARGE_STEP, 0 included in both. */
#define CLASS_TABLE_SMALL (TWO_ENDS_MOST + 1)
#define CLASS_TABLE_LARGE (CLASS_MOST / LARGE_STEP + 1)
#define CLASS_TABLE_END   (CLASS_TABLE_AT + 2u * (CLASS_TABLE_SMALL + CLASS_TABLE_LARGE))

/* ---- numbers of caches, and their words ---- */

/*
 * The places of the words of numbers below CACHE_FIRST are taken by the class table, and those of the gap by the
 * cached. So caches have numbers from CACHE_FIRST to below CACHE_GAP (malloc's) and from CACHE_USERS up (those of
 * kmem_cache_create() and the siblings of all). CACHE_USERS is a multiple of COUNTER_GROUP, so that counters of user
 * caches are in blocks of their own.
 */
#define CACHE_FIRST 8
#define CACHE_GAP   (CACHE_FIRST + CACHE_CLASSES)
#define CACHE_USERS 256
static inline uint32_t class_size(unsigned number)
{
    return class_sizes[number - CACHE_FIRST];
}
static inline bool cache_gap(unsigned number)
{
    return number >= CACHE_GAP && number < CACHE_USERS;
}

struct slot_words {
    uint64_t top; /* cache/slot/slot.h has its two formats */
    _Atomic uint64_t spare;
};
#define SLOT_WORDS_SHIFT 4

/* The words of CACHE_FIRST follow the class table, and so those of number 0 would lie here. */
#define SLOT_WORDS_AT        ((CLASS_TABLE_END + 15u) / 16 * 16 - (CACHE_FIRST << SLOT_WORDS_SHIFT))
#define SLOT_WORD_AT(number) (SLOT_WORDS_AT + ((uintptr_t)(number) << SLOT_WORDS_SHIFT))

/* The two ids of a cache (platform/rseq/rseq.h). The class table holds ids of words, the table of slices push ids. */
static inline struct word_id word_id(unsigned number)
{
    return (struct word_id){SLOT_WORD_AT(number)};
}
static inline struct push_id push_id(struct word_id word, bool lifo)
{
    return (struct push_id){word.at + (lifo ? 0 : HIGH_HALF_AT)};
}
/* That of the cache whose slab the slice belongs to; 0 if it is of no slab. */
static inline struct push_id slice_push_id(uintptr_t slice)
{
    return (struct push_id){read_once(*slice_id(slice))};
}
static inline unsigned word_id_number(struct word_id id)
{
    return (unsigned)(id.at - SLOT_WORDS_AT) >> SLOT_WORDS_SHIFT;
}
static inline unsigned push_id_number(struct push_id id)
{
    return (unsigned)(id.at - SLOT_WORDS_AT) >> SLOT_WORDS_SHIFT;
}

#define SPAN_CACHE_LENGTHS 4u /* slices: 64 to 256 KiB, 640 KiB in a slot */
#define SPAN_CACHE_AT      SLOT_WORD_AT(CACHE_GAP)
#define SPAN_CACHE_END     (SPAN_CACHE_AT + SPAN_CACHE_LENGTHS * sizeof(uint64_t))

/* ---- behind the words: 4 bytes for each number ---- */

#define SLOT_SEEN_AT (36u << 10)
#define SLOT_RCU_AT  (48u << 10)

/* ---- the head ---- */

struct slot_head {
    uint64_t none;
    _Atomic uint32_t local;      /* from a cache's id to that of its sibling for this slot's node */
    _Atomic uint32_t node;       /* one more than the index of the slot's node, 0 while unknown (cache/node/node.h) */
    _Atomic uint64_t lock;       /* without rseq: 1 while an operation is under way */
    _Atomic int64_t budget_used; /* bytes of objects that the slot's sheaves may hold */
    uint64_t barn_traffic;       /* bytes that left for barns in sheaves since the last step of decay */
    uint64_t slow_calls;         /* slow paths taken here, a hint; decay looks at the clock at some of them */

    /*
     * The constant sheaves, in slot 0: 0, 0, the mark of a full sheaf, 0, the mark. Offsets start at the first mark.
     * At offset 0 and at END_CLAIMED a pop finds an empty sheaf, and a push a full one.
     */
    uint64_t constant[5];

    /* What the fast paths read, in slot 0, in one cache line with the marks. */
    size_t limit;          /* malloc's smaller requests use the table of small sizes; 0: no request does */
    struct rseq_area area; /* see rseq_roots */
    uintptr_t lowest;      /* (base - 1 - p) >> SLICE_SHIFT, signed, indexes the ids from base downwards; a result at
                              or below this, unsigned, is of no block of ours */
};

#define END_CLAIMED 16u /* the offset of the second constant sheaf: an end that a remote drain holds */

#define HEAD_HAS(member, offset, bytes)                                                                              \
    _Static_assert(offsetof(struct slot_head, member) == (offset) &&                                                 \
                       sizeof(((struct slot_head *)0)->member) == (bytes),                                           \
                   "slot_head: as drawn")
HEAD_HAS(none, 0, 8);
HEAD_HAS(local, LOCAL_AT, 4);
HEAD_HAS(node, 12, 4);
HEAD_HAS(lock, 16, 8);
HEAD_HAS(budget_used, 24, 8);
HEAD_HAS(barn_traffic, 32, 8);
HEAD_HAS(slow_calls, 40, 8);
HEAD_HAS(constant, 48, 40);
HEAD_HAS(constant[2], CONSTANT_AT, 8);
HEAD_HAS(constant[4], CONSTANT_AT + END_CLAIMED, 8);
HEAD_HAS(limit, 88, 8);
HEAD_HAS(area, AREA_AT, 16);
HEAD_HAS(lowest, 112, 8);
#undef HEAD_HAS
_Static_assert(sizeof(struct slot_head) == CLASS_TABLE_AT && CLASS_TABLE_AT <= 127,
               "the class table follows the head, and a displacement of one byte reaches it");
_Static_assert(LOCAL_AT == 8 && CONSTANT_AT % 64 == 0 && sizeof(struct slot_head) <= CONSTANT_AT + 64,
               "the marks and what follows share a cache line");

/* ---- no part overlaps the next, and the drawing is right ---- */

_Static_assert(sizeof(struct slot_words) == 1 << SLOT_WORDS_SHIFT &&
                   offsetof(struct slot_words, spare) == 2 * HIGH_HALF_AT,
               "a word has two halves");
_Static_assert(CLASS_TABLE_END <= SLOT_WORD_AT(CACHE_FIRST) && SLOT_WORD_AT(CACHE_FIRST) == 2688,
               "class table, words");
_Static_assert(SPAN_CACHE_END == SLOT_WORD_AT(CACHE_GAP + 2) && CACHE_GAP + 2 <= CACHE_USERS, "cached, in the gap");
_Static_assert(SPAN_CACHE_END <= 4096,
               "all that malloc uses of a slot lies in one page: the spacing has few enough classes");
_Static_assert(SLOT_WORD_AT(CACHE_USERS) == 6656 && CACHE_USERS % COUNTER_GROUP == 0, "words of user caches");
_Static_assert(SLOT_WORD_AT(CACHE_MAX) <= SLOT_SEEN_AT && SLOT_SEEN_AT == 36864, "words, seen");
_Static_assert(SLOT_SEEN_AT + CACHE_MAX * sizeof(uint32_t) <= SLOT_RCU_AT && SLOT_RCU_AT == 49152,
               "seen, deferred frees");
_Static_assert(SLOT_RCU_AT + CACHE_MAX * sizeof(uint32_t) == 57344 && 57344 <= 1 << SLOT_SHIFT,
               "all parts lie in the page");
_Static_assert(SLOT_SEEN_AT % 4096 == 0 && SLOT_RCU_AT % 4096 == 0, "parts by number begin a page");
_Static_assert(SLOT_WORD_AT(CACHE_MAX) + HIGH_HALF_AT <= UINT16_MAX,
               "ids fit the table of slices and the class table");

/* ---- access ---- */

static inline uintptr_t slot_page(unsigned slot)
{
    return space.base + ((uintptr_t)slot << SLOT_SHIFT);
}
static inline struct slot_head *slot_head(unsigned slot)
{
    return (struct slot_head *)slot_page(slot);
}
static inline struct slot_words *slot_words(unsigned slot, struct word_id id)
{
    return (struct slot_words *)(slot_page(slot) + id.at);
}

/* The half of the word that frees update. */
static inline uint32_t *slot_push_end(unsigned slot, struct push_id id)
{
    return (uint32_t *)(slot_page(slot) + id.at);
}

/* For spans of `slices` slices, 1 to SPAN_CACHE_LENGTHS. */
static inline _Atomic uint64_t *slot_span_cache(unsigned slot, uint32_t slices)
{
    return (_Atomic uint64_t *)(slot_page(slot) + SPAN_CACHE_AT) + (slices - 1);
}

/* By number of the cache. */
static inline uint32_t *slot_seen(unsigned slot)
{
    return (uint32_t *)(slot_page(slot) + SLOT_SEEN_AT);
}
static inline uint32_t *slot_rcu(unsigned slot)
{
    return (uint32_t *)(slot_page(slot) + SLOT_RCU_AT);
}

#endif
