#define _GNU_SOURCE
#include "fiber.h"
#include "explore.h"

#include <pthread.h>
#include <unistd.h>

static struct fiber parked[THREADS_MOST];
static _Atomic unsigned parked_count;

#define BELOW 16384 /* of the stack's end: what the real thread uses itself */

static void *park(void *argument)
{
    struct fiber *fiber = argument;
    fiber->data = (uintptr_t)__builtin_thread_pointer();
    fiber->stack = (char *)__builtin_frame_address(0) - BELOW;
    parked_count++;
    for (;;)
        pause();
    return NULL;
}

void fibers_prepare(void)
{
    pthread_t made;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    for (unsigned i = 0; i < THREADS_MOST; i++)
        if (pthread_create(&made, &attributes, park, &parked[i]))
            explore_fail("explorer: no thread can be made");
    while (parked_count < THREADS_MOST)
        usleep(100);
}

struct fiber fiber_self(void)
{
    return (struct fiber){.data = (uintptr_t)__builtin_thread_pointer()};
}

void fiber_begin(struct fiber *fiber, unsigned n, void (*run)(void))
{
    uintptr_t top = (uintptr_t)parked[n].stack & ~15ul;
    void **stack = (void **)top;
    *--stack = NULL; /* where `run` would return to */
    *--stack = (void *)run;
    stack -= 6; /* the registers that fiber_switch() restores */
    *fiber = (struct fiber){.stack = stack, .data = parked[n].data};
}

/* Saves the registers that belong to the caller, and goes on as the other fiber. 158 is arch_prctl(), 0x1002 is
 * ARCH_SET_FS. */
__attribute__((naked)) void fiber_switch(struct fiber *from __attribute__((unused)),
                                         struct fiber *to __attribute__((unused)))
{
    __asm__("push %rbp\n\t"
            "push %rbx\n\t"
            "push %r12\n\t"
            "push %r13\n\t"
            "push %r14\n\t"
            "push %r15\n\t"
            "mov %rsp, (%rdi)\n\t"
            "mov (%rsi), %rsp\n\t"
            "mov 8(%rsi), %rsi\n\t"
            "mov $0x1002, %edi\n\t"
            "mov $158, %eax\n\t"
            "syscall\n\t"
            "pop %r15\n\t"
            "pop %r14\n\t"
            "pop %r13\n\t"
            "pop %r12\n\t"
            "pop %rbx\n\t"
            "pop %rbp\n\t"
            "ret");
}
