/*
 * Debugged caches: what is known of each object, and the checks when it is handed out and taken back.
 *
 * A raw object of a debugged cache, in its slab:
 *
 *     lead: red zone      16 bytes, or the cache's alignment where that is more, so that objects stay aligned
 *     object              what the user gets; further in where the user asks for more alignment (malloc's caches)
 *     red zone            from the end of what was asked for to the end of the raw object: 16 bytes at least
 *
 * What is known stands in struct debug_object beside the memory, at a place that follows from the object's own: a
 * program that overwrites whole pages does not change who is told to have allocated them. The table is as long as the
 * region, address space reserved when the first cache is debugged, and costs 64 bytes for each object.
 *
 * No lock. One thread at a time changes an object and its record: state goes from LIVE or FREE to BUSY by
 * compare-and-swap, and back. Who only looks (validation) compares `version` before and after; it is odd meanwhile. A
 * signal handler works on other objects than the code that it interrupted, or finds them BUSY. In a forked child,
 * what other threads were changing stays BUSY for ever; nobody has it.
 */
#ifndef SHEAF_FEATURE_DEBUG_H
#define SHEAF_FEATURE_DEBUG_H

#include "cache/kmem_cache.h"

#define DEBUG_ZONE 16 /* least bytes of a red zone */

/* Bytes that nobody wrote on purpose; the values are the kernel's, whose users know them by sight. */
#define BYTE_FRESH     0x5a
#define BYTE_FREED     0x6b
#define BYTE_FREED_END 0xa5
#define BYTE_ZONE      0xcc
#define BYTE_ZONE_FREE 0xbb

struct track {
    uint32_t stack; /* of the depot; 0: not known */
    uint32_t thread;
    uint64_t time; /* ns, CLOCK_MONOTONIC; 0: never */
};

enum debug_state { OBJECT_NONE, OBJECT_FREE, OBJECT_BUSY, OBJECT_LIVE };

struct debug_object {
    _Atomic uint32_t state;   /* enum debug_state */
    _Atomic uint32_t version; /* odd while the memory is being changed by us */
    uint64_t size;            /* as asked for */
    uint64_t call;            /* the number of its allocation among all debugged ones */
    uint32_t offset;          /* of what the user has, in the raw object */
    uint32_t unused;
    struct track allocated, freed;
};
_Static_assert(sizeof(struct debug_object) == 64, "a slab of units holds no more objects than these fit into");

/* Where an object is; `record` is NULL where p lies behind the last object of its slab. */
struct debug_place {
    struct debug_object *record;
    char *raw;
};

/* Make debugging possible; false, and said so, when no address space is granted. */
bool debug_start(void);

/* The distance between objects of `object_size` bytes, and what else the cache's slabs must know. */
uint32_t debug_layout(struct kmem_cache *cache, uint32_t object_size, uint32_t align);

/* As detour_present(), detour_free() and detour_size(). */
void *debug_present(struct kmem_cache *cache, void *raw, size_t size, size_t align);
void *debug_free(struct kmem_cache *cache, void *object);
size_t debug_size(const struct kmem_cache *cache, const void *p);

/* p lies in a slab of the cache. */
struct debug_place debug_place(const struct kmem_cache *cache, const void *p);

/* The record of large blocks that start in the unit (malloc/large_debug.c). NULL: no memory for it. */
struct debug_object *debug_of_unit(uint32_t unit, bool writable);

void debug_track(struct track *track, slab_flags_t flags);
uint64_t debug_next_call(void);

/* Bytes at `at` that are not `byte`: from *first on, up to *end; false when there are none. */
bool debug_differs(const char *at, size_t length, int byte, size_t *first, size_t *end);

struct debug_report;
struct damage;

/* Look at an object as it is at one moment; true when something is wrong with it, and what. */
bool debug_check(const struct kmem_cache *cache, struct debug_place place, struct debug_report *report,
                 struct damage *damage);

/* Whether anything is debugged at all. */
bool debug_on(void);

/* At exit: validation and leaks, as the options say. */
void debug_at_exit(void);

#endif
