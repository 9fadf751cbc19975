/* The entry point vfork() of preload/vfork.c on aarch64. Included there alone. */

_Static_assert(SYS_clone == 220, "as below");
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "hint #34\n\t" /* bti c */
        "stp x29, x30, [sp, #-16]!\n\t"
        ".cfi_def_cfa_offset 16\n\t"
        ".cfi_offset x29, -16\n\t"
        ".cfi_offset x30, -8\n\t"
        "bl vfork_prepare\n\t"
        "ldp x29, x30, [sp], #16\n\t" /* the child's calls will overwrite them on the stack */
        ".cfi_restore x29\n\t"
        ".cfi_restore x30\n\t"
        ".cfi_def_cfa_offset 0\n\t"
        "mov x5, x0\n\t"
        "mov x6, x1\n\t"
        "mov x0, #0x4111\n\t" /* CLONE_VFORK | CLONE_VM | SIGCHLD */
        "mov x1, sp\n\t"
        "mov x2, #0\n\t"
        "mov x3, #0\n\t"
        "mov x4, #0\n\t"
        "mov x8, #220\n\t"
        "svc #0\n\t"
        "mov x1, x5\n\t"
        "mov x2, x6\n\t"
        "b vfork_returned\n\t"
        ".cfi_endproc\n\t"
        ".size vfork, . - vfork\n");
