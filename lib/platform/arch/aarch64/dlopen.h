/* The entry points dlopen() and dlmopen() of preload/dlopen.c on aarch64. Included there alone. */

#define REPLACEMENT(name, flags)                                                                                     \
    ".globl " name "\n"                                                                                              \
    ".type " name ", %function\n" name ":\n\t"                                                                       \
    ".cfi_startproc\n"                                                                                               \
    "1:\tadrp x16, " name "_next\n\t"                                                                                \
    "add x16, x16, :lo12:" name "_next\n\t"                                                                          \
    "ldar x16, [x16]\n\t" /* before dlopen_flags */                                                                  \
    "cbz x16, 2f\n\t"                                                                                                \
    "adrp x17, dlopen_flags\n\t"                                                                                     \
    "ldr w17, [x17, :lo12:dlopen_flags]\n\t" flags "br x16\n"                                                        \
    "2:\tstp x29, x30, [sp, #-48]!\n\t"                                                                              \
    ".cfi_def_cfa_offset 48\n\t"                                                                                     \
    ".cfi_offset 29, -48\n\t"                                                                                        \
    ".cfi_offset 30, -40\n\t"                                                                                        \
    "stp x0, x1, [sp, #16]\n\t"                                                                                      \
    "str x2, [sp, #32]\n\t"                                                                                          \
    "bl dlopen_find\n\t"                                                                                             \
    "ldr x2, [sp, #32]\n\t"                                                                                          \
    "ldp x0, x1, [sp, #16]\n\t"                                                                                      \
    "ldp x29, x30, [sp], #48\n\t"                                                                                    \
    ".cfi_restore 30\n\t"                                                                                            \
    ".cfi_restore 29\n\t"                                                                                            \
    ".cfi_def_cfa_offset 0\n\t"                                                                                      \
    "b 1b\n\t"                                                                                                       \
    ".cfi_endproc\n\t"                                                                                               \
    ".size " name ", . - " name "\n"

__asm__(".text\n" REPLACEMENT("dlopen", "and w1, w1, w17\n\t")
            REPLACEMENT("dlmopen", "cbnz x0, 3f\n\t" /* another namespace has a libc and a malloc of its own */
                                   "and w2, w2, w17\n"
                                   "3:\t"));
