/*
 * The profile area of a record: call stacks of sampled allocations, for `sheaf profile`, `sheaf leaks` and `sheaf
 * serve`.
 *
 * Every allocation is sampled with a probability p that depends on its size, so that one sample is taken for each
 * `rate` bytes on average: p = 1 - exp(-size / mean). `mean` is `rate` or, while samples would cost too much time, a
 * multiple of it. Each sample stands for 1/p allocations, its *weight*, which makes the sums unbiased estimates of
 * the truth (Horvitz and Thompson, 1952). The variance of a sum of w*y is estimated by the sum of w*(w-1)*y*y over
 * its samples;
 * `..._variance` fields hold such sums for bytes.
 *
 * The area lies at `profile_offset` of the record and has `profile_size` bytes; the file may be shorter while nothing
 * was ever sampled. The process writes it under a lock and never reads it back. `sequence` is odd while anything but
 * the area's own counters changes; a reader copies the whole area and tries again if the number was odd or has
 * changed. It takes what it has after some tries: a process that was killed may leave an odd number and one torn
 * entry. All offsets below are from the start of the area, all times are in milliseconds since start_ns, and all
 * memory that was not written yet is zero.
 */
#ifndef SHEAF_PROFILE_H
#define SHEAF_PROFILE_H

#include <stdint.h>

#define SHEAF_PROFILE_MAGIC   "SHEAFPRO"
#define SHEAF_PROFILE_VERSION 1
#define SHEAF_PROFILE_BYTES   (16u << 20) /* of the area, holes included */

/*
 * The table of lifetimes: a row for sizes up to 16 << row bytes, and a column for lifetimes below 1 << column
 * milliseconds. The last row and the last column have everything beyond.
 */
#define SHEAF_PROFILE_SIZES 16
#define SHEAF_PROFILE_TIMES 24

struct sheaf_profile {
    char magic[8];
    uint32_t version;
    uint32_t on;           /* 1 while allocations are sampled */
    uint64_t sequence;     /* odd while the area is being written */
    uint64_t rate;         /* bytes, as asked for last */
    uint64_t start_ns;     /* CLOCK_REALTIME at which sampling was switched on for the first time */
    uint64_t now_ms;       /* time of the last change */
    uint64_t taken, freed; /* samples */
    uint64_t lost_stacks;  /* samples whose stack did not fit into the table; they count in stack 0 */
    uint64_t lost_samples; /* samples that the table of live ones had no room for: nothing else knows of them */
    uint64_t slowed;       /* samples that were taken at a multiple of `rate` */
    double live_count, live_bytes, live_variance; /* sums over all stacks */
    double alloc_count, alloc_bytes;              /* since start_ns */
    double peak_bytes;                            /* the largest live_bytes so far */
    uint64_t peak_ms;                             /* when that was */
    uint64_t peak_epoch;                          /* see struct sheaf_profile_stack */
    uint64_t pid_of_parent; /* in a forked child: what follows includes samples of this process; else 0 */
    uint32_t stacks_at, stacks_bytes, stacks_used; /* offset; bytes of the table; bytes of it in use */
    uint32_t stacks_count;
    uint32_t samples_at, samples_max, samples_used; /* offset; entries; no entry from here up was ever in use */
    uint32_t modules_at, modules_max, modules_used;
    uint32_t lifetimes_at; /* double [SHEAF_PROFILE_SIZES][SHEAF_PROFILE_TIMES]: frees by size and lifetime */
    uint32_t unused;
};

/* One call stack. Entries follow each other without gaps from stacks_at on; the first one has depth 0 and stands for
 * all stacks that are not known. */
struct sheaf_profile_stack {
    uint32_t bytes; /* of this entry, a multiple of 8 */
    uint32_t depth; /* of pcs */
    uint64_t hash;
    double alloc_count, alloc_bytes, alloc_variance; /* all allocations since start_ns, and bytes as requested */
    double live_count, live_bytes, live_variance;    /* of these, not freed yet */
    double live_wasted;                              /* bytes between the request and the object, for live ones */
    double peak_count, peak_bytes; /* live when live_bytes of the area was largest, if peak_epoch is that of the
                                      area; otherwise the stack has not changed since, and live_... are the values */
    uint64_t peak_epoch;
    uint64_t samples, live_samples; /* raw numbers */
    uint64_t pcs[];                 /* return addresses, the innermost first: the caller of malloc */
};

/* A sampled allocation that is live. */
struct sheaf_profile_sample {
    uint64_t address; /* 0: the entry is free */
    uint64_t size;    /* bytes requested */
    uint64_t room;    /* bytes that the object or block takes up */
    double weight;
    uint32_t time_ms;
    uint32_t stack; /* offset of its entry from stacks_at */
    uint32_t thread;
    uint32_t unused;
};

/* A program, library or vdso that addresses in stacks belong to. */
struct sheaf_profile_module {
    uint64_t start, end; /* of the mapped object */
    uint64_t bias;       /* address in memory = bias + address in the ELF file */
    uint8_t build_id[32];
    uint32_t build_id_bytes; /* 0: it has none */
    char path[300];          /* truncated from the left if longer; "" for the vdso */
};

#endif
