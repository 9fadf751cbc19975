/*
 * The control area of a record: how `sheaf trim`, `set`, `dump` and `profile` ask something of a running process.
 *
 * The record's header has `control_offset`, the place of struct sheaf_control; it begins a page. The client (one at a
 * time: it holds flock(LOCK_EX) on the record) stores one word, `request`: at once, or with an operation of 0 until
 * all other bytes are there. The process looks at it where slow paths look at the clock, does what is asked, and
 * writes `answer` last, equal to the request. Until then the results belong to an earlier request. Only the record's
 * owner and root can write to the file.
 *
 * A helper thread of the process may sleep on the word `bell`, which is a futex in a shared mapping (FUTEX_WAIT, not
 * FUTEX_WAIT_PRIVATE). While `waits` is not 0, a client stores any other value there after the request, and wakes the
 * thread by FUTEX_WAKE on its own mapping of the file. The request is then answered even if the program sleeps.
 *
 * The request holds everything in one word, so that it cannot be read half written:
 *
 *   bits 0 to 7     operation, enum sheaf_operation; 0: none
 *   bits 8 to 15    subject: which option, for SHEAF_SET
 *   bits 16 to 23   sequence: chosen by the client so that the word differs from `answer`
 *   bits 24 to 63   value
 *
 * The process copies the word once and checks it. It never reads the results, the window or the profile back, so that
 * nothing that is written to the file can harm it; and it touches the window and the profile area only after the
 * system has confirmed that the file has memory for them.
 */
#ifndef SHEAF_CONTROL_H
#define SHEAF_CONTROL_H

#include <stdint.h>

enum sheaf_operation {
    SHEAF_NOTHING = 0,
    SHEAF_FOLD = 1,    /* bring the record up to date, and the counts of a profile */
    SHEAF_TRIM = 2,    /* return free memory to the system. results[0]: bytes returned */
    SHEAF_SET = 3,     /* set the option `subject`, enum sheaf_settable, to `value` */
    SHEAF_PROFILE = 4, /* sample every `value` bytes on average (sheaf/profile.h); 0 stops sampling */
    SHEAF_MAP = 5,     /* write what lies in the units from `value` on into the window. results[0]: the first unit
                          described, [1]: units described, [2]: units of the region in all */
};

/* Options that may change while the process runs, by `subject`. Values have the unit of the option. */
enum sheaf_settable {
    SHEAF_SET_DECAY = 1,    /* milliseconds */
    SHEAF_SET_KEEP = 2,     /* bytes */
    SHEAF_SET_HELPER = 3,   /* 0: never, 1: always, 2: auto */
    SHEAF_SET_HUGE = 4,     /* 0 or 1 */
    SHEAF_SET_BARN_MAX = 5, /* bytes */
};

enum sheaf_status {
    SHEAF_DONE = 0,
    SHEAF_UNKNOWN = 1,   /* no such operation or option in this version */
    SHEAF_RANGE = 2,     /* the value is outside the option's bounds */
    SHEAF_NO_ROOM = 3,   /* the file is too small or its file system is full: the client has to extend it first */
    SHEAF_REFUSED = 4,   /* the configuration of the process forbids it; results[0] is an enum sheaf_refusal */
    SHEAF_NO_EFFECT = 5, /* with the other options of the process, the option has none; it stays as it is */
};

enum sheaf_refusal {
    SHEAF_IS_DEBUGGED = 1, /* all caches are debugged or hardened, so that nothing can be sampled */
    SHEAF_NO_MEMORY = 2,
};

struct sheaf_control {
    _Alignas(8) uint64_t request; /* written by the client alone */
    uint64_t answer;              /* the request that was answered last, stored after all that follows */
    uint64_t status;              /* enum sheaf_status */
    uint64_t results[8];
    uint64_t looks; /* how often the process has looked: tells a process that sleeps from one that is slow */
    uint32_t bell;  /* changed by clients and by the process before they wake the helper thread */
    uint32_t waits; /* 1 while there is a helper thread that clients can wake */

    /* When a client first found that the process had ended without closing its record, in nanoseconds since 1970; 0:
     * never. Written by clients, and never read by the process. */
    uint64_t found_ended_ns;
};

/*
 * The window for SHEAF_MAP, at `window_offset` of the file: one word for each unit of 64 KiB.
 *
 *   bits 0 to 3     enum sheaf_unit_kind
 *   bits 4 to 14    slabs: the index of the cache among the record's caches; SHEAF_UNIT_UNRECORDED if it has none
 *   bits 15 to 27   slabs: objects of the slab that are out of it, in this unit's slab as a whole, at most 8191
 *   bit 31          the first unit of its run
 */
enum sheaf_unit_kind {
    SHEAF_UNIT_UNMAPPED = 0, /* no memory: beyond what an arena uses */
    SHEAF_UNIT_RETURNED = 1, /* free, and returned to the system */
    SHEAF_UNIT_FREE = 2,     /* free, perhaps resident */
    SHEAF_UNIT_SLAB = 3,
    SHEAF_UNIT_LARGE = 4, /* a large block */
    SHEAF_UNIT_OTHER = 5, /* guards, stashes, the reserve of handlers, and runs that are about to change */
};
#define SHEAF_UNIT_UNRECORDED 2047 /* of a cache that only the program made: see cache_max in sheaf/record.h */
#define SHEAF_UNIT_OUT_MOST   8191
#define SHEAF_WINDOW_BYTES    (64u << 10)

#endif
