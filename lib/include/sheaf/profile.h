/*
 * The profile area of a record: call stacks of sampled allocations, for `sheaf profile`, `sheaf leaks --growth`
 * and `sheaf serve`.
 *
 * Every allocation is sampled with a probability p that depends on its size, so that one sample is taken for each
 * `rate` bytes on average, and each sample stands for 1/p allocations, its *weight* (Horvitz and Thompson, 1952).
 * Large blocks of at least `rate` bytes are always sampled, with weight 1. For others p is 1 - exp(-size / mean).
 * `mean` is `rate` or, while the samples of a size class or of a stack cost too much time, a multiple of it that
 * applies to this class on one slot, or to this stack, alone.
 *
 * Samples are drawn in *strata*: one for each size class of malloc, one for large blocks below `rate`, and one for
 * large blocks that are always sampled. Each stack has an entry for each of its strata. What a stratum holds in all
 * is known without sampling (struct sheaf_profile_stratum), so a reader takes from the samples only how it is
 * shared out among the stacks: the ratio estimator of post-stratified sampling (Cochran, Sampling Techniques, 1977,
 * chapters 5A and 6). In the sums below, w is the weight of a sample and y its bytes as requested.
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
#define SHEAF_PROFILE_VERSION 2
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
    uint32_t on;            /* 1 while allocations are sampled */
    uint64_t sequence;      /* odd while the area is being written */
    uint64_t rate;          /* bytes, as asked for last */
    uint64_t start_ns;      /* CLOCK_REALTIME at which sampling was switched on for the first time */
    uint64_t now_ms;        /* time of the last change */
    uint64_t taken, freed;  /* samples */
    uint64_t lost_stacks;   /* samples whose stack did not fit into the table; they count in stack 0 */
    uint64_t lost_samples;  /* samples that the table of live ones had no room for: nothing else knows of them */
    uint64_t slowed;        /* samples that were taken at a multiple of `rate` */
    uint64_t strata_ms;     /* when the strata were counted last */
    uint64_t peak_bytes;    /* the largest sum of live bytes over all strata that was counted */
    uint64_t peak_ms;       /* when that was */
    uint64_t peak_epoch;    /* see struct sheaf_profile_stack */
    uint64_t pid_of_parent; /* in a forked child: what follows includes samples of this process; else 0 */
    uint32_t stacks_at, stacks_bytes, stacks_used; /* offset; bytes of the table; bytes of it in use */
    uint32_t stacks_count;
    uint32_t samples_at, samples_max, samples_used; /* offset; entries; no entry from here up was ever in use */
    uint32_t modules_at, modules_max, modules_used;
    uint32_t lifetimes_at;      /* double [SHEAF_PROFILE_SIZES][SHEAF_PROFILE_TIMES]: frees by size and lifetime */
    uint32_t strata_at, strata; /* offset; entries, the number of classes and two more */
    uint32_t names_at, names_bytes, names_used; /* offset; bytes of the table; bytes of it in use */
    uint32_t names_lost;                        /* times that the table had no room for a name */
    uint32_t strata_old; /* 1 if samples say that much has changed since the strata were counted */
};

/*
 * What a stratum holds, counted and not estimated. The last two are those of large blocks: first the blocks below
 * `rate`, and then those that are always sampled, whose stacks have exact sums. Bytes are those that the objects and
 * blocks take up: the size of the class, or whole slices.
 *
 * `before_...` is what was live when sampling was switched on last. Some of that may have been freed since, and no
 * sample stands for it, so the stacks share at least live - before and at most live. With SHEAF_PROFILE it is 0, and
 * in a forked child it stays what it was in the parent. Allocations are those since sampling was first switched on,
 * or since the fork; those of large blocks are 0, because a block that is resized in place is sampled anew and not
 * counted.
 */
struct sheaf_profile_stratum {
    uint64_t size; /* bytes of each object; 0 for large blocks */
    uint64_t live_count, live_bytes;
    uint64_t peak_count, peak_bytes; /* live at peak_ms */
    uint64_t before_count, before_bytes;
    uint64_t alloc_count, alloc_bytes;
};

/*
 * A call stack in one stratum. Entries follow each other without gaps from stacks_at on. The first ones have depth 0
 * and stand for all stacks of their stratum that are not known. `..._square` fields are sums of w*w: the effective
 * number of samples behind a sum of weights is its square divided by that (Kish, Survey Sampling, 1965).
 */
struct sheaf_profile_stack {
    uint32_t bytes; /* of this entry, a multiple of 8 */
    uint16_t depth; /* of pcs */
    uint16_t stratum;
    uint64_t hash;
    double alloc_count, alloc_bytes, alloc_square; /* sums of w, w*y and w*w of all samples since start_ns */
    double live_count, live_bytes, live_square;    /* of these, not freed yet */
    double live_wasted;                            /* sum of w * (bytes taken up - y), for live ones */
    double peak_count, peak_bytes,
        peak_square; /* live when the peak was counted, if peak_epoch is that of the area;
                        otherwise the stack has not changed since: live_... are the values */
    uint64_t peak_epoch;
    uint64_t samples, live_samples; /* raw numbers */
    uint64_t pcs[];                 /* return addresses, the innermost first: the caller of malloc */
};

/*
 * Functions of interpreted programs stand in stacks in place of the interpreter's function that runs them. Their
 * addresses have SHEAF_PROFILE_NAMED set, which no address of code has. The lowest bits are the line that runs (0:
 * not known), and the others the offset of the function's name from names_at, in units of 8 bytes.
 */
#define SHEAF_PROFILE_NAMED     (1ull << 63)
#define SHEAF_PROFILE_LINE_BITS 24

/* A function. Entries follow each other without gaps; the first one stands for all that had no room. */
struct sheaf_profile_name {
    uint32_t bytes; /* of this entry, a multiple of 8 */
    uint32_t hash;
    uint16_t function_bytes, file_bytes;
    char text[]; /* the qualified name and then the file in UTF-8, without a zero, truncated if they are long */
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
