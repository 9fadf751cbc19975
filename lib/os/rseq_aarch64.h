/* The sections of os/rseq.h for aarch64. The thread pointer is tpidr_el0. */
#ifndef SHEAF_OS_RSEQ_AARCH64_H
#define SHEAF_OS_RSEQ_AARCH64_H

#define RSEQ_SIGNATURE 0xd428bc00 /* a brk instruction; what glibc registered with */

#define RSEQ_ABORT                                                                                                   \
    ".pushsection .text.rseq_abort, \"ax\"\n\t"                                                                      \
    ".inst 0xd428bc00\n"                                                                                             \
    "4:\n\t"                                                                                                         \
    "adrp %[t], rseq_restarts\n\t"                                                                                   \
    "add %[t], %[t], :lo12:rseq_restarts\n"                                                                          \
    "6:\n\t"                                                                                                         \
    "ldxr %[w], [%[t]]\n\t"                                                                                          \
    "add %[w], %[w], #1\n\t"                                                                                         \
    "stxr %w[u], %[w], [%[t]]\n\t"                                                                                   \
    "cbnz %w[u], 6b\n\t"                                                                                             \
    "b 5b\n\t"                                                                                                       \
    ".popsection\n"

#define RSEQ_ENTER                                                                                                   \
    "5:\n\t"                                                                                                         \
    "adrp %[t], 3b\n\t"                                                                                              \
    "add %[t], %[t], :lo12:3b\n\t"                                                                                   \
    "str %[t], [%[tp], %[cs]]\n"                                                                                     \
    "1:\n\t"

/* t = address of the word */
#define RSEQ_WORD                                                                                                    \
    "ldr %w[t], [%[tp], %[slot]]\n\t"                                                                                \
    "add %[t], %[base], %[t], lsl #16\n\t"                                                                           \
    "add %[t], %[t], %[id]\n\t"

/* The same for the slot's own sibling of the cache: plus what the slot's head says. */
#define RSEQ_WORD_NEAR                                                                                               \
    "ldr %w[t], [%[tp], %[slot]]\n\t"                                                                                \
    "add %[t], %[base], %[t], lsl #16\n\t"                                                                           \
    "ldr %w[w], [%[t], #8]\n\t"                                                                                      \
    "add %[t], %[t], %[id]\n\t"                                                                                      \
    "add %[t], %[t], %[w]\n\t"

/* What follows the address of the word in a pop: w, u and p are set, and the commit is the last instruction. */
#define RSEQ_POP_ENDS                                                                                                \
    "ldr %w[w], [%[t]]\n\t"                                                                                          \
    "add %[u], %[base], %[w]\n\t"                                                                                    \
    "ldr %[p], [%[u], #56]\n\t"                                                                                      \
    "cbz %[p], %l[fail]\n\t"                                                                                         \
    "sub %w[w], %w[w], #8\n\t"                                                                                       \
    "str %w[w], [%[t]]\n"

/* The halves are loaded one by one: a push stores the low one alone. */
#define RSEQ_POP_LIFO                                                                                                \
    "ldr %w[w], [%[t]]\n\t"                                                                                          \
    "add %[u], %[base], %[w]\n\t"                                                                                    \
    "ldr %[p], [%[u], #56]\n\t"                                                                                      \
    "cbz %[p], %l[fail]\n\t"                                                                                         \
    "ldr %w[u], [%[t], #4]\n\t"                                                                                      \
    "adds %w[u], %w[u], #1\n\t"                                                                                      \
    "b.cs %l[fail]\n\t"                                                                                              \
    "sub %w[w], %w[w], #8\n\t"                                                                                       \
    "orr %[w], %[w], %[u], lsl #32\n\t"                                                                              \
    "str %[w], [%[t]]\n"

/* The object, or NULL when the sheaf is empty (or, of a LIFO cache, the count of pops is full). */
#define RSEQ_POP(name, word_text, pop_text)                                                                          \
    static always_inline void *name(uintptr_t base, uintptr_t id)                                                    \
    {                                                                                                                \
        const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);                                   \
        uintptr_t t, w, u, p;                                                                                        \
        __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER word_text pop_text "2:\n" RSEQ_ABORT                        \
                              : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [p] "=&r"(p)                               \
                              : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),    \
                                [base] "r"(base), [id] "r"(id)                                                       \
                              : "memory", "cc"                                                                       \
                              : fail);                                                                               \
        return (void *)p;                                                                                            \
    fail:                                                                                                            \
        return NULL;                                                                                                 \
    }

RSEQ_POP(rseq_pop, RSEQ_WORD, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_near, RSEQ_WORD_NEAR, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_lifo, RSEQ_WORD, RSEQ_POP_LIFO)
RSEQ_POP(rseq_pop_lifo_near, RSEQ_WORD_NEAR, RSEQ_POP_LIFO)

/* False: the sheaf is full, or p was among the two latest frees. */
static always_inline bool rseq_push(uintptr_t base, uintptr_t id, void *object)
{
    const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);
    uintptr_t t, w, u, e;
    __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER RSEQ_WORD "ldr %w[w], [%[t]]\n\t"
                                                               "add %[u], %[base], %[w]\n\t"
                                                               "ldr %[e], [%[u], #56]\n\t"
                                                               "cmp %[e], %[p]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "ldr %[e], [%[u], #48]\n\t"
                                                               "cmp %[e], %[p]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "ldr %[e], [%[u], #64]\n\t"
                                                               "cmp %[e], %[base]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "str %[p], [%[u], #64]\n\t"
                                                               "add %w[w], %w[w], #8\n\t"
                                                               "str %w[w], [%[t]]\n"
                                                               "2:\n" RSEQ_ABORT
                          : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [e] "=&r"(e)
                          : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),
                            [base] "r"(base), [id] "r"(id), [p] "r"(object)
                          : "memory", "cc"
                          : fail);
    return true;
fail:
    return false;
}

/* Where mm_cid lies saves nothing here, nor do loads from the tables within the section. */
#define rseq_pop_lifo_cid rseq_pop_lifo
static always_inline void *rseq_pop_class(uintptr_t base, size_t n)
{
    return rseq_pop(base, *(const uint16_t *)(base + CLASS_TABLE_AT + 2 * n));
}
static always_inline bool rseq_push_unit(uintptr_t base, intptr_t at, void *object)
{
    return rseq_push(base, ((const uint16_t *)base)[at], object);
}

/* Add to the slot's word: `first` is where slot 0 has it, and each further slot `stride` bytes on; which slot
 * it was. At or above `open` nothing is added. */
static always_inline uint32_t rseq_add(const struct rseq_area *area, uintptr_t first, intptr_t stride, uint64_t n,
                                     uint32_t open)
{
    uintptr_t t, w, u, at;
    __asm__ volatile(RSEQ_DESCRIPTOR RSEQ_ENTER "ldr %w[at], [%[tp], %[slot]]\n\t"
                                                "cmp %w[at], %w[open]\n\t"
                                                "b.hs 2f\n\t"
                                                "madd %[t], %[at], %[stride], %[first]\n\t"
                                                "ldr %[w], [%[t]]\n\t"
                                                "add %[w], %[w], %[n]\n\t"
                                                "str %[w], [%[t]]\n"
                                                "2:\n" RSEQ_ABORT
                     : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [at] "=&r"(at)
                     : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),
                       [first] "r"(first), [stride] "r"(stride), [open] "r"(open), [n] "r"(n)
                     : "memory", "cc");
    return (uint32_t)at;
}

/* False: this thread is not on that slot, or the word is another one. */
static always_inline bool rseq_install(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                       uint64_t new)
{
    uintptr_t t, w, u;
    __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER "ldr %w[t], [%[tp], %[slot]]\n\t"
                                                     "cmp %w[t], %w[s]\n\t"
                                                     "b.ne %l[fail]\n\t"
                                                     "ldr %[w], [%[word]]\n\t"
                                                     "cmp %[w], %[old]\n\t"
                                                     "b.ne %l[fail]\n\t"
                                                     "str %[new], [%[word]]\n"
                                                     "2:\n" RSEQ_ABORT
                          : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u)
                          : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),
                            [s] "r"(slot), [word] "r"(word), [old] "r"(old), [new] "r"(new)
                          : "memory", "cc"
                          : fail);
    return true;
fail:
    return false;
}

/* False: this thread is not on that slot, the word is another one, or the total overflowed. */
static always_inline bool rseq_exchange(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                        const void *from, void *to, uint32_t n)
{
    uintptr_t t, w, u;
    __asm__ goto volatile(
        RSEQ_DESCRIPTOR RSEQ_ENTER "ldr %w[t], [%[tp], %[slot]]\n\t"
                                   "cmp %w[t], %w[s]\n\t"
                                   "b.ne %l[fail]\n\t"
                                   "ldr %[w], [%[word]]\n\t"
                                   "cmp %[w], %[old]\n\t"
                                   "b.ne %l[fail]\n\t"
                                   "eor %[t], %[w], %[old]\n\t" /* 0: so the next load waits for the word's */
                                   "add %[t], %[from], %[t]\n\t"
                                   "ldr %[t], [%[t]]\n\t"
                                   "adds %w[u], %w[t], %w[n]\n\t"
                                   "b.cs %l[fail]\n\t"
                                   "add %[t], %[t], %w[n], uxtw\n\t"
                                   "str %[t], [%[to]]\n\t"
                                   "ror %[w], %[w], #32\n\t"
                                   "str %[w], [%[word]]\n"
                                   "2:\n" RSEQ_ABORT
        : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u)
        : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot), [s] "r"(slot),
          [word] "r"(word), [old] "r"(old), [from] "r"(from), [to] "r"(to), [n] "r"(n)
        : "memory", "cc"
        : fail);
    return true;
fail:
    return false;
}

static inline uint32_t rseq_slot(const struct rseq_area *area)
{
    return *(volatile uint32_t *)((char *)__builtin_thread_pointer() + area->slot);
}

#endif
