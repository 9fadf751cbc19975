#include "profile/script.h"
#include "os/clock.h"
#include "os/peek.h"
#include "profile/merge.h"
#include "profile/modules.h"
#include "profile/readers.h"
#include "python/code.h"
#include "ruby/method.h"

struct python_reader {
    struct reader reader;
    uintptr_t pcs[SAMPLE_DEPTH];
    struct python_frames frames;
    struct python_code_objects objects;
} cache_aligned;

struct ruby_reader {
    struct reader reader;
    uintptr_t pcs[SAMPLE_DEPTH];
    struct ruby_frames frames;
    struct ruby_methods methods;
} cache_aligned;

static struct readers python_readers = {.bytes = sizeof(struct python_reader)};
static struct readers ruby_readers = {.bytes = sizeof(struct ruby_reader)};

/* The stack with Python's functions; the stack as it is if they cannot be read. */
static uint32_t with_python(struct reader *room, uint32_t native, struct merge_loop loop)
{
    struct python_reader *reader = (struct python_reader *)room;
    reader->frames.self = peek_self();
    if (!python_read_frames(&python_found, &reader->frames) ||
        !python_addresses(&python_found, &reader->frames, &reader->objects, area_name))
        return native;
    return merge_runs(native, loop, &reader->frames.runs, reader->pcs);
}

/* The same with Ruby's. */
static uint32_t with_ruby(struct reader *room, uint32_t native, struct merge_loop loop)
{
    struct ruby_reader *reader = (struct ruby_reader *)room;
    reader->frames.self = peek_self();
    if (!ruby_read_frames(&ruby_found, &reader->frames) ||
        !ruby_addresses(&ruby_found, &reader->frames, &reader->methods, area_name))
        return native;
    return merge_runs(native, loop, &reader->frames.runs, reader->pcs);
}

/* An interpreter: its loop, the module that it was found in, how it is read, and room for that. */
struct script {
    struct merge_loop loop;
    const struct sheaf_profile_module *module;
    uint32_t (*with)(struct reader *room, uint32_t native, struct merge_loop loop);
    struct readers *readers;
};

/* A program may unload the interpreter, so it must be where it was found. */
static void put(unsigned slot, struct walked_stack *stack, const struct script *script)
{
    if (!script->loop.begin || !merge_loops(area_stack_entry(stack->stack), script->loop) ||
        !module_still(script->loop.begin, script->module))
        return;
    struct reader *room = readers_claim(script->readers, slot);
    if (!room)
        return;
    uint64_t start = clock_ns();
    stack->stack = script->with(room, stack->stack, script->loop);
    uint64_t took = clock_ns() - start;
    stack->walk_ns += (uint32_t)(took < WALK_MOST_NS ? took : WALK_MOST_NS);
    readers_release(room);
}

void script_put(unsigned slot, struct walked_stack *stack)
{
    uintptr_t python = __atomic_load_n(&python_loop, __ATOMIC_ACQUIRE);
    uintptr_t ruby = __atomic_load_n(&ruby_loop, __ATOMIC_ACQUIRE);
    if (stack->stack == AREA_NO_STACK)
        return;
    put(slot, stack,
        &(struct script){{python, python_found.loop_end}, &python_found.module, with_python, &python_readers});
    put(slot, stack, &(struct script){{ruby, ruby_found.loop_end}, &ruby_found.module, with_ruby, &ruby_readers});
}

void script_fork_child(void)
{
    readers_fork_child(&python_readers);
    readers_fork_child(&ruby_readers);
}
