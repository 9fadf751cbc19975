/* The entry point vfork() of preload/vfork.c on x86-64. Included there alone. */

_Static_assert(SYS_vfork == 58, "as below");
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n\t"
        ".cfi_startproc\n\t"
        "subq $8, %rsp\n\t"
        ".cfi_adjust_cfa_offset 8\n\t"
        "call vfork_prepare\n\t"
        "addq $8, %rsp\n\t"
        ".cfi_adjust_cfa_offset -8\n\t"
        "movq %rax, %rsi\n\t" /* what vfork_prepare() has returned, for vfork_returned(), is in rsi and rdx */
        "popq %r8\n\t"        /* the child's calls will overwrite the return address on the stack */
        ".cfi_adjust_cfa_offset -8\n\t"
        ".cfi_register %rip, %r8\n\t"
        "movl $58, %eax\n\t"
        "syscall\n\t"
        "pushq %r8\n\t"
        ".cfi_adjust_cfa_offset 8\n\t"
        ".cfi_offset %rip, -8\n\t"
        "movq %rax, %rdi\n\t"
        "jmp vfork_returned\n\t"
        ".cfi_endproc\n\t"
        ".size vfork, . - vfork\n");
