#include "platform/os/stack.h"
#include "platform/arch/arch.h"
#include "platform/os/chain.h"
#include "platform/os/peek.h"

#include <stddef.h>
#include <sys/auxv.h>
#include <unwind.h>

/*
 * The linker's bounds of this object, from its header to the end of its initialized data; both segments of code
 * lie between them.
 */
extern const char __ehdr_start[] hidden;
extern const char _edata[] hidden;

/* ---- frames, whoever keeps them ---- */

/*
 * A walk hands the frames, the innermost first, to `put` until it returns false: by the unwind tables, and where
 * these do not describe the code, as that of a JIT compiler, by frame pointers (chain.h) until they do again.
 */
struct frames {
    bool (*put)(void *argument, uintptr_t pc, uintptr_t cfa);
    void *argument;
    struct chain_frame last;
    bool ended, resumed, guessed; /* guessed: frame pointers led to this frame or to one of its callees */
};

/* The unwinder reads without a check what lies below the frame address: after a guess it must be there. */
static bool believable(const struct frames *frames, uintptr_t pc, uintptr_t sp)
{
    uintptr_t words[2];
    return pc && sp >= frames->last.sp && sp % sizeof(words[0]) == 0 &&
           peek(peek_self(), words, sp - sizeof(words), sizeof(words));
}

static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *argument)
{
    struct frames *frames = argument;
    if (frames->resumed) { /* the frame of resume() */
        frames->resumed = false;
        return _URC_NO_REASON;
    }
    uintptr_t pc = _Unwind_GetIP(context), sp = _Unwind_GetCFA(context);
    if (unlikely(frames->guessed) && !believable(frames, pc, sp)) {
        frames->ended = true;
        return _URC_END_OF_STACK;
    }
    frames->last = (struct chain_frame){.pc = pc, .sp = sp};
#ifdef ARCH_FRAME_POINTER
    frames->last.fp = _Unwind_GetGR(context, ARCH_FRAME_POINTER);
#endif
    frames->ended = !frames->last.pc || !frames->put(frames->argument, frames->last.pc, frames->last.sp);
    return frames->ended ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Of libgcc: the entry of a table that describes an address, or NULL. */
extern const void *_Unwind_Find_FDE(void *pc, void *bases[3]);

bool stack_described(uintptr_t pc)
{
    void *bases[3];
    return _Unwind_Find_FDE((void *)(pc - 1), bases);
}

#ifdef ARCH_FRAME_POINTER

#include ARCH_HEADER(chain.h)

/* Goes on from a frame that no table describes. */
static void walk_on(struct frames *frames)
{
    long self = peek_self();
    while (!frames->ended && !stack_described(frames->last.pc)) {
        struct chain_frame from = frames->last;
        if (!chain_caller(self, &from))
            return;
        frames->last = from;
        if (stack_described(from.pc)) {
            frames->resumed = frames->guessed = true;
            resume(each, frames, &from);
        } else {
            frames->ended = !frames->put(frames->argument, from.pc, from.sp);
        }
    }
}

#endif

static void walk_all(struct frames frames)
{
    _Unwind_Backtrace(each, &frames);
#ifdef ARCH_FRAME_POINTER
    if (unlikely(!frames.ended && frames.last.pc))
        walk_on(&frames);
#endif
}

/* ---- addresses ---- */

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

static bool put_address(void *argument, uintptr_t pc, uintptr_t cfa)
{
    struct walk *walk = argument;
    (void)cfa;
    if (!walk->n && own_code(pc) && (!walk->in_program || walk->own < OWN_FRAMES)) {
        walk->own++;
        return true;
    }
    walk->pcs[walk->n++] = pc;
    return walk->n < walk->most;
}

_Atomic int stack_state;

static unsigned walk_frames(uintptr_t *pcs, unsigned most)
{
    struct walk walk = {.pcs = pcs, .most = most, .in_program = own_code(getauxval(AT_ENTRY))};
    walk_all((struct frames){.put = put_address, .argument = &walk});
    return walk.n;
}

unsigned stack_walk(uintptr_t *pcs, unsigned most)
{
    if (likely(atomic_load_explicit(&stack_state, memory_order_relaxed) == STACK_READY))
        return walk_frames(pcs, most);
    int first = STACK_FIRST;
    if (!atomic_compare_exchange_strong(&stack_state, &first, STACK_NONE))
        return 0;
    if (!stack_described((uintptr_t)walk_frames + 1)) /* linked without --eh-frame-hdr: the unwinder would abort */
        return 0;
    unsigned n = walk_frames(pcs, most);
    atomic_store(&stack_state, STACK_READY);
    return n;
}

#if ARCH_HAS_PLACES

struct placing {
    struct stack_places *places;
    uintptr_t frame;
    unsigned most;
    bool known;
};

/* The canonical frame address is where the stack pointer was before the call, so the return address lies below it. */
static bool put_place(void *argument, uintptr_t pc, uintptr_t cfa)
{
    struct placing *placing = argument;
    struct stack_places *places = placing->places;
    uintptr_t at = cfa - sizeof(uintptr_t);
    if (at <= placing->frame) /* a callee of the caller */
        return true;
    uintptr_t words = (at - placing->frame) / sizeof(uintptr_t);
    bool own = own_code(pc) && places->n == places->own;
    placing->known = words <= STACK_PLACE_MOST && *(const uintptr_t *)at == pc;
    if (!placing->known || (own && places->own == STACK_PLACES - placing->most - 1))
        return false;
    places->own += own;
    places->at[places->n] = (uint16_t)words;
    places->pcs[places->n++] = pc;
    return places->n - places->own < placing->most;
}

bool stack_walk_places(uintptr_t frame, unsigned most, struct stack_places *places)
{
    places->n = places->own = 0;
    if (atomic_load_explicit(&stack_state, memory_order_relaxed) != STACK_READY || own_code(getauxval(AT_ENTRY)))
        return false;
    struct placing placing = {.places = places, .frame = frame, .most = most};
    walk_all((struct frames){.put = put_place, .argument = &placing});
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
