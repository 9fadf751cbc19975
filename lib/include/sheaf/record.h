/*
 * The record: a file in which a process with Sheaf keeps its counters.
 *
 * With SHEAF_RECORD=DIR each process maps DIR/<program>.<pid>.sheaf and counts in it. The file may be read at any
 * time, even after the process was killed. It describes itself: it contains the names of all counters, so that a
 * reader finds values by name and skips what it does not know.
 *
 * Layout (native byte order; all offsets are from the start of the file):
 *
 *   struct sheaf_record_header                          at 0, header_size bytes
 *   names: NUL-terminated strings, one after another    at names_offset:
 *          first the counter_count counters, then the gauge_count gauges, then the process_count process values
 *   u64 process[process_count]                          at process_offset
 *   struct sheaf_record_cache caches[cache_max]         at caches_offset, cache_stride bytes apart
 *   slot s, cache c, counter k: u64                     at slots_offset + s*slot_stride + c*counter_stride + k*8
 *
 * The file is sparse: slots and caches that were never used are holes and read as zero. The entry of a cache is
 * not in use if its name is empty. All values are written with single 8-byte stores, and only by the process
 * itself.
 *
 * Accuracy: events of slow paths are counted at once. Fast allocations and frees follow exactly from the word that
 * the fast path commits; slow paths of the same cache and slot add them to the file, at the latest after
 * `fold_interval` frees (for objects above 1 KiB: allocations). Until the process ends, the counts of a cache and
 * slot may therefore lag behind: those of frees (above 1 KiB: of allocations) by up to that number, those of the
 * other operation by up to that number plus the objects in the slot's sheaves. A restarted section counts once,
 * because it commits the word only once. Sums over slots are exact. A slow path counts in the slot where the
 * thread runs at that moment, which may differ from where it began if the thread migrated.
 *
 * With several memory nodes a cache has an entry for each node, all with the same name. The values of the cache
 * are the sums over these entries.
 *
 * For each cache these values give:
 *   in use     = inherited + sum over slots of (alloc_fastpath + alloc_slowpath + alloc_prefilled
 *                                               - free_fastpath - free_slowpath - free_rcu_done)
 *   in sheaves = objects - free_in_slabs - barn_objects - in use; of these
 *                reserve_objects are in the standing reserve, and
 *                sum over slots of (prefill_objects - prefill_returned - alloc_prefilled) in prefilled sheaves,
 *                unless the process inherited some of them from fork
 *
 * For each process, in bytes, with sums over all caches of objects times `size`:
 *   live   = in use + large_bytes + outside_bytes
 *   slabs  = slabs * slab_size - (objects - free_in_slabs) * size: free in slabs, and unused at the ends of slabs
 *   region = warm_bytes - stash_bytes: free runs that may be resident
 *   in use + in sheaves + in barns + slabs = slab_bytes
 * The last line holds exactly after the end, and while no thread of the process is in a slow path, except that no
 * cache counts typesafe slabs which wait for a grace period. While slow paths run, a reader sees values of
 * slightly different moments. Values that lag behind, as described above, shift objects between `in use` and `in
 * sheaves` of one cache and keep their sum. Blocks that come from a stash and return to it publish nothing:
 * large_bytes and stash_bytes, which change together, may lag behind until the next slow path. In a forked child
 * purged_bytes starts with the value of its parent.
 */
#ifndef SHEAF_RECORD_H
#define SHEAF_RECORD_H

#include <stdint.h>

#define SHEAF_RECORD_MAGIC      "SHEAFREC"
#define SHEAF_RECORD_VERSION    1
#define SHEAF_RECORD_NODE_SHIFT 16

/* How a process reaches its slots; the `mode` of the header. */
enum sheaf_mode {
    SHEAF_MODE_LOCK = 0,        /* no rseq: each slot has a lock */
    SHEAF_MODE_RSEQ_MM_CID = 1, /* libc's rseq area, slots are concurrency ids */
    SHEAF_MODE_RSEQ_CPU_ID = 2, /* libc's rseq area, slots are CPU numbers */
    SHEAF_MODE_RSEQ_OWN = 3,    /* rseq registered by Sheaf, slots are CPU numbers */
};

enum sheaf_record_state {
    SHEAF_RECORD_RUNNING = 1,
    SHEAF_RECORD_ENDED = 2, /* exit() was called; a process that was killed or replaced by exec stays RUNNING */
};

struct sheaf_record_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size;
    uint64_t file_size;
    uint32_t counter_count;  /* counters for each slot and cache */
    uint32_t counter_stride; /* bytes */
    uint32_t gauge_count;    /* gauges for each cache */
    uint32_t process_count;
    uint32_t cache_max;
    uint32_t cache_stride; /* bytes */
    uint32_t slot_max;
    uint32_t slot_stride; /* bytes */
    uint64_t names_offset;
    uint64_t process_offset;
    uint64_t caches_offset;
    uint64_t slots_offset;
    uint32_t pid;
    uint32_t parent_pid;
    uint64_t start_time_ns; /* CLOCK_REALTIME */
    uint64_t end_time_ns;   /* 0 until ENDED */
    uint32_t mode;          /* enum sheaf_mode */
    uint32_t state;         /* enum sheaf_record_state */
    uint32_t fold_interval; /* operations; see "Accuracy" above */
    uint32_t page_size;     /* bytes */
    uint64_t peak_rss;      /* bytes, of this program alone, written at the end */
    char mode_name[16];     /* "rseq mm_cid", "rseq cpu_id", "rseq own", "lock" */
    char sheaf_version[32];
    char program[128]; /* base name of the executed file, truncated */
    char kernel[128];  /* uname: release and machine */
};

struct sheaf_record_cache {
    char name[32];
    uint32_t id;
    uint32_t object_size;  /* bytes, as requested at creation */
    uint32_t size;         /* bytes from one object to the next */
    uint32_t align;        /* bytes */
    uint32_t slab_size;    /* bytes */
    uint32_t slab_objects; /* objects in one slab */
    uint32_t capacity;     /* the largest sheaf, in objects */
    uint32_t flags;        /* bit 0: a size class of malloc; from bit 16: one more than its memory node, or 0 */
    uint64_t gauges[24];   /* the first gauge_count are in use */
};

#endif
