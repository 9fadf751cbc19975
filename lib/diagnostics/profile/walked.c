#include "diagnostics/profile/walked.h"
#include "platform/arch/arch.h"
#include "platform/os/clock.h"
#include "platform/os/stack.h"
#include "platform/os/vm.h"
#include "diagnostics/profile/sampler.h"
#include "memory/space/internal.h"

#include <string.h>

#define WALKED_TRUST 256 /* uses between two walks */
#define SAMPLES_MOST 32  /* of a stack on a slot in a window of pace.h */

/* ---- tables ---- */

#define SETS    32 /* of a slot */
#define WAYS    4
#define ENTRIES 64 /* slots that share one set of stacks take turns */
#define PATHS   16 /* ways through the allocator to walked_find(), in the process */

/*
 * A stack: `at` are distances, in words, from the frame of walked_find() to the return addresses of the program. An
 * address is LINKED if the caller's frame pointer lies below it and leads to the word below the next one. A function
 * whose frame has no constant size has a frame pointer, so this shows where its frame ends.
 */
#define LINKED 0x8000u
struct walked {
    uintptr_t frame, thread; /* address of that frame; thread pointer. 0: the entry is empty */
    uint32_t stack;
    uint16_t depth, uses;
    struct pace pace;
    uint16_t at[SAMPLE_DEPTH];
};

struct walked_slot {
    _Atomic bool busy;
    uint8_t oldest[SETS]; /* the way that is replaced next */
    struct walked stacks[SETS][WAYS];
} cache_aligned;

/*
 * The frames of the allocator between walked_find() and the program. They have constant sizes, so they lie at the
 * same distances wherever the stack is. A path is written once, by the thread that claimed it.
 */
#define PATH_FRAMES 12
enum { PATH_CLAIMED = 1, PATH_READY };
struct path {
    uint8_t state;  /* 0: free */
    uint8_t frames; /* the last one is the program's: only its place is known */
    uint16_t at[PATH_FRAMES];
    uintptr_t pcs[PATH_FRAMES];
};

static struct walked_slot *slots; /* ENTRIES of them; NULL: every stack is walked */
static struct path paths[PATHS];

void walked_start(void)
{
    if (ARCH_HAS_PLACES && !slots && vm_map_once((void **)&slots, ENTRIES * sizeof(*slots)))
        internal_note(slots, ENTRIES * sizeof(*slots)); /* they have addresses of stacks */
}

/* ---- the way through the allocator ---- */

static always_inline uintptr_t word_at(uintptr_t frame, unsigned at)
{
    return ((const volatile uintptr_t *)frame)[at];
}

/* The place of the innermost return address of the program; 0 if this way was not taken before. */
static unsigned program_at(uintptr_t frame)
{
    for (unsigned i = 0; i < PATHS; i++) {
        const struct path *path = &paths[i];
        unsigned n = 0, last = path->frames - 1u;
        uint8_t state = __atomic_load_n(&path->state, __ATOMIC_ACQUIRE);
        if (!state)
            break;
        if (state != PATH_READY) /* in the child of a fork, its writer may not exist */
            continue;
        while (n < last && word_at(frame, path->at[n]) == path->pcs[n])
            n++;
        if (n == last)
            return path->at[last];
    }
    return 0;
}

static void learn_path(const struct stack_places *places)
{
    if (places->own + 1 > PATH_FRAMES)
        return;
    for (unsigned i = 0; i < PATHS; i++) {
        uint8_t none = 0;
        if (!__atomic_compare_exchange_n(&paths[i].state, &none, PATH_CLAIMED, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        for (unsigned k = 0; k <= places->own; k++) {
            paths[i].at[k] = places->at[k];
            paths[i].pcs[k] = places->pcs[k];
        }
        paths[i].frames = (uint8_t)(places->own + 1);
        __atomic_store_n(&paths[i].state, PATH_READY, __ATOMIC_RELEASE);
        return;
    }
}

/* ---- stacks ---- */

static struct walked *set_of(struct walked_slot *slot, uintptr_t frame, uintptr_t pc, unsigned *set)
{
    *set = (unsigned)((frame ^ pc * 0x9e3779b97f4a7c15ull >> 20) * 0x9e3779b97f4a7c15ull >> 59) % SETS;
    return slot->stacks[*set];
}

/* The address of the word below a return address. */
static always_inline uintptr_t below(uintptr_t frame, unsigned at)
{
    return frame + ((at & ~LINKED) - 1) * sizeof(uintptr_t);
}

static bool same(const struct walked *one, uintptr_t frame, uintptr_t thread)
{
    if (one->frame != frame || one->thread != thread)
        return false;
    const struct sheaf_profile_stack *stack = area_stack_entry(one->stack);
    for (unsigned i = 0; i < one->depth; i++) {
        unsigned at = one->at[i] & ~LINKED;
        if (word_at(frame, at) != stack->pcs[i])
            return false;
        if (one->at[i] & LINKED && word_at(frame, at - 1) != below(frame, one->at[i + 1]))
            return false;
    }
    return true;
}

static struct walked *find(struct walked_slot *slot, uintptr_t frame, uintptr_t thread)
{
    unsigned at = program_at(frame), set;
    if (!at)
        return NULL;
    struct walked *ways = set_of(slot, frame, word_at(frame, at), &set);
    for (unsigned i = 0; i < WAYS; i++)
        if (same(&ways[i], frame, thread))
            return &ways[i];
    return NULL;
}

static void remember(struct walked_slot *slot, const struct stack_places *places, uintptr_t frame, uintptr_t thread,
                     uint32_t stack)
{
    unsigned set;
    struct walked *ways = set_of(slot, frame, places->pcs[places->own], &set);
    struct walked *one = &ways[slot->oldest[set]++ % WAYS];
    *one = (struct walked){.thread = thread, .stack = stack, .depth = (uint16_t)(places->n - places->own)};
    memcpy(one->at, places->at + places->own, one->depth * sizeof(*one->at));
    for (unsigned i = 0; i + 1 < one->depth; i++)
        if (word_at(frame, one->at[i] - 1u) == below(frame, one->at[i + 1]))
            one->at[i] |= LINKED;
    one->frame = frame;
    if (!program_at(frame))
        learn_path(places);
}

/* Where the word below a return address leads to the word below the next one, it is a frame pointer. */
static void point(const uint16_t *at, unsigned depth, uintptr_t frame, struct walked_frames *frames)
{
    for (frames->n = 0; frames->n + 1 < depth; frames->n++) {
        uintptr_t pointer = below(frame, at[frames->n + 1]);
        bool linked = word_at(frame, (at[frames->n] & ~LINKED) - 1) == pointer;
        frames->pointers[frames->n] = linked ? pointer : 0;
    }
}

static uint32_t walk_stack(struct walked_slot *slot, uintptr_t frame, uintptr_t thread, struct walked_frames *frames)
{
    struct stack_places places;
    if (!stack_walk_places(frame, SAMPLE_DEPTH, &places)) {
        uintptr_t pcs[SAMPLE_DEPTH];
        return area_intern(pcs, stack_walk(pcs, SAMPLE_DEPTH));
    }
    unsigned depth = places.n - places.own;
    uint32_t stack = area_intern(places.pcs + places.own, depth);
    if (slot && stack != AREA_NO_STACK && area_stack_entry(stack)->depth == depth)
        remember(slot, &places, frame, thread, stack);
    if (frames)
        point(places.at + places.own, depth, frame, frames);
    return stack;
}

/* Walks, and lets the slot remember the stack. */
static void walk(struct walked_slot *slot, uintptr_t frame, uintptr_t thread, struct walked_stack *found,
                 struct walked_frames *frames)
{
    uint64_t start = clock_ns();
    found->stack = walk_stack(slot, frame, thread, frames);
    uint64_t took = clock_ns() - start;
    found->walk_ns = (uint32_t)(took < WALK_MOST_NS ? took : WALK_MOST_NS);
}

/*
 * A stack that was found may be left out. If a walk shows that it is another one, its number was wrong, but not the
 * probability with which it was taken.
 */
static struct walked_stack take(struct walked *one, unsigned slot, bool always, uint32_t now)
{
    unsigned most = SAMPLES_MOST >> pace_of_slot(slot).pressure;
    pace_relax(&one->pace, now, most);
    unsigned thinned = always ? 0 : one->pace.exponent;
    bool taken = !thinned || sampler_number(slot) < (1ull << 32) >> thinned;
    if (taken && !always)
        pace_note(&one->pace, now, most);
    return (struct walked_stack){.stack = one->stack, .thinned = thinned, .taken = taken};
}

/* The frame's address is the key, so all walks start from one function. */
__attribute__((noinline)) struct walked_stack walked_find(unsigned slot, bool always, uint32_t now,
                                                          struct walked_frames *frames)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0), thread = (uintptr_t)__builtin_thread_pointer();
    struct walked_slot *table = __atomic_load_n(&slots, __ATOMIC_ACQUIRE);
    struct walked_slot *mine = table ? &table[slot % ENTRIES] : NULL;
    struct walked_stack found = {.taken = true};
    if (mine && atomic_exchange_explicit(&mine->busy, true, memory_order_acquire))
        mine = NULL;
    struct walked *one = mine ? find(mine, frame, thread) : NULL;
    if (one) {
        found = take(one, slot, always, now);
        if (frames)
            point(one->at, one->depth, frame, frames);
    }
    if (!one) {
        walk(mine, frame, thread, &found, frames);
    } else if (found.taken && ++one->uses % WALKED_TRUST == 0) {
        walk(NULL, frame, thread, &found, frames);
        if (found.stack != one->stack)
            one->frame = 0;
    }
    if (mine)
        atomic_store_explicit(&mine->busy, false, memory_order_release);
    return found;
}

void walked_fork_child(void)
{
    struct walked_slot *table = slots;
    for (unsigned i = 0; table && i < ENTRIES; i++)
        if (atomic_load_explicit(&table[i].busy, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&table[i].busy, false, memory_order_relaxed);
}
