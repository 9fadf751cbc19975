#include "platform/os/chain.h"
#include "platform/os/peek.h"

#define FRAME_MOST (1u << 20) /* bytes of a frame */
#define PAGE       4096u

#ifdef ARCH_FRAME_POINTER

/* Whether a call instruction ends there: to a relative address, or through a register or memory. */
static bool follows_call(long self, uintptr_t pc)
{
    unsigned char code[7];
    if (pc < PAGE || !peek(self, code, pc - sizeof(code), sizeof(code)))
        return false;
    if (code[2] == 0xe8)
        return true;
    for (unsigned bytes = 2; bytes <= sizeof(code); bytes++) {
        const unsigned char *call = code + sizeof(code) - bytes;
        unsigned mode = call[1] >> 6, base = call[1] & 7;
        unsigned size = 2 + (mode != 3 && base == 4);                          /* with the index byte */
        size += mode == 1 ? 1 : mode == 2 || (mode == 0 && base == 5) ? 4 : 0; /* with the displacement */
        if (call[0] == 0xff && (call[1] >> 3 & 7) == 2 && size == bytes)
            return true;
    }
    return false;
}

static bool read_frame(long self, uintptr_t fp, uintptr_t sp, uintptr_t words[2])
{
    return fp % sizeof(*words) == 0 && fp >= sp && fp - sp <= FRAME_MOST && peek(self, words, fp, 2 * sizeof(*words));
}

/* A frame may be made to return elsewhere than behind its call, so that its function goes on in other code. Then the
 * frame behind it tells. */
bool chain_caller(long self, struct chain_frame *frame)
{
    uintptr_t words[2], behind[2];
    unsigned char code;
    if (!read_frame(self, frame->fp, frame->sp, words))
        return false;
    uintptr_t sp = frame->fp + sizeof(words);
    if (!follows_call(self, words[1]) && (!peek(self, &code, words[1], sizeof(code)) ||
                                          !read_frame(self, words[0], sp, behind) || !follows_call(self, behind[1])))
        return false;
    *frame = (struct chain_frame){.pc = words[1], .sp = sp, .fp = words[0]};
    return true;
}

#endif
