#include "diagnostics/ruby/frames.h"
#include "diagnostics/script/bytes.h"
#include "platform/os/peek.h"

/* rb_control_frame_t: the instruction behind the one that runs, its sequence, and the environment */
#define AT_AT          0
#define SEQUENCE_AT    16
#define ENVIRONMENT_AT 32

#define STACK_MOST (1u << 27) /* words of a stack */
#define FINISHES   0x20       /* VM_FRAME_FLAG_FINISH: the first frame of a call of the loop */
#define NATIVE     0x80       /* VM_FRAME_FLAG_CFRAME */
#define IS_NUMBER  1

/* Of objects: the type, and of internal ones, the kind */
#define TYPE(flags)   ((flags)&0x1f)
#define KIND(flags)   ((flags) >> 12 & 0xf)
#define TYPE_INTERNAL 0x1a /* T_IMEMO */
#define KIND_SEQUENCE 7    /* imemo_iseq */

/* Copies the control frames, which lie behind each other at the end of the thread's stack for them, without the last
 * one, which runs nothing. Returns their number, at most SCRIPT_FRAMES. */
static unsigned read_control_frames(const struct ruby *ruby, struct ruby_frames *frames)
{
    uintptr_t context = tls_word(&ruby->context), words[3]; /* stack, its size, current frame */
    if (!context || !peek(frames->self, words, context, sizeof(words)))
        return 0;
    uintptr_t size = ruby->layout->frame, first = words[2], end = words[0] + words[1] * sizeof(uintptr_t);
    if (words[1] > STACK_MOST || first % sizeof(uintptr_t) || first <= words[0] || first >= end ||
        (end - first) % size)
        return 0;
    uintptr_t n = (end - first) / size - 1;
    n = n < SCRIPT_FRAMES ? n : SCRIPT_FRAMES;
    return n && peek(frames->self, frames->bytes, first, n * size) ? (unsigned)n : 0;
}

/* Copies the flags and the beginning of the sequence of each Ruby frame. */
static bool read_heads(const struct ruby_layout *layout, struct ruby_frames *frames, unsigned n)
{
    unsigned reads = 0;
    for (unsigned i = 0; i < n; i++) {
        const unsigned char *bytes = frames->bytes + (size_t)i * layout->frame;
        uintptr_t at = word_in(bytes, AT_AT), sequence = word_in(bytes, SEQUENCE_AT);
        if (!at || !sequence)
            continue;
        frames->frames[reads / 2] = (struct ruby_frame){.sequence = sequence, .at = at};
        frames->to[reads] = (struct iovec){&frames->flags[reads / 2], sizeof(uintptr_t)};
        frames->from[reads++] = (struct iovec){(void *)word_in(bytes, ENVIRONMENT_AT), sizeof(uintptr_t)};
        frames->to[reads] = (struct iovec){frames->heads[reads / 2], sizeof(frames->heads[0])};
        frames->from[reads++] = (struct iovec){(void *)sequence, sizeof(frames->heads[0])};
    }
    frames->runs.n = reads / 2;
    return reads && peek_all(frames->self, frames->to, frames->from, reads);
}

bool ruby_read_frames(const struct ruby *ruby, struct ruby_frames *frames)
{
    struct script_runs *runs = &frames->runs;
    unsigned control = read_control_frames(ruby, frames), begin = 0;
    if (!control || !read_heads(ruby->layout, frames, control))
        return false;
    unsigned n = runs->n;
    runs->runs = runs->n = 0;
    for (unsigned i = 0; i < n && script_runs_room(runs); i++) {
        uintptr_t flags = frames->flags[i], head = frames->heads[i][0];
        if (!(flags & IS_NUMBER) || flags & NATIVE || TYPE(head) != TYPE_INTERNAL || KIND(head) != KIND_SEQUENCE)
            return false;
        frames->frames[runs->n++].body = frames->heads[i][2];
        if (flags & FINISHES)
            script_runs_end(runs, &begin);
    }
    if (begin < runs->n)
        script_runs_end(runs, &begin);
    return true;
}
