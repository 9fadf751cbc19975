/*
 * Debugged caches: the record of each object, and the checks when objects are allocated and freed.
 *
 * A raw object of a debugged cache, in its slab:
 *
 *     lead: red zone      16 bytes, or the cache's alignment if that is more, so that objects stay aligned
 *     object              what the user gets; further in if the user requests more alignment (malloc's caches)
 *     red zone            from the end of the requested size to the end of the raw object: 16 bytes at least
 *
 * The record, struct debug_object, lies beside the memory, at a place that follows from the object's address. So a
 * program that overwrites whole pages does not change what a report says about their allocation. The records lie
 * in the shadow of the region, address space that is reserved when the first cache is debugged, and take 64 bytes
 * for each object.
 *
 * There is no lock. One thread at a time changes an object and its record: it moves `state` from LIVE or FREE to
 * BUSY by compare-and-swap, and back afterwards. Validation, which only reads, compares `version` before and
 * after; it is odd during a change. A signal handler works on other objects than the code that it interrupted, or
 * finds them BUSY. In a forked child, objects that other threads were changing stay BUSY forever; no thread of the
 * child has them.
 */
#ifndef SHEAF_FEATURE_DEBUG_H
#define SHEAF_FEATURE_DEBUG_H

#include "cache/kmem_cache.h"

#define DEBUG_ZONE 16 /* least bytes of a red zone */

/* Fill patterns; the values are the kernel's, which its users recognize. */
#define BYTE_FRESH     0x5a
#define BYTE_FREED     0x6b
#define BYTE_FREED_END 0xa5
#define BYTE_ZONE      0xcc
#define BYTE_ZONE_FREE 0xbb

struct track {
    uint32_t stack; /* reference in the depot; 0: not known */
    uint32_t thread;
    uint64_t time; /* ns, CLOCK_MONOTONIC; 0: never */
};

enum debug_state { OBJECT_NONE, OBJECT_FREE, OBJECT_BUSY, OBJECT_LIVE };

struct debug_object {
    _Atomic uint32_t state;   /* enum debug_state */
    _Atomic uint32_t version; /* odd while the allocator changes the object */
    uint64_t size;            /* as requested */
    uint64_t call;            /* the number of its allocation, counted over all debugged caches */
    uint32_t offset;          /* of the user's object in the raw one */
    uint32_t unused;
    struct track allocated, freed;
};
_Static_assert(sizeof(struct debug_object) == 64, "a slab of slices holds no more objects than these fit into");

/* Where an object is. `record` is NULL if the address lies beyond the last object of its slab. */
struct debug_place {
    struct debug_object *record;
    char *raw;
};

/* Make debugging possible. Returns false, after a message, if the system refuses address space for the shadow. */
bool debug_start(void);

/* Prepare the cache's slabs for debugging. Returns the distance between objects of `object_size` bytes. */
uint32_t debug_layout(struct kmem_cache *cache, uint32_t object_size, uint32_t align);

/* The operations `present`, `free` and `usable` (cache/ops.h) of a debugged cache. Wrong pointers are reported. */
void *debug_present(struct kmem_cache *cache, void *raw, size_t size, size_t align);
void *debug_free(struct kmem_cache *cache, void *object);
size_t debug_size(const struct kmem_cache *cache, const void *p);

/* The object that p lies in. p must lie in a slab of the cache. */
struct debug_place debug_place(const struct kmem_cache *cache, const void *p);

/*
 * The first record of the slice: that of the large block (front/malloc/large_debug.c) or of the first object of the
 * slab that starts there. NULL if the shadow does not reach the slice or, with `writable`, if there is no memory for
 * the record.
 */
struct debug_object *debug_of_slice(uint32_t slice, bool writable);

void debug_track(struct track *track, slab_flags_t flags);
uint64_t debug_next_call(void);

/* Find bytes that are not `byte`: the first is at *first, and none is at *end or behind. Returns false if there
 * are none. */
bool debug_differs(const char *at, size_t length, int byte, size_t *first, size_t *end);

struct debug_report;
struct damage;

/* Check an object that other threads may be changing. Returns true, with *report and *damage set, if it is
 * damaged; false if it is not, or if it changed during the check. */
bool debug_check(const struct kmem_cache *cache, struct debug_place place, struct debug_report *report,
                 struct damage *damage);

/* Whether any cache or large blocks are debugged. */
bool debug_on(void);

/* At exit: validate all objects and report live ones, as the options say. Aborts after damage, unless debug_go_on is
 * set. */
void debug_at_exit(void);

#endif
