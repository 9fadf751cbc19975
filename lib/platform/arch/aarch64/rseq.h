/* The sections of platform/rseq/rseq.h for aarch64. The thread pointer is tpidr_el0. */
#ifndef SHEAF_ARCH_RSEQ_H
#define SHEAF_ARCH_RSEQ_H

#define RSEQ_SIGNATURE 0xd428bc00 /* a brk instruction; glibc registers with it */

#define RSEQ_ABORT                                                                                                   \
    ".pushsection .text.rseq_abort, \"ax\"\n\t"                                                                      \
    ".inst " RSEQ_TEXT(RSEQ_SIGNATURE) "\n"                                                                          \
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

/* Sets t to the address of the word. */
#define RSEQ_WORD                                                                                                    \
    "ldr %w[t], [%[tp], %[slot]]\n\t"                                                                                \
    "add %[t], %[base], %[t], lsl #" RSEQ_TEXT(SLOT_SHIFT) "\n\t"                                                    \
    "add %[t], %[t], %[id]\n\t"

/* The same for the sibling of the slot's node: the head of the slot holds the distance to its word. */
#define RSEQ_WORD_LOCAL                                                                                               \
    "ldr %w[t], [%[tp], %[slot]]\n\t"                                                                                \
    "add %[t], %[base], %[t], lsl #" RSEQ_TEXT(SLOT_SHIFT) "\n\t"                                                    \
    "ldr %w[w], [%[t], #" RSEQ_TEXT(LOCAL_AT) "]\n\t"                                                                 \
    "add %[t], %[t], %[id]\n\t"                                                                                      \
    "add %[t], %[t], %[w]\n\t"

/* The rest of a pop, with the address of the word in t: sets w, u and p, and commits by the last instruction. */
#define RSEQ_POP_ENDS                                                                                                \
    "ldr %w[w], [%[t]]\n\t"                                                                                          \
    "add %[u], %[base], %[w]\n\t"                                                                                    \
    "ldr %[p], [%[u], #" RSEQ_LAST "]\n\t"                                                                           \
    "cbz %[p], %l[fail]\n\t"                                                                                         \
    "sub %w[w], %w[w], #8\n\t"                                                                                       \
    "str %w[w], [%[t]]\n"

/*
 * The halves are loaded one by one, because a push stores only the low half. A remote drain that gives a word back
 * stores both at once, and the count must not be older than the end: the end is loaded by load-acquire, which costs no
 * instruction (tests/litmus/lifo-count.litmus).
 */
#define RSEQ_POP_LIFO                                                                                                \
    "ldar %w[w], [%[t]]\n\t"                                                                                         \
    "add %[u], %[base], %[w]\n\t"                                                                                    \
    "ldr %[p], [%[u], #" RSEQ_LAST "]\n\t"                                                                           \
    "cbz %[p], %l[fail]\n\t"                                                                                         \
    "ldr %w[u], [%[t], #" RSEQ_TEXT(HIGH_HALF_AT) "]\n\t"                                                            \
    "adds %w[u], %w[u], #1\n\t"                                                                                      \
    "b.cs %l[fail]\n\t"                                                                                              \
    "sub %w[w], %w[w], #8\n\t"                                                                                       \
    "orr %[w], %[w], %[u], lsl #32\n\t"                                                                              \
    "str %[w], [%[t]]\n"

/* Returns an object, or NULL if the sheaf is empty or, in a LIFO cache, the count of pops is full. */
#define RSEQ_POP(name, word_text, pop_text)                                                                          \
    static always_inline void *name(uintptr_t base, struct word_id id)                                               \
    {                                                                                                                \
        const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);                                   \
        uintptr_t t, w, u, p;                                                                                        \
        __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER word_text pop_text "2:\n" RSEQ_ABORT                        \
                              : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [p] "=&r"(p)                               \
                              : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),    \
                                [base] "r"(base), [id] "r"(id.at)                                                    \
                              : "memory", "cc"                                                                       \
                              : fail);                                                                               \
        return (void *)p;                                                                                            \
    fail:                                                                                                            \
        return NULL;                                                                                                 \
    }

RSEQ_POP(rseq_pop, RSEQ_WORD, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_local, RSEQ_WORD_LOCAL, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_lifo, RSEQ_WORD, RSEQ_POP_LIFO)
RSEQ_POP(rseq_pop_lifo_local, RSEQ_WORD_LOCAL, RSEQ_POP_LIFO)

/* Returns false if the sheaf is full, or if p was among the two latest frees. */
static always_inline bool rseq_push(uintptr_t base, struct push_id id, void *object)
{
    const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);
    uintptr_t t, w, u, e;
    __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER RSEQ_WORD "ldr %w[w], [%[t]]\n\t"
                                                               "add %[u], %[base], %[w]\n\t"
                                                               "ldr %[e], [%[u], #" RSEQ_LAST "]\n\t"
                                                               "cmp %[e], %[p]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "ldr %[e], [%[u], #" RSEQ_BEFORE "]\n\t"
                                                               "cmp %[e], %[p]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "ldr %[e], [%[u], #" RSEQ_ENTRY "]\n\t"
                                                               "cmp %[e], %[base]\n\t"
                                                               "b.eq %l[fail]\n\t"
                                                               "str %[p], [%[u], #" RSEQ_ENTRY "]\n\t"
                                                               "add %w[w], %w[w], #8\n\t"
                                                               "str %w[w], [%[t]]\n"
                                                               "2:\n" RSEQ_ABORT
                          : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [e] "=&r"(e)
                          : [tp] "r"(__builtin_thread_pointer()), [cs] "r"(area->cs), [slot] "r"(area->slot),
                            [base] "r"(base), [id] "r"(id.at), [p] "r"(object)
                          : "memory", "cc"
                          : fail);
    return true;
fail:
    return false;
}

/* A known distance to mm_cid saves nothing here, nor do loads from the tables within the section. */
#define rseq_pop_lifo_cid rseq_pop_lifo
static always_inline void *rseq_pop_class(uintptr_t base, size_t size)
{
    return rseq_pop(base, (struct word_id){*(const uint16_t *)(base + CLASS_TABLE_AT + 2 * size)});
}
static always_inline bool rseq_push_slice(uintptr_t base, uintptr_t slice, void *object)
{
    return rseq_push(base, (struct push_id){((const uint16_t *)base)[(intptr_t)slice]}, object);
}

/*
 * Adds n to the word at first + slot * stride, where slot is that of the calling thread, and returns the slot. Adds
 * nothing if that is `open` or larger.
 */
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

/* Returns false if the thread is not on that slot, or if the word is not `old`. */
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

/* Returns false if the thread is not on that slot, if the word is not `old`, or if the total overflows. */
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
                                   "eor %[t], %[w], %[old]\n\t" /* 0, so that the next load waits for that of the word */
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
