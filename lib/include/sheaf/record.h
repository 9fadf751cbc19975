/*
 * The record: a file in which a process with Sheaf keeps its counters.
 *
 * With SHEAF_RECORD=DIR each process maps DIR/<program>.<pid>.sheaf and counts in it. The file may be read at any
 * time, even after the process was killed. It describes itself: it contains a text that names all fields, counters
 * and sums, so that a reader finds values by name and skips what it does not know.
 *
 * Layout (native byte order; all offsets are from the start of the file):
 *
 *   struct sheaf_record_header                          at 0
 *   text                                                at text_offset, up to checked_size
 *   u64 value[]                                         at values_offset
 *   struct sheaf_record_cache caches[cache_max]         at caches_offset, cache_stride bytes apart
 *   slot s, cache c, counter k: u64                     at slots_offset + s*slot_stride + c*counter_stride + k*8
 *   the control area and its window (sheaf/control.h)   at control_offset, window_offset
 *   the profile area (sheaf/profile.h)                  at profile_offset, at or beyond the end of the file
 *
 * The positions of the first five fields of the header are the same in every version. The header and the text are
 * constant once `magic` is there. The checksum of the header is that of the bytes from SHEAF_RECORD_CHECKED_FROM to
 * checked_size. The checksum of an entry of `caches` is that of the bytes of the entry before it, which are constant
 * while the cache exists. Both are CRC-32 as zlib computes it. Values, gauges and counters have no checksum, because
 * they change all the time.
 *
 * Each line of the text ends with a newline and describes one thing. A NAME consists of letters, digits and `_`. TYPE
 * is char, uint32_t or uint64_t. Only arrays have [N].
 *
 *   header TYPE NAME[N]     a field of the header; the fields follow each other without gaps
 *   entry TYPE NAME[N]      the same for an entry of `caches`
 *   counter NAME            a counter of each cache and slot; the first is k = 0
 *   gauge NAME              a gauge of each cache; the first is gauges[0]
 *   value NAME              a value of the process; the first is value[0]
 *   cache NAME = SUM        a value that follows from these for each cache
 *   process NAME = SUM      a value that follows from these for the process
 *
 * SUM adds and subtracts products of names, as in `a * b - c`. In it a counter stands for its sum over all slots, an
 * unknown name for 0, and a negative result counts as 0. lib/cache/slot/counters.def explains all counters and sums.
 *
 * The file has file_size bytes at the start. A client that wants samples extends it to profile_offset + profile_size,
 * and never shortens it, because the process would then be killed by SIGBUS. Readers must accept both sizes.
 *
 * The file has room for cache_max caches, which are all of malloc's on all memory nodes, and for slot_max slots,
 * which are those of the CPUs that were online when the process started. Slots of CPUs that are brought online later
 * count in memory only. The file is sparse: slots and caches that were never used are holes and read as zero. The
 * entry of a cache is not in use if its name is empty. All values are written with single 8-byte stores, and only by
 * the process itself. end_time_ns is 0 while the process runs; it stays 0 if the process was killed, called _exit, or
 * executed another program. It was then alive at alive_time_ns, and not alive_interval_ns later, unless that is 0 or
 * the process was stopped. `pid`, `process_start`, `pid_namespace` and `boot_id` together identify the process, which
 * keeps them when it executes another program. A reader can therefore tell an exec from an end: the process still
 * runs but does not map the file, or there is a later record of the same process. The last three are 0 or empty where
 * /proc could not be read.
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
 * The sums in bytes account for all memory of slabs:
 *   in_use_bytes + in_sheaves_bytes + in_barns_bytes + in_slabs_bytes, over all caches, = slab_bytes
 * This holds exactly after the end, and while no thread of the process is in a slow path, except that no cache
 * counts typesafe slabs which wait for a grace period. While slow paths run, a reader sees values of slightly
 * different moments. Values that lag behind, as described above, shift objects between in_use and in_sheaves of one
 * cache and keep their sum. Blocks that come from a span cache and return to it publish nothing: large_bytes and
 * span_cache_bytes, which change together, may lag behind until the next slow path. In a forked child purged_bytes
 * starts with the value of its parent.
 */
#ifndef SHEAF_RECORD_H
#define SHEAF_RECORD_H

#include <stdint.h>

#define SHEAF_RECORD_MAGIC        "SHEAFREC"
#define SHEAF_RECORD_VERSION      2
#define SHEAF_RECORD_CHECKED_FROM 16
#define SHEAF_RECORD_NODE_SHIFT   16

/* How a process reaches its slots; the `mode` of the header. */
enum sheaf_mode {
    SHEAF_MODE_LOCK = 0,        /* no rseq: each slot has a lock */
    SHEAF_MODE_RSEQ_MM_CID = 1, /* libc's rseq area, slots are concurrency ids */
    SHEAF_MODE_RSEQ_CPU_ID = 2, /* libc's rseq area, slots are CPU numbers */
    SHEAF_MODE_RSEQ_OWN = 3,    /* rseq registered by Sheaf, slots by mm_cid if the kernel has it */
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
    X(uint32_t, fold_interval, ) /* operations; see "Accuracy" */                                                    \
    X(uint32_t, mode, )          /* enum sheaf_mode */                                                               \
    X(uint32_t, page_size, )                                                                                         \
    X(uint32_t, pid, )                                                                                               \
    X(uint32_t, parent_pid, )                                                                                        \
    X(uint64_t, start_time_ns, ) /* CLOCK_REALTIME */                                                                \
    X(char, mode_name, [16])     /* "rseq mm_cid", "rseq cpu_id", "rseq own", "lock" */                              \
    X(char, sheaf_version, [32])                                                                                     \
    X(char, program, [128])       /* base name of the executed file, truncated */                                    \
    X(char, kernel, [128])        /* uname: release and machine */                                                   \
    X(uint64_t, process_start, )  /* clock ticks since boot, field 22 of /proc/PID/stat; exec does not change it */  \
    X(uint64_t, pid_namespace, )  /* inode number of /proc/PID/ns/pid; `pid` is a number in this namespace */        \
    X(char, boot_id, [40])        /* /proc/sys/kernel/random/boot_id */                                              \
    X(uint64_t, control_offset, ) /* struct sheaf_control (sheaf/control.h) */                                       \
    X(uint64_t, window_offset, )  /* SHEAF_WINDOW_BYTES for SHEAF_MAP */                                             \
    X(uint64_t, profile_offset, ) /* struct sheaf_profile (sheaf/profile.h); 0: there is no room for it */           \
    X(uint64_t, profile_size, )

#define SHEAF_RECORD_CACHE(X)                                                                                        \
    X(char, name, [32])                                                                                              \
    X(uint32_t, object_size, )  /* bytes, as requested at creation */                                                \
    X(uint32_t, size, )         /* bytes from one object to the next */                                              \
    X(uint32_t, align, )        /* bytes */                                                                          \
    X(uint32_t, slab_size, )    /* bytes */                                                                          \
    X(uint32_t, slab_objects, ) /* objects in one slab */                                                            \
    X(uint32_t, capacity, )     /* the largest sheaf, in objects */                                                  \
    X(uint32_t, flags, )        /* bit 0: a size class of malloc; from bit 16: its memory node + 1, or 0 */          \
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
