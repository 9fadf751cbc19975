/*
 * The CPU architecture. Each one has a folder here, named as in uname(2). To add one, add a folder and a line below.
 *
 *   cpu.h       the macros below
 *   syscall.h   sys_call(): a system call that leaves errno alone
 *   rseq.h      optional: the sections of platform/rseq/rseq.h. Without them, slots have locks
 *   vfork.h     optional, and needed only with sections: the entry point of preload/vfork.c, in assembly
 *   dlopen.h    optional: the entry points of preload/dlopen.c, in assembly
 *   chain.h     needed with ARCH_FRAME_POINTER: resume() of platform/os/stack.c, in assembly
 *
 * Macros that every cpu.h has:
 *
 *   ARCH_STACK_POINTER(at)        assigns the stack pointer of the function that uses it
 *   ARCH_RELAX()                  a hint within loops that wait
 *   ARCH_CONTEXT_STACK(context)   the stack pointer in a ucontext_t
 *   ARCH_RED_ZONE                 bytes below the stack pointer that a function may use
 *   ARCH_OLDEST_GLIBC             the version that the first symbols of glibc have, as text
 *   ARCH_HAS_PLACES               1 if return addresses lie on the stack, so that stack_walk_places() finds them; or
 * 0
 *
 * Optional ones; what needs them is left out where they are missing:
 *
 *   ARCH_FRAME_POINTER            its number in unwind tables, if frames begin as platform/os/chain.h says
 *   ARCH_CONTROL_BLOCK_SELF       glibc's control block of a thread begins with its own address
 *   ARCH_R_DTPMOD, ARCH_R_TPOFF   relocations of thread-local variables, if these lie below the thread pointer
 *   ARCH_ANY_THREAD_POINTER       programs may give clone(2) any thread pointer
 *   ARCH_HAS_LLC                  there is arch_llc(), which cpu_llc() calls
 */
#ifndef SHEAF_ARCH_ARCH_H
#define SHEAF_ARCH_ARCH_H

/* The formatter would put spaces into the path. */
/* clang-format off */
#define ARCH_TEXT(path)                 #path
#define ARCH_PATH(architecture, header) ARCH_TEXT(platform/arch/architecture/header)
/* clang-format on */

#if defined(__x86_64__)
#define ARCH_HEADER(header) ARCH_PATH(x86_64, header)
#elif defined(__aarch64__)
#define ARCH_HEADER(header) ARCH_PATH(aarch64, header)
#else
#error "this CPU architecture has no folder in lib/platform/arch; docs/extending.md says what it needs"
#endif

#include ARCH_HEADER(cpu.h)

#endif
