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

#if STACK_HAS_PLACES

struct placing {
    struct stack_places *places;
    uintptr_t frame;
    unsigned most;
    bool known;
};

/* The canonical frame address is where the stack pointer was before the call, so the return address lies below it. */
static _Unwind_Reason_Code place(struct _Unwind_Context *context, void *argument)
{
    struct placing *placing = argument;
    struct stack_places *places = placing->places;
    uintptr_t pc = _Unwind_GetIP(context), at = _Unwind_GetCFA(context) - sizeof(uintptr_t);
    if (!pc)
        return _URC_END_OF_STACK;
    if (at <= placing->frame) /* a callee of the caller */
        return _URC_NO_REASON;
    uintptr_t words = (at - placing->frame) / sizeof(uintptr_t);
    bool own = own_code(pc) && places->n == places->own;
    placing->known = words <= STACK_PLACE_MOST && *(const uintptr_t *)at == pc;
    if (!placing->known || (own && places->own == STACK_PLACES - placing->most - 1))
        return _URC_END_OF_STACK;
    places->own += own;
    places->at[places->n] = (uint16_t)words;
    places->pcs[places->n++] = pc;
    return places->n - places->own < placing->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

bool stack_walk_places(uintptr_t frame, unsigned most, struct stack_places *places)
{
    places->n = places->own = 0;
    if (atomic_load_explicit(&stack_state, memory_order_relaxed) != STACK_READY || own_code(getauxval(AT_ENTRY)))
        return false;
    struct placing placing = {.places = places, .frame = frame, .most = most};
    _Unwind_Backtrace(place, &placing);
    return placing.known && places->n > places->own;
}

#else

bool stack_walk_places(uintptr_t frame, unsigned most, struct stack_places *places)
{
    (void)frame, (void)most;
    places->n = places->own = 0;
    return false;
}

#endif

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
