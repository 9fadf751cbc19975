#include "os/chain.h"
#include "os/peek.h"

#include <string.h>

#define FRAME_MOST (1u << 20) /* bytes of a frame */
#define PAGE       4096u

#if CHAIN_KNOWN

/* Reads the two words of a frame, and what lies above them on their page. */
static bool read_frame(struct chain *chain, uintptr_t fp, uintptr_t words[2])
{
    if (fp < chain->from || fp >= chain->to || chain->to - fp < 2 * sizeof(*words)) {
        size_t page = PAGE - fp % PAGE, size = page < sizeof(chain->bytes) ? page : sizeof(chain->bytes);
        size = size < 2 * sizeof(*words) ? 2 * sizeof(*words) : size;
        chain->from = chain->to = fp;
        if (!peek(chain->self, chain->bytes, fp, size))
            return false;
        chain->to += size;
    }
    memcpy(words, chain->bytes + (fp - chain->from), 2 * sizeof(*words));
    return true;
}

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

bool chain_caller(struct chain *chain, struct chain_frame *frame)
{
    uintptr_t words[2];
    if (!chain->self)
        chain->self = peek_self();
    if (frame->fp % sizeof(uintptr_t) || frame->fp < frame->sp || frame->fp - frame->sp > FRAME_MOST ||
        !read_frame(chain, frame->fp, words) || !follows_call(chain->self, words[1]))
        return false;
    *frame = (struct chain_frame){.pc = words[1], .sp = frame->fp + sizeof(words), .fp = words[0]};
    return true;
}

#endif
