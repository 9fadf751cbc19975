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
    SHEAF_MAP = 5,     /* write what lies in the slices from `value` on into the window. results[0]: the first slice
                          described, [1]: slices described, [2]: slices of the region in all */
    SHEAF_LEAKS = 6,   /* make a copy of the process, with a table of `value` words (struct sheaf_leaks, below); if
                          `subject` is 0, only while no other thread holds a lock of the allocator.
                          results[0]: the address of that structure, [1]: its size */
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
    SHEAF_NO_COPY = 3,    /* the system refuses a process; results[1] is the error number */
    SHEAF_IN_SANDBOX = 4, /* the program has installed a seccomp filter, which may end it for making a copy */
    SHEAF_NOT_HELPER = 5, /* a thread of the program took the request, so the threads are not stopped */
    SHEAF_HAS_COPY = 6,   /* an earlier copy still exists */
    SHEAF_IS_BUSY = 7,    /* a stopped thread holds a lock of the allocator */
};

struct sheaf_control {
    _Alignas(8) uint64_t request; /* written by the client alone */
    uint64_t answer;              /* the request that was answered last, stored after all that follows */
    uint64_t status;              /* enum sheaf_status */
    uint64_t results[8];
    uint64_t looks; /* how often the process has looked: tells a process that sleeps from one that is slow */
    uint32_t bell;  /* changed by clients and by the process before they wake the helper thread */
    uint32_t waits; /* the number of the helper thread in its PID namespace; 0: there is none that could be woken */

    /* When a client first found that the process had ended without closing its record, in nanoseconds since 1970; 0:
     * never. Written by clients, and never read by the process. */
    uint64_t found_ended_ns;
};

/*
 * The window for SHEAF_MAP, at `window_offset` of the file: one word for each slice of 64 KiB.
 *
 *   bits 0 to 3     enum sheaf_slice_kind
 *   bits 4 to 14    slabs: the index of the cache among the record's caches; SHEAF_SLICE_UNRECORDED if it has none
 *   bits 15 to 27   slabs: objects of the slab that are out of it, in this slice's slab as a whole, at most 8191
 *   bit 31          the first slice of its span
 */
enum sheaf_slice_kind {
    SHEAF_SLICE_UNMAPPED = 0, /* no memory: beyond what an arena uses */
    SHEAF_SLICE_RETURNED = 1, /* free, and returned to the system */
    SHEAF_SLICE_FREE = 2,     /* free, perhaps resident */
    SHEAF_SLICE_SLAB = 3,
    SHEAF_SLICE_LARGE = 4, /* a large block */
    SHEAF_SLICE_OTHER = 5, /* guards, span caches, the reserve of handlers, and spans that are about to change */
};
#define SHEAF_SLICE_UNRECORDED 2047 /* of a cache that only the program made: see cache_max in sheaf/record.h */
#define SHEAF_SLICE_OUT_MOST   8191
#define SHEAF_WINDOW_BYTES     (64u << 10)

/*
 * The search for lost blocks (SHEAF_LEAKS). The client stops all threads but the helper by ptrace, reads their
 * registers, and makes the request. The helper copies the process, as fork() does but for handlers of fork and
 * SIGCHLD. The client traces the helper, so the copy is stopped before its first step, and the program goes on. In
 * the copy, the client fills the table, sets `begun`, and has it go on; a copy without `begun` ends at once. The
 * result is there when the copy is about to end (PTRACE_EVENT_EXIT).
 *
 * Blocks that a thread holds in a form that is not recognized (between two steps of an allocation, for example) seem
 * to be lost. So a client asks twice: the first copy lists what seems to be lost, and in the second one only what was
 * in that list counts. What is really lost stays lost.
 *
 * The table: for each thread its thread pointer and the lowest address of its stack that is in use; then words, such
 * as the contents of registers; then the list of the first copy.
 */
enum sheaf_leaks_status {
    SHEAF_LEAKS_UNFINISHED = 0,
    SHEAF_LEAKS_DONE = 1,
    SHEAF_LEAKS_NO_PROC = 2, /* /proc cannot be read */
    SHEAF_LEAKS_NO_MEMORY = 3,
};

struct sheaf_leaks {
    uint64_t table; /* its address, set by the process */

    /* Set by the client: */
    uint64_t begun;
    uint64_t threads, words, listed; /* parts of the table: pairs, words, and addresses of blocks */
    uint64_t running;                /* threads that were not stopped */
    uint64_t second;                 /* 0: list the blocks; 1: report. Set by the copy if the list is empty */

    /* Set by the copy: */
    uint64_t status;        /* enum sheaf_leaks_status */
    uint64_t result, bytes; /* address and size: the list, one word for each block, or the text of the report */
};

#endif
