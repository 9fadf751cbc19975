/*
 * The record: the file in which a process under Sheaf keeps its counters.
 *
 * SHEAF_RECORD=DIR makes each process map DIR/<program>.<pid>.sheaf and count in it. The file may be read at any
 * moment, also after the process was killed. It describes itself: the names of all counters stand in it, so a
 * reader finds a value by name and skips what it does not know.
 *
 * Layout (native byte order, every offset from the start of the file):
 *
 *   struct sheaf_record_header                          at 0, header_size bytes
 *   names: NUL-terminated strings, one after another    at names_offset:
 *          first the counter_count counters, then the gauge_count gauges, then the process_count process values
 *   u64 process[process_count]                          at process_offset
 *   struct sheaf_record_cache caches[cache_max]         at caches_offset, cache_stride bytes apart
 *   slot s, cache c, counter k: u64                     at slots_offset + s*slot_stride + c*counter_stride + k*8
 *
 * The file is sparse: slots and caches that were never used are holes and read as zero. A cache entry whose name is
 * empty is not in use. All values are written with single 8-byte stores and only ever by the one process.
 *
 * What is exact: every slow-path event at once. Fast-path allocations and frees follow exactly from the word that the
 * fast path commits, and are brought into the file by slow paths of their cache and slot, at the latest after
 * `fold_interval` frees (for objects above 1 KiB, allocations). So until the process ends, the file may be behind by
 * that number per cache and slot for the one kind, and for the other by up to that number and what the slot's sheaves
 * hold. A restarted section counts once, because the word is all that it commits. Sums over slots are exact; which
 * slot an event of a slow path is counted in is where the thread ran when it counted, which may be the next one when
 * it was migrated.
 *
 * With several memory nodes a cache has an entry for each, of the same name; what is said of a cache is then their
 * sum.
 *
 * Per cache, from these values:
 *   in use     = inherited + sum over slots of (alloc_fastpath + alloc_slowpath + alloc_prefilled
 *                                               - free_fastpath - free_slowpath - free_rcu_done)
 *   in sheaves = objects - free_in_slabs - barn_objects - in use; of these
 *                reserve_objects lie in the standing reserve, and
 *                sum over slots of (prefill_objects - prefill_returned - alloc_prefilled) in prefilled sheaves,
 * unless the process was forked off with some
 *
 * Per process, in bytes, with the sums over all caches of objects times `size`:
 *   live   = in use + large_bytes + outside_bytes
 *   slabs  = slabs * slab_size - (objects - free_in_slabs) * size: free in slabs, behind their last objects included
 *   region = warm_bytes - stash_bytes: free runs that may be resident
 *   in use + in sheaves + in barns + slabs = slab_bytes
 * The last line holds exactly after the end, and while the process is in no slow path (typesafe slabs that wait for a
 * grace period apart, which no cache counts any more). A reader that comes in the midst of slow paths finds values of
 * slightly different moments. What lags behind, as said above, moves objects between `in use` and `in sheaves` of one
 * cache and leaves their sum. Blocks that come from a stash and go there again publish nothing themselves:
 * large_bytes and stash_bytes, which change together, may be behind by them until the next slow path. purged_bytes of
 * a forked child begins with what its parent had given back.
 */
#ifndef SHEAF_RECORD_H
#define SHEAF_RECORD_H

#include <stdint.h>

#define SHEAF_RECORD_MAGIC      "SHEAFREC"
#define SHEAF_RECORD_VERSION    1
#define SHEAF_RECORD_NODE_SHIFT 16

/* How a process reaches its slots; `mode` in the header. */
enum sheaf_mode {
    SHEAF_MODE_LOCK = 0,        /* no rseq: each slot behind a lock */
    SHEAF_MODE_RSEQ_MM_CID = 1, /* libc's rseq area, slots are concurrency ids */
    SHEAF_MODE_RSEQ_CPU_ID = 2, /* libc's rseq area, slots are CPU numbers */
    SHEAF_MODE_RSEQ_OWN = 3,    /* rseq registered by Sheaf, slots are CPU numbers */
};

enum sheaf_record_state {
    SHEAF_RECORD_RUNNING = 1,
    SHEAF_RECORD_ENDED = 2, /* exit() was reached; a process that was killed or called exec stays RUNNING */
};

struct sheaf_record_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size;
    uint64_t file_size;
    uint32_t counter_count;  /* per slot and cache */
    uint32_t counter_stride; /* bytes */
    uint32_t gauge_count;    /* per cache */
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
    uint32_t fold_interval; /* operations */
    uint32_t page_size;     /* bytes */
    uint64_t peak_rss;      /* bytes, of this program alone, written at ENDED */
    char mode_name[16];     /* "rseq mm_cid", "rseq cpu_id", "rseq own", "lock" */
    char sheaf_version[32];
    char program[128]; /* base name of the executed file, cut to fit */
    char kernel[128];  /* uname: release and machine */
};

struct sheaf_record_cache {
    char name[32];
    uint32_t id;
    uint32_t object_size;  /* bytes, as asked at creation */
    uint32_t size;         /* bytes from one object to the next */
    uint32_t align;        /* bytes */
    uint32_t slab_size;    /* bytes */
    uint32_t slab_objects; /* objects in one slab */
    uint32_t capacity;     /* the largest sheaf, in objects */
    uint32_t flags;        /* bit 0: a size class of malloc; from bit 16: one more than its memory node, 0 for none */
    uint64_t gauges[24];   /* gauge_count are in use */
};

#endif
