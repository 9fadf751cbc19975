/* resume() of platform/os/stack.c on x86-64. Included there alone. */

/*
 * _Unwind_Backtrace() as if `from` were the caller of this function, whose table says: rbx is the address of `from`,
 * and the frame address, the return address and rbp of the caller are there (DW_CFA_def_cfa_expression and
 * DW_CFA_expression with DW_OP_breg3, DW_OP_deref). Other registers of the caller are not known: tables hardly need
 * them.
 */
_Static_assert(offsetof(struct chain_frame, pc) == 0 && offsetof(struct chain_frame, sp) == 8 &&
                   offsetof(struct chain_frame, fp) == 16,
               "as the table below has it");
#define IN_REGISTER __attribute__((unused)) /* the code below takes it from there */
__attribute__((naked, noinline)) static void resume(IN_REGISTER _Unwind_Trace_Fn put,
                                                    IN_REGISTER struct frames *frames,
                                                    IN_REGISTER const struct chain_frame *from)
{
    __asm__("push %rbx\n\t"
            ".cfi_adjust_cfa_offset 8\n\t"
            ".cfi_rel_offset %rbx, 0\n\t"
            "mov %rdx, %rbx\n\t"
            ".cfi_remember_state\n\t"
            ".cfi_escape 0x0f, 3, 0x73, 8, 0x06\n\t"
            ".cfi_escape 0x10, 16, 2, 0x73, 0\n\t"
            ".cfi_escape 0x10, 6, 2, 0x73, 16\n\t"
            "call _Unwind_Backtrace\n\t"
            ".cfi_restore_state\n\t"
            "pop %rbx\n\t"
            ".cfi_adjust_cfa_offset -8\n\t"
            ".cfi_restore %rbx\n\t"
            "ret");
}
