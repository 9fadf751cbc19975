/*
 * vfork() whose child may allocate. The kernel drops the rseq registration of a process that shares its parent's
 * memory, so its sections would no longer be restarted, on a slot that may by then belong to another thread of the
 * parent. The child therefore registers the area of the thread that it stands in for, before vfork() returns in
 * it. The registration ends when the child calls exec or exits, and the kernel writes the parent's own values
 * again before the parent runs. Where Sheaf steps aside (preload/names.h) there is no area to register, and this
 * vfork() does what libc's does.
 *
 * Assembly, because parent and child return through the same stack frame.
 */
#include "preload/vfork.h"
#include "os/rseq.h"
#include "os/syscall.h"

#include <errno.h>
#include <sys/types.h>

uintptr_t vfork_area; /* the offset of the rseq area from the thread pointer; 0: none to register */

void vfork_init(void)
{
    enum { CS_IN_AREA = 8 };
    if (slot_mode != SHEAF_MODE_LOCK)
        vfork_area = slot_head(0)->area.cs - CS_IN_AREA;
}

/* The end of vfork() when the system refuses. */
hidden pid_t vfork_refused(long ret);
__attribute__((used)) pid_t vfork_refused(long ret)
{
    errno = (int)-ret;
    return -1;
}

#if SHEAF_HAVE_RSEQ && defined(__x86_64__)

_Static_assert(SYS_vfork == 58 && SYS_rseq == 334 && RSEQ_SIGNATURE == 0x53053053, "as below");
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "popq %rdi\n\t" /* the child's calls will overwrite it on the stack */
        ".cfi_adjust_cfa_offset -8\n\t"
        ".cfi_register %rip, %rdi\n\t"
        "movl $58, %eax\n\t"
        "syscall\n\t"
        "pushq %rdi\n\t"
        ".cfi_adjust_cfa_offset 8\n\t"
        ".cfi_offset %rip, -8\n\t"
        "testq %rax, %rax\n\t"
        "jz 1f\n\t"
        "js 2f\n\t"
        "ret\n"
        "1:\tmovq vfork_area(%rip), %rdi\n\t"
        "testq %rdi, %rdi\n\t"
        "jz 3f\n\t"
        "addq %fs:0, %rdi\n\t"
        "movl $32, %esi\n\t"
        "xorl %edx, %edx\n\t"
        "movl $0x53053053, %r10d\n\t"
        "movl $334, %eax\n\t"
        "syscall\n\t" /* if refused, the child runs without */
        "xorl %eax, %eax\n"
        "3:\tret\n"
        "2:\tmovq %rax, %rdi\n\t"
        "jmp vfork_refused\n\t"
        ".cfi_endproc\n\t"
        ".size vfork, . - vfork\n");

#elif SHEAF_HAVE_RSEQ && defined(__aarch64__)

_Static_assert(SYS_clone == 220 && SYS_rseq == 293 && RSEQ_SIGNATURE == 0xd428bc00, "as below");
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "mov x0, #0x4111\n\t" /* CLONE_VFORK | CLONE_VM | SIGCHLD */
        "mov x1, sp\n\t"
        "mov x2, #0\n\t"
        "mov x3, #0\n\t"
        "mov x4, #0\n\t"
        "mov x8, #220\n\t"
        "svc #0\n\t"
        "cbz x0, 1f\n\t"
        "tbnz x0, #63, 2f\n\t"
        "ret\n"
        "1:\tadrp x1, vfork_area\n\t"
        "ldr x1, [x1, :lo12:vfork_area]\n\t"
        "cbz x1, 3f\n\t"
        "mrs x0, tpidr_el0\n\t"
        "add x0, x0, x1\n\t"
        "mov x1, #32\n\t"
        "mov x2, #0\n\t"
        "movz w3, #0xbc00\n\t"
        "movk w3, #0xd428, lsl #16\n\t"
        "mov x8, #293\n\t"
        "svc #0\n\t"
        "mov x0, #0\n"
        "3:\tret\n"
        "2:\tb vfork_refused\n\t"
        ".cfi_endproc\n\t"
        ".size vfork, . - vfork\n");

#else

/* Without rseq sections there is nothing to register, and libc's vfork() is used. */

#endif
