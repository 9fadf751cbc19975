/*
 * Frames by their frame pointers: a function begins its frame with the caller's frame pointer, below the return
 * address, and a register has the address of that word. JIT compilers keep to this, and describe their code by no
 * unwind table. Whatever is read may be something else, so it is read by peek() (peek.h) and checked. Where
 * ARCH_FRAME_POINTER is known. Any context.
 */
#ifndef SHEAF_OS_CHAIN_H
#define SHEAF_OS_CHAIN_H

#include "platform/arch/arch.h"
#include "platform/os/compiler.h"

/* A frame: where it returns to in its function, and the stack and frame pointers there. */
struct chain_frame {
    uintptr_t pc, sp, fp;
};

/* Go on to the caller of a frame. Returns false if this does not look like one that keeps the frame pointer, with a
 * caller to which a call returns. `self` is of peek_self(). */
bool chain_caller(long self, struct chain_frame *frame);

#endif
