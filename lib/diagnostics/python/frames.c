#include "diagnostics/python/frames.h"
#include "diagnostics/script/bytes.h"
#include "platform/os/peek.h"

#include <pthread.h>

#define STATE_BYTES 168 /* of a thread's state that are of interest */
#define FRAME_BYTES 72  /* of a frame that are of interest, in all versions */
#define OWNER_LOOP  3   /* FRAME_OWNED_BY_CSTACK: the frame of the loop itself, without a function (3.12) */
#define STEPS_MOST  (2 * SCRIPT_FRAMES + SCRIPT_RUNS)

/* The current frame of the calling thread; 0 if it is not one of the interpreter's. */
static uintptr_t current_frame(const struct python *python, long self)
{
    const struct python_layout *layout = python->layout;
    uintptr_t thread = (uintptr_t)pthread_self(), frame;
    unsigned char state[STATE_BYTES];
    for (unsigned i = 0; i < 2; i++) {
        uintptr_t at = (uintptr_t)(i ? python->this_thread : python->current_thread)();
        if (!at || !peek(self, state, at, sizeof(state)) || word_in(state, layout->thread) != thread)
            continue;
        frame = word_in(state, layout->current);
        return !layout->indirect || peek(self, &frame, frame + layout->indirect - 1u, sizeof(frame)) ? frame : 0;
    }
    return 0;
}

/* The bytes of a frame, from a window or read into one; NULL if they cannot be read. A caller's frame mostly lies
 * below, so the window begins where the page does. */
static const unsigned char *frame_bytes(struct python_frames *frames, uintptr_t frame)
{
    for (unsigned i = 0; i < 2; i++) {
        struct python_window *window = &frames->windows[i];
        if (frame >= window->from && frame < window->to && window->to - frame >= FRAME_BYTES) {
            frames->oldest = !i;
            return window->bytes + (frame - window->from);
        }
    }
    if (!frame || frame % sizeof(uintptr_t) || frame > UINTPTR_MAX - 4096)
        return NULL;
    struct python_window *window = &frames->windows[frames->oldest];
    window->from = frame & ~(uintptr_t)4095;
    window->to = frame + FRAME_BYTES;
    if (!peek(frames->self, window->bytes, window->from, window->to - window->from)) {
        window->to = window->from = 0;
        return NULL;
    }
    frames->oldest = !frames->oldest;
    return window->bytes + (frame - window->from);
}

bool python_read_frames(const struct python *python, struct python_frames *frames)
{
    const struct python_layout *layout = python->layout;
    uintptr_t frame = current_frame(python, frames->self);
    unsigned begin = 0;
    struct script_runs *runs = &frames->runs;
    runs->n = runs->runs = frames->oldest = 0;
    frames->windows[0].to = frames->windows[1].to = 0;
    for (unsigned i = 0; frame && i < STEPS_MOST && script_runs_room(runs); i++) {
        const unsigned char *bytes = frame_bytes(frames, frame);
        if (!bytes)
            return false;
        bool loop = !layout->entry && bytes[layout->owner] == OWNER_LOOP;
        if (!loop)
            frames->frames[runs->n++] =
                (struct python_frame){.code = word_in(bytes, layout->code), .at = word_in(bytes, layout->at)};
        if (loop || (layout->entry && bytes[layout->entry]))
            script_runs_end(runs, &begin);
        frame = word_in(bytes, layout->previous);
    }
    if (begin < runs->n)
        script_runs_end(runs, &begin);
    return runs->n > 0;
}
