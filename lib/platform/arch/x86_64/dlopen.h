/* The entry points dlopen() and dlmopen() of preload/dlopen.c on x86-64. Included there alone. */

/* `flags` changes the register of the flags. The look-up keeps the registers of the three arguments. */
#define REPLACEMENT(name, flags)                                                                                     \
    ".globl " name "\n"                                                                                              \
    ".type " name ", @function\n" name ":\n\t"                                                                       \
    ".cfi_startproc\n"                                                                                               \
    "1:\tmovq " name "_next(%rip), %rax\n\t"                                                                         \
    "testq %rax, %rax\n\t"                                                                                           \
    "jz 2f\n\t" flags "jmpq *%rax\n"                                                                                 \
    "2:\tpushq %rdi\n\t"                                                                                             \
    ".cfi_adjust_cfa_offset 8\n\t"                                                                                   \
    "pushq %rsi\n\t"                                                                                                 \
    ".cfi_adjust_cfa_offset 8\n\t"                                                                                   \
    "pushq %rdx\n\t" /* the stack is aligned now */                                                                  \
    ".cfi_adjust_cfa_offset 8\n\t"                                                                                   \
    "call dlopen_find\n\t"                                                                                           \
    "popq %rdx\n\t"                                                                                                  \
    ".cfi_adjust_cfa_offset -8\n\t"                                                                                  \
    "popq %rsi\n\t"                                                                                                  \
    ".cfi_adjust_cfa_offset -8\n\t"                                                                                  \
    "popq %rdi\n\t"                                                                                                  \
    ".cfi_adjust_cfa_offset -8\n\t"                                                                                  \
    "jmp 1b\n\t"                                                                                                     \
    ".cfi_endproc\n\t"                                                                                               \
    ".size " name ", . - " name "\n"

__asm__(".text\n" REPLACEMENT("dlopen", "andl dlopen_flags(%rip), %esi\n\t")
            REPLACEMENT("dlmopen", "testq %rdi, %rdi\n\t" /* another namespace has a libc and a malloc of its own */
                                   "jnz 3f\n\t"
                                   "andl dlopen_flags(%rip), %edx\n"
                                   "3:\t"));
