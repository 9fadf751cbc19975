/*
 * A simulated system for tests of single layers. It stands in for lib/platform/os/vm.c, cpu.c, numa.c, random.c,
 * stack.c and the clock. Memory is really mapped, so that the layers work on it, but each call is logged, and each
 * can be refused.
 */
#ifndef SHEAF_TESTS_LAYER_OS_H
#define SHEAF_TESTS_LAYER_OS_H

#include "platform/os/compiler.h"

enum os_call {
    OS_MAP,             /* vm_map() */
    OS_UNMAP,           /* vm_unmap() */
    OS_EXTEND,          /* vm_extend() */
    OS_EXTEND_READABLE, /* vm_extend_readable() */
    OS_GRANTS,          /* vm_grants() */
    OS_COMMIT,          /* vm_commit() */
    OS_RESIZE,          /* vm_resize() */
    OS_DISCARD,         /* vm_discard() */
    OS_CLOSE,           /* vm_close() */
    OS_OPEN,            /* vm_open() */
    OS_HUGE,            /* vm_advise_huge() for huge pages */
    OS_PLAIN,           /* vm_advise_huge() against them */
    OS_PLACE,           /* numa_place() */
    OS_INTERLEAVE,      /* numa_interleave() */
    OS_CALLS,
};

/* One call in the log. */
struct os_entry {
    enum os_call call;
    bool done; /* false: it was refused */
    uintptr_t at;
    size_t size;
    unsigned node; /* of OS_PLACE */
};

/* Refuse `times` calls, beginning with the nth from now; 1 is the next one. */
#define OS_ALWAYS UINT32_MAX
void os_refuse(enum os_call call, unsigned nth, unsigned times);

/* Grant all calls from now on. */
void os_grant(void);

/* Empty the log. */
void os_clear(void);

/* How many calls of that kind are in the log, and the first, second ... of them; a call that is not there fails the
 * test. */
unsigned os_count(enum os_call call);
const struct os_entry *os_entry(enum os_call call, unsigned index);

/* Whether a call of that kind in the log covered the whole range. */
bool os_covered(enum os_call call, const void *at, size_t size);

/* Map a range as the rest of the program might, and write the pattern that os_intact() looks for. */
void os_block(void *at, size_t size);
bool os_intact(const void *at, size_t size);

/* Called before each call of these kinds is decided: OS_EXTEND, OS_EXTEND_READABLE, OS_DISCARD. */
extern void (*os_hook)(enum os_call call, void *at, size_t size);

extern size_t os_page;           /* bytes: the machine's, or a larger page that $LAYER_PAGE says */
extern size_t os_mapped;         /* bytes that the layers have mapped */
extern size_t os_room;           /* bytes that they may still map */
extern size_t os_limit;          /* RLIMIT_AS */
extern uint64_t os_memory;       /* bytes of the machine */
extern bool os_overcommit_off;   /* whether vm.overcommit_memory is 2 */
extern bool os_stages;           /* whether memory is granted readable that is refused writable */
extern bool os_quiet;            /* whether nothing is logged, for tests that make more calls than the log holds */
extern uint32_t os_now_ms;       /* the coarse clock */
extern unsigned os_cpu, os_cpus; /* the current CPU, and how many there are */
extern unsigned os_llc_cpus;     /* so many CPUs share a cache */
extern uintptr_t os_stack[16];   /* the call stack that stack_walk() finds */
extern unsigned os_stack_depth;

#endif
