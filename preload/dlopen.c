/*
 * dlopen() and dlmopen() without RTLD_DEEPBIND. A library that is opened with the flag calls libc's free(), but the
 * memory that it gets from the program and from libc was allocated by Sheaf.
 *
 * The entries are assembly that jumps to libc's functions, so that the return address stays the caller's: libc uses
 * it to find the calling object, whose $ORIGIN, RUNPATH and namespace decide where the library is searched. libc's
 * functions are looked up at the first call, so that programs that never call dlopen() do not pay for it.
 */
#define _GNU_SOURCE
#include "platform/config/config.h"
#include "front/malloc/malloc.h"
#include "preload/libc.h"
#include "preload/names.h"

#include <dlfcn.h>

/* libc's functions, NULL before the first call, and the mask of the flags that are passed on to them. */
hidden void *dlopen_next, *dlmopen_next;
hidden int dlopen_flags;
void *dlopen_next, *dlmopen_next;
int dlopen_flags;

/* Called instead of a function that libc does not have. */
static void *no_function(void)
{
    return NULL;
}

/* Looks libc's functions up and reads the option. Threads that race here write the same values. */
hidden void dlopen_find(void);
__attribute__((used)) void dlopen_find(void)
{
    malloc_init(); /* reads the options */
    void *one = libc_symbol(RTLD_NEXT, "dlopen"), *other = libc_symbol(RTLD_NEXT, "dlmopen");
    union {
        void *(*call)(void);
        void *symbol;
    } none = {.call = no_function};
    /* Where Sheaf steps aside, no library gets memory of Sheaf. */
    write_once(dlopen_flags, sheaf_config.deepbind || !names_ours() ? ~0 : ~RTLD_DEEPBIND);
    __atomic_store_n(&dlmopen_next, other ? other : none.symbol, __ATOMIC_RELEASE);
    __atomic_store_n(&dlopen_next, one ? one : none.symbol, __ATOMIC_RELEASE);
}

_Static_assert(LM_ID_BASE == 0, "as below");

#if defined(__x86_64__)

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

#elif defined(__aarch64__)

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

#else

/* libc's functions are used; a library that is opened with RTLD_DEEPBIND uses libc's free(). */

#endif
