/* The sections of os/rseq.h for x86-64. The thread pointer is %fs. */
#ifndef SHEAF_OS_RSEQ_X86_64_H
#define SHEAF_OS_RSEQ_X86_64_H

#define RSEQ_SIGNATURE 0x53053053 /* what glibc registered with; must stand before each abort handler */

#define RSEQ_ABORT                                                                                                   \
    ".pushsection .text.rseq_abort, \"ax\"\n\t"                                                                      \
    ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1 with the signature as its operand: disassemblers stay in step */             \
    ".long 0x53053053\n"                                                                                             \
    "4:\n\t"                                                                                                         \
    "lock incq rseq_restarts(%%rip)\n\t"                                                                             \
    "jmp 5b\n\t"                                                                                                     \
    ".popsection\n"

#define RSEQ_ENTER                                                                                                   \
    "5:\n\t"                                                                                                         \
    "leaq 3b(%%rip), %[t]\n\t"                                                                                       \
    "movq %[t], %%fs:(%[cs])\n"                                                                                      \
    "1:\n\t"

/*
 * t = base + slot * 64 KiB + id, the address of the word. The load begins two bytes below the field, so that the
 * number comes out shifted by 16: what lies below are the upper bytes of node_id or cpu_id_start, 0 on any machine
 * with fewer than 65536 of them. The address is computed whole because a word just stored is loaded again at no cost
 * through (register), and after 8 cycles through (register, register) (Sapphire Rapids).
 */
#define RSEQ_WORD(slot)                                                                                              \
    "movl %%fs:" slot ", %k[t]\n\t"                                                                                  \
    "addq %[base], %[t]\n\t"                                                                                         \
    "addq %[id], %[t]\n\t"

/* The same for the slot's own sibling of the cache: plus what the slot's head says. */
#define RSEQ_WORD_NEAR(slot)                                                                                         \
    "movl %%fs:" slot ", %k[t]\n\t"                                                                                  \
    "addq %[base], %[t]\n\t"                                                                                         \
    "movl 8(%[t]), %k[w]\n\t"                                                                                        \
    "addq %[id], %[t]\n\t"                                                                                           \
    "addq %[w], %[t]\n\t"

/* The object, or NULL when the sheaf is empty (or its count of pops is full). */
#define RSEQ_POP(name, word_text, slot_offset)                                                                       \
    static always_inline void *name(uintptr_t base, uintptr_t id)                                                    \
    {                                                                                                                \
        const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);                                   \
        uintptr_t t, w, p;                                                                                           \
        __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER word_text "movq (%[t]), %[w]\n\t"                           \
                                                                   "movl %k[w], %k[p]\n\t"                           \
                                                                   "movq 56(%[base], %[p]), %[p]\n\t"                \
                                                                   "testq %[p], %[p]\n\t"                            \
                                                                   "jz %l[fail]\n\t"                                 \
                                                                   "addq 96(%[base]), %[w]\n\t"                      \
                                                                   "jc %l[fail]\n\t"                                 \
                                                                   "movq %[w], (%[t])\n"                             \
                                                                   "2:\n" RSEQ_ABORT                                 \
                              : [t] "=&r"(t), [w] "=&r"(w), [p] "=&a"(p)                                             \
                              : [cs] "r"(area->cs), [slot] "r"(slot_offset), [base] "r"(base), [id] "r"(id)          \
                              : "memory", "cc"                                                                       \
                              : fail);                                                                               \
        if (!p)                                                                                                      \
            __builtin_unreachable();                                                                                 \
        return (void *)p;                                                                                            \
    fail:                                                                                                            \
        return NULL;                                                                                                 \
    }

/* False: the sheaf is full, or p was among the two latest frees. */
#define RSEQ_PUSH(name, word_text, slot_offset)                                                                      \
    static always_inline bool name(uintptr_t base, uintptr_t id, void *object)                                       \
    {                                                                                                                \
        const struct rseq_area *area = (const struct rseq_area *)(base + AREA_AT);                                   \
        uintptr_t t, w, u;                                                                                           \
        __asm__ goto volatile(                                                                                       \
            RSEQ_DESCRIPTOR RSEQ_ENTER word_text "movq (%[t]), %[w]\n\t"                                             \
                                                 "movl %k[w], %k[u]\n\t"                                             \
                                                 "cmpq %[p], 56(%[base], %[u])\n\t"                                  \
                                                 "je %l[fail]\n\t"                                                   \
                                                 "cmpq %[p], 48(%[base], %[u])\n\t"                                  \
                                                 "je %l[fail]\n\t"                                                   \
                                                 "cmpq %[base], 64(%[base], %[u])\n\t"                               \
                                                 "je %l[fail]\n\t"                                                   \
                                                 "movq %[p], 64(%[base], %[u])\n\t"                                  \
                                                 "addq $8, %[w]\n\t"                                                 \
                                                 "movq %[w], (%[t])\n"                                               \
                                                 "2:\n" RSEQ_ABORT                                                   \
            : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u)                                                               \
            : [cs] "r"(area->cs), [slot] "r"(slot_offset), [base] "r"(base), [id] "r"(id), [p] "r"(object)           \
            : "memory", "cc"                                                                                         \
            : fail);                                                                                                 \
        return true;                                                                                                 \
    fail:                                                                                                            \
        return false;                                                                                                \
    }

#define RSEQ_SLOT_ANY "-2(%[slot])"
/* mm_cid lies 16 bytes behind rseq_cs: one load less, and a pair takes 3.8 ns instead of 4.2. */
#define RSEQ_SLOT_CID "14(%[cs])"

RSEQ_POP(rseq_pop, RSEQ_WORD(RSEQ_SLOT_ANY), area->slot)
RSEQ_POP(rseq_pop_cid, RSEQ_WORD(RSEQ_SLOT_CID), area->cs)
RSEQ_POP(rseq_pop_near, RSEQ_WORD_NEAR(RSEQ_SLOT_ANY), area->slot)
RSEQ_PUSH(rseq_push, RSEQ_WORD(RSEQ_SLOT_ANY), area->slot)
RSEQ_PUSH(rseq_push_cid, RSEQ_WORD(RSEQ_SLOT_CID), area->cs)

/* Add to the word at `offset` in the slot's block (cache/counters.h: blocks of 512 KiB, up from `base` or down);
 * which slot it was. */
static always_inline uint32_t rseq_add(const struct rseq_area *area, uintptr_t base, uintptr_t offset, uint64_t n)
{
    uintptr_t t, at, down = -(base & 1), first = base + down + offset;
    __asm__ volatile(RSEQ_DESCRIPTOR RSEQ_ENTER "movl %%fs:(%[slot]), %k[t]\n\t"
                                                "movl %k[t], %k[at]\n\t"
                                                "xorq %[down], %[t]\n\t"
                                                "shlq $19, %[t]\n\t"
                                                "addq %[first], %[t]\n\t"
                                                "addq %[n], (%[t])\n"
                                                "2:\n" RSEQ_ABORT
                     : [t] "=&r"(t), [at] "=&r"(at)
                     : [cs] "r"(area->cs), [slot] "r"(area->slot), [first] "r"(first), [down] "r"(down), [n] "r"(n)
                     : "memory", "cc");
    return (uint32_t)at;
}

/* False: this thread is not on that slot, or the word is another one. */
static always_inline bool rseq_install(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                       uint64_t new)
{
    uintptr_t t;
    __asm__ goto volatile(
        RSEQ_DESCRIPTOR RSEQ_ENTER "cmpl %%fs:(%[slot]), %[s]\n\t"
                                   "jne %l[fail]\n\t"
                                   "cmpq %[old], (%[word])\n\t"
                                   "jne %l[fail]\n\t"
                                   "movq %[new], (%[word])\n"
                                   "2:\n" RSEQ_ABORT
        : [t] "=&r"(t)
        : [cs] "r"(area->cs), [slot] "r"(area->slot), [s] "r"(slot), [word] "r"(word), [old] "r"(old), [new] "r"(new)
        : "memory", "cc"
        : fail);
    return true;
fail:
    return false;
}

static inline uint32_t rseq_slot(const struct rseq_area *area)
{
    uint32_t slot;
    __asm__ volatile("movl %%fs:(%1), %0" : "=r"(slot) : "r"(area->slot));
    return slot;
}

#endif
