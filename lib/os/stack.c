#include "os/stack.h"

#include <sys/auxv.h>
#include <unwind.h>

/*
 * The linker's bounds of this object, from its header to the end of its initialized data; both segments of code
 * lie between them.
 */
extern const char __ehdr_start[] hidden;
extern const char _edata[] hidden;

#define OWN_FRAMES 4 /* frames that are skipped at most if the allocator is linked into the program */

struct walk {
    uintptr_t *pcs;
    unsigned n, most, own;
    bool in_program;
};

static bool own_code(uintptr_t pc)
{
    return pc >= (uintptr_t)__ehdr_start && pc < (uintptr_t)_edata;
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t pc = _Unwind_GetIP(context);
    if (!pc)
        return _URC_END_OF_STACK;
    if (!walk->n && own_code(pc) && (!walk->in_program || walk->own < OWN_FRAMES)) {
        walk->own++;
        return _URC_NO_REASON;
    }
    walk->pcs[walk->n++] = pc;
    return walk->n < walk->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

_Atomic int stack_state;

static unsigned walk_frames(uintptr_t *pcs, unsigned most)
{
    struct walk walk = {.pcs = pcs, .most = most, .in_program = own_code(getauxval(AT_ENTRY))};
    _Unwind_Backtrace(step, &walk);
    return walk.n;
}

unsigned stack_walk(uintptr_t *pcs, unsigned most)
{
    if (likely(atomic_load_explicit(&stack_state, memory_order_relaxed) == STACK_READY))
        return walk_frames(pcs, most);
    int first = STACK_FIRST;
    if (!atomic_compare_exchange_strong(&stack_state, &first, STACK_NONE))
        return 0;
    unsigned n = walk_frames(pcs, most);
    atomic_store(&stack_state, STACK_READY);
    return n;
}

#ifdef SHEAF_CHECKING
static _Unwind_Reason_Code look_for_handler(struct _Unwind_Context *context, void *argument)
{
    int interrupted = 0; /* set by libgcc where the frame is that of interrupted code */
    _Unwind_GetIPInfo(context, &interrupted);
    *(bool *)argument |= interrupted;
    return interrupted ? _URC_END_OF_STACK : _URC_NO_REASON;
}

bool stack_in_handler(void)
{
    bool found = false;
    _Unwind_Backtrace(look_for_handler, &found);
    return found;
}
#endif
