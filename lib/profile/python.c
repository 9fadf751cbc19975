#include "profile/python.h"
#include "os/clock.h"
#include "os/peek.h"
#include "os/vm.h"
#include "profile/modules.h"
#include "python/code.h"
#include "space/own.h"

#define READERS 16 /* slots that share one take turns */

struct reader {
    _Atomic bool busy;
    uintptr_t addresses[PYTHON_FRAMES], pcs[SAMPLE_DEPTH];
    struct python_frames frames;
    struct python_code_objects objects;
} cache_aligned;

static struct reader *readers;

/* ---- stacks ---- */

static bool in_loop(uint64_t pc, uintptr_t loop)
{
    return pc - 1 - loop < python_found.loop_end - loop;
}

static unsigned loops_of(const struct sheaf_profile_stack *stack, uintptr_t loop)
{
    unsigned n = 0;
    for (unsigned i = 0; i < stack->depth; i++)
        n += in_loop(stack->pcs[i], loop);
    return n;
}

/* Puts each run in the place of a frame of the loop. A part of the loop's code may lie elsewhere, and not be known
 * for it, so the outermost frame of the loop gets all runs that are left if the stack is whole. */
static unsigned merge(struct reader *reader, const struct sheaf_profile_stack *stack, uintptr_t loop)
{
    const struct python_frames *frames = &reader->frames;
    unsigned loops = loops_of(stack, loop), run = 0, frame = 0, n = 0;
    for (unsigned i = 0; i < stack->depth && n < SAMPLE_DEPTH; i++) {
        unsigned begin = n;
        if (in_loop(stack->pcs[i], loop)) {
            bool last = !--loops && stack->depth < SAMPLE_DEPTH;
            for (bool more = run < frames->runs; more; more = last && run < frames->runs)
                for (unsigned k = frames->run[run++]; k; k--, frame++)
                    if (n < SAMPLE_DEPTH)
                        reader->pcs[n++] = reader->addresses[frame];
        }
        if (n == begin)
            reader->pcs[n++] = stack->pcs[i];
    }
    return n;
}

/* The stack with Python's functions; the stack as it is if they cannot be read or have no room. */
static uint32_t merged(struct reader *reader, uint32_t native, uintptr_t loop)
{
    reader->frames.self = peek_self();
    if (!python_read_frames(&python_found, &reader->frames) ||
        !python_addresses(&python_found, &reader->frames, &reader->objects, area_name, reader->addresses))
        return native;
    uint32_t stack = area_intern(reader->pcs, merge(reader, area_stack_entry(native), loop));
    return stack != AREA_NO_STACK && area_stack_entry(stack)->depth ? stack : native;
}

/* Returns NULL if another thread uses the slot's, or if there is no memory. */
static struct reader *claim(unsigned slot)
{
    if (!__atomic_load_n(&readers, __ATOMIC_ACQUIRE) && vm_map_once((void **)&readers, READERS * sizeof(*readers)))
        own_note(readers, READERS * sizeof(*readers)); /* they have addresses of objects */
    struct reader *all = __atomic_load_n(&readers, __ATOMIC_ACQUIRE), *mine = all ? &all[slot % READERS] : NULL;
    return mine && !atomic_exchange_explicit(&mine->busy, true, memory_order_acquire) ? mine : NULL;
}

/* A program may unload the interpreter, so it must be where it was found. */
void python_put(unsigned slot, struct walked_stack *stack)
{
    uintptr_t loop = __atomic_load_n(&python_loop, __ATOMIC_ACQUIRE);
    if (stack->stack == AREA_NO_STACK || !loops_of(area_stack_entry(stack->stack), loop) ||
        !module_still(loop, &python_found.module))
        return;
    struct reader *reader = claim(slot);
    if (!reader)
        return;
    uint64_t start = clock_ns();
    stack->stack = merged(reader, stack->stack, loop);
    uint64_t took = clock_ns() - start;
    stack->walk_ns += (uint32_t)(took < WALK_MOST_NS ? took : WALK_MOST_NS);
    atomic_store_explicit(&reader->busy, false, memory_order_release);
}

void python_fork_child(void)
{
    struct reader *all = readers;
    for (unsigned i = 0; all && i < READERS; i++)
        if (atomic_load_explicit(&all[i].busy, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&all[i].busy, false, memory_order_relaxed);
}
