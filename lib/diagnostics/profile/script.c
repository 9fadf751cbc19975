#include "diagnostics/profile/script.h"
#include "platform/os/clock.h"
#include "platform/os/peek.h"
#include "platform/os/stack.h"
#include "diagnostics/profile/merge.h"
#include "diagnostics/profile/modules.h"
#include "diagnostics/profile/readers.h"
#include "diagnostics/python/code.h"
#include "diagnostics/ruby/method.h"
#include "diagnostics/v8/function.h"

#include <string.h>

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

struct v8_room {
    struct reader reader;
    uintptr_t pcs[SAMPLE_DEPTH];
    uint8_t index[SAMPLE_DEPTH]; /* of the calls in the stack */
    struct v8_reader calls;
} cache_aligned;

static struct readers python_readers = {.bytes = sizeof(struct python_reader)};
static struct readers ruby_readers = {.bytes = sizeof(struct ruby_reader)};
static struct readers v8_readers = {.bytes = sizeof(struct v8_room)};

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

/* The function of a frame that may be one of JavaScript: code without a table, with a context and a function in its
 * frame. 0: it is none. */
static uintptr_t function_of(uintptr_t pc, uintptr_t frame)
{
    const struct v8_layout *layout = &v8_found.layout;
    if (!frame)
        return 0;
    uintptr_t context = *(const uintptr_t *)(frame + (uintptr_t)(intptr_t)layout->frame_context);
    uintptr_t function = *(const uintptr_t *)(frame + (uintptr_t)(intptr_t)layout->frame_function);
    return v8_is_object(context) && v8_is_object(function) && !stack_described(pc) ? function : 0;
}

/* Whether there may be any, so that a thread of V8 that runs none does not take the room of one that does. */
static bool has_calls(const struct sheaf_profile_stack *stack, const struct walked_frames *frames)
{
    for (unsigned i = 0; i < frames->n && i < stack->depth; i++)
        if (function_of(stack->pcs[i], frames->pointers[i]))
            return true;
    return false;
}

static void find_calls(struct v8_room *room, const struct sheaf_profile_stack *stack,
                       const struct walked_frames *frames)
{
    room->calls.n = 0;
    for (unsigned i = 0; i < frames->n && i < stack->depth && room->calls.n < V8_CALLS; i++) {
        uintptr_t function = function_of(stack->pcs[i], frames->pointers[i]);
        if (!function)
            continue;
        room->index[room->calls.n] = (uint8_t)i;
        room->calls.calls[room->calls.n++].function = function;
    }
}

/* The stack with JavaScript's functions; the stack as it is if they cannot be read. */
static uint32_t with_v8(struct v8_room *room, uint32_t native, const struct walked_frames *frames)
{
    const struct sheaf_profile_stack *stack = area_stack_entry(native);
    find_calls(room, stack, frames);
    room->calls.self = peek_self();
    if (!room->calls.n || !v8_addresses(&v8_found.layout, &room->calls, area_name))
        return native;
    memcpy(room->pcs, stack->pcs, stack->depth * sizeof(*room->pcs));
    for (unsigned i = 0; i < room->calls.n; i++)
        if (room->calls.calls[i].address)
            room->pcs[room->index[i]] = room->calls.calls[i].address;
    uint32_t merged = area_intern(room->pcs, stack->depth);
    return merged != AREA_NO_STACK && area_stack_entry(merged)->depth ? merged : native;
}

static void put_v8(unsigned slot, struct walked_stack *stack, const struct walked_frames *frames)
{
    if (!frames->n || !has_calls(area_stack_entry(stack->stack), frames))
        return;
    struct reader *room = readers_claim(&v8_readers, slot);
    if (!room)
        return;
    uint64_t start = clock_ns();
    stack->stack = with_v8((struct v8_room *)room, stack->stack, frames);
    uint64_t took = clock_ns() - start;
    stack->walk_ns += (uint32_t)(took < WALK_MOST_NS ? took : WALK_MOST_NS);
    readers_release(room);
}

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

void script_put(unsigned slot, struct walked_stack *stack, const struct walked_frames *frames)
{
    uintptr_t python = __atomic_load_n(&python_loop, __ATOMIC_ACQUIRE);
    uintptr_t ruby = __atomic_load_n(&ruby_loop, __ATOMIC_ACQUIRE);
    if (stack->stack == AREA_NO_STACK)
        return;
    put(slot, stack,
        &(struct script){{python, python_found.loop_end}, &python_found.module, with_python, &python_readers});
    put(slot, stack, &(struct script){{ruby, ruby_found.loop_end}, &ruby_found.module, with_ruby, &ruby_readers});
    put_v8(slot, stack, frames);
}

void script_fork_child(void)
{
    readers_fork_child(&python_readers);
    readers_fork_child(&ruby_readers);
    readers_fork_child(&v8_readers);
}
