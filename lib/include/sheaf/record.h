/*
 * The record: the file in which a process under Sheaf keeps its counters.
 *
 * SHEAF_RECORD=DIR makes each process map DIR/<program>.<pid>.sheaf and count in it. The file may be read at any
 * moment, also after the process was killed. It describes itself: a text in it names all fields, counters and sums,
 * so that a reader finds a value by name, skips names that it does not know, and does no arithmetic of its own.
 *
 * Layout (native byte order, every offset from the start of the file):
 *
 *   struct sheaf_record_header                          at 0
 *   text                                                at text_offset, to checked_size
 *   u64 value[]                                         at values_offset
 *   struct sheaf_record_cache caches[cache_max]         at caches_offset, cache_stride bytes apart
 *   slot s, cache c, counter k: u64                     at slots_offset + s*slot_stride + c*counter_stride + k*8
 *
 * Only the first five fields of the header have a place that never changes. The bytes before values_offset are
 * constant once `magic` is there; the checksum of the header is that of the bytes from CHECKED_FROM to checked_size.
 * An entry's checksum is that of the bytes of the entry before it, which are constant while the cache exists. Both
 * are CRC-32 as zlib computes it. Values, gauges and counters change all the time and have no checksum.
 *
 * The text has one line for each thing, ended by a newline. Names are letters, digits and `_`. TYPE is char, uint32_t
 * or uint64_t, and [N] only stands at arrays.
 *
 *   header TYPE NAME[N]     a field of the header, in the order of the file and without gaps
 *   entry TYPE NAME[N]      the same, of an entry of `caches`
 *   counter NAME            per cache and slot; the first is k = 0
 *   gauge NAME              per cache; the first is gauges[0]
 *   value NAME              per process; the first is value[0]
 *   cache NAME = SUM        what follows from them for each cache
 *   process NAME = SUM      what follows from them for the process
 *
 * A SUM consists of products of names, as in `a * b - c`. A counter stands for its sum over all slots, a name that is
 * not there for 0, and a negative result for 0. lib/slot/counters.def explains all counters and sums.
 *
 * The file is sparse: slots and caches that were never used are holes and read as zero. A cache entry whose name is
 * empty is not in use. All values are written with single 8-byte stores and only ever by the one process. A process
 * whose `end_time_ns` is 0 still runs, was killed, or called exec.
 *
 * What is exact: every slow-path event at once. Fast-path allocations and frees follow exactly from the word that the
 * fast path commits, and are brought into the file by slow paths of their cache and slot, at the latest after
 * `fold_interval` frees (for objects above 1 KiB, allocations). So until the process ends, the file may be behind by
 * that number per cache and slot for the one kind, and for the other by up to that number and what the slot's sheaves
 * hold. A restarted section counts once, because the word is all that it commits. Sums over slots are exact; an event
 * of a slow path is counted in the slot where the thread ran when it counted, which may be another one after a
 * migration.
 *
 * With several memory nodes a cache has an entry for each, of the same name. Its values are then the sum over them.
 *
 * The sums in bytes account for all memory:
 *   in_use_bytes + in_sheaves_bytes + in_barns_bytes + in_slabs_bytes, over all caches, = slab_bytes
 * This holds exactly after the end, and while the process is in no slow path, except for typesafe slabs that wait for
 * a grace period, which no cache counts any more. A reader that comes in the midst of slow paths finds values of
 * slightly different moments. What lags behind, as said above, moves objects between in_use and in_sheaves of one
 * cache and leaves their sum. Blocks that come from a stash and go there again publish nothing themselves:
 * large_bytes and stash_bytes, which change together, may be behind by them until the next slow path. purged_bytes of
 * a forked child begins with what its parent had returned to the system.
 */
#ifndef SHEAF_RECORD_H
#define SHEAF_RECORD_H

#include <stdint.h>

#define SHEAF_RECORD_MAGIC        "SHEAFREC"
#define SHEAF_RECORD_VERSION      2
#define SHEAF_RECORD_CHECKED_FROM 16
#define SHEAF_RECORD_NODE_SHIFT   16

/* How a process reaches its slots; `mode` in the header. */
enum sheaf_mode {
    SHEAF_MODE_LOCK = 0,        /* no rseq: each slot behind a lock */
    SHEAF_MODE_RSEQ_MM_CID = 1, /* libc's rseq area, slots are concurrency ids */
    SHEAF_MODE_RSEQ_CPU_ID = 2, /* libc's rseq area, slots are CPU numbers */
    SHEAF_MODE_RSEQ_OWN = 3,    /* rseq registered by Sheaf, slots are CPU numbers */
};

/* X(type, name, array). The structures, and the lines of the text that describe them, are made from these lists. */
#define SHEAF_RECORD_HEADER(X)                                                                                       \
    X(char, magic, [8])                                                                                              \
    X(uint32_t, version, )                                                                                           \
    X(uint32_t, checksum, )                                                                                          \
    X(uint32_t, checked_size, )                                                                                      \
    X(uint32_t, text_offset, )                                                                                       \
    X(uint64_t, file_size, )                                                                                         \
    X(uint64_t, values_offset, )                                                                                     \
    X(uint64_t, caches_offset, )                                                                                     \
    X(uint64_t, slots_offset, )                                                                                      \
    X(uint32_t, cache_max, )                                                                                         \
    X(uint32_t, cache_stride, )                                                                                      \
    X(uint32_t, slot_max, )                                                                                          \
    X(uint32_t, slot_stride, )                                                                                       \
    X(uint32_t, counter_stride, )                                                                                    \
    X(uint32_t, fold_interval, ) /* operations */                                                                    \
    X(uint32_t, mode, )          /* enum sheaf_mode */                                                               \
    X(uint32_t, page_size, )                                                                                         \
    X(uint32_t, pid, )                                                                                               \
    X(uint32_t, parent_pid, )                                                                                        \
    X(uint64_t, start_time_ns, ) /* CLOCK_REALTIME */                                                                \
    X(char, mode_name, [16])     /* "rseq mm_cid", "rseq cpu_id", "rseq own", "lock" */                              \
    X(char, sheaf_version, [32])                                                                                     \
    X(char, program, [128]) /* base name of the executed file, cut to fit */                                         \
    X(char, kernel, [128])  /* uname: release and machine */

#define SHEAF_RECORD_CACHE(X)                                                                                        \
    X(char, name, [32])                                                                                              \
    X(uint32_t, object_size, )  /* bytes, as requested at creation */                                                \
    X(uint32_t, size, )         /* bytes from one object to the next */                                              \
    X(uint32_t, align, )        /* bytes */                                                                          \
    X(uint32_t, slab_size, )    /* bytes */                                                                          \
    X(uint32_t, slab_objects, ) /* objects in one slab */                                                            \
    X(uint32_t, capacity, )     /* the largest sheaf, in objects */                                                  \
    X(uint32_t, flags, )        /* bit 0: a size class of malloc; from bit 16: its memory node + 1, 0 for none */    \
    X(uint32_t, checksum, )                                                                                          \
    X(uint64_t, gauges, [24])

#define SHEAF_RECORD_FIELD(type, name, array) type name array;
struct sheaf_record_header {
    SHEAF_RECORD_HEADER(SHEAF_RECORD_FIELD)
};
struct sheaf_record_cache {
    SHEAF_RECORD_CACHE(SHEAF_RECORD_FIELD)
};
#undef SHEAF_RECORD_FIELD

#endif
