/* The sections of os/rseq.h for x86-64. The thread pointer is %fs. */
#ifndef SHEAF_OS_RSEQ_X86_64_H
#define SHEAF_OS_RSEQ_X86_64_H

#define RSEQ_SIGNATURE 0x53053053 /* what glibc registered with; must stand before each abort handler */

/* Labels in all three: 1 first instruction, 2 behind the commit, 3 the descriptor, 4 the abort handler, 5 entry. */
#define RSEQ_DESCRIPTOR                                                                                              \
    ".pushsection __rseq_cs, \"aw\"\n\t"                                                                             \
    ".balign 32\n"                                                                                                   \
    "3:\n\t"                                                                                                         \
    ".long 0, 0\n\t"                                                                                                 \
    ".quad 1f, 2f - 1f, 4f\n\t"                                                                                      \
    ".popsection\n"

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

/* t = base + slot * 64 KiB: the words of the slot begin SLOT_WORDS_OFF below */
#define RSEQ_SLOT_WORDS                                                                                              \
    "movl %%fs:(%[slot]), %k[t]\n\t"                                                                                 \
    "shlq $16, %[t]\n\t"                                                                                             \
    "addq %[base], %[t]\n\t"

/* The object, or NULL when the sheaf is empty (or its count of pops is full). */
static always_inline void *rseq_pop(const struct rseq_area *area, uintptr_t base, uintptr_t id)
{
    uintptr_t t, w, u, p;
    __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_ENTER RSEQ_SLOT_WORDS "movq -64(%[t], %[id]), %[w]\n\t"
                                                                     "movl %k[w], %k[u]\n\t"
                                                                     "movq -8(%[base], %[u]), %[p]\n\t"
                                                                     "testq %[p], %[p]\n\t"
                                                                     "jz %l[fail]\n\t"
                                                                     "movl $0xfffffff8, %k[u]\n\t"
                                                                     "addq %[u], %[w]\n\t"
                                                                     "jc %l[fail]\n\t"
                                                                     "movq %[w], -64(%[t], %[id])\n"
                                                                     "2:\n" RSEQ_ABORT
                          : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [p] "=&r"(p)
                          : [cs] "r"(area->cs), [slot] "r"(area->slot), [base] "r"(base), [id] "r"(id)
                          : "memory", "cc"
                          : fail);
    return (void *)p;
fail:
    return NULL;
}

/*
 * False: the sheaf is full, or p was among the two latest frees.
 *
 * The id comes from a load that depends on p. When one class makes up nearly all of a slot's traffic (slot_head's
 * hot_id), comparing with it turns that dependence into a prediction, and the word is loaded at once: a malloc/free
 * pair took 6.8 ns without and 3.6 with it (Sapphire Rapids). With mixed classes hot_id is 0, because a wrong
 * prediction costs as much as it saves: a random mix of two classes took 11 ns where the latest class was always
 * tried, 5.4 without.
 */
static always_inline bool rseq_push(const struct rseq_area *area, uintptr_t base, uintptr_t id, void *object)
{
    uintptr_t t, w, u, last;
    __asm__ goto volatile(
        RSEQ_DESCRIPTOR RSEQ_ENTER RSEQ_SLOT_WORDS "movzwl -24(%[t]), %k[last]\n\t"
                                                   "cmpl %k[id], %k[last]\n\t"
                                                   "je 6f\n\t"
                                                   "movl %k[id], %k[last]\n"
                                                   "6:\n\t"
                                                   "movq -64(%[t], %[last]), %[w]\n\t"
                                                   "movl %k[w], %k[u]\n\t"
                                                   "cmpq %[p], -8(%[base], %[u])\n\t"
                                                   "je %l[fail]\n\t"
                                                   "cmpq %[p], -16(%[base], %[u])\n\t"
                                                   "je %l[fail]\n\t"
                                                   "cmpq $1, (%[base], %[u])\n\t"
                                                   "je %l[fail]\n\t"
                                                   "movq %[p], (%[base], %[u])\n\t"
                                                   "addq $8, %[w]\n\t"
                                                   "movq %[w], -64(%[t], %[last])\n"
                                                   "2:\n" RSEQ_ABORT
        : [t] "=&r"(t), [w] "=&r"(w), [u] "=&r"(u), [last] "=&r"(last)
        : [cs] "r"(area->cs), [slot] "r"(area->slot), [base] "r"(base), [id] "r"(id), [p] "r"(object)
        : "memory", "cc"
        : fail);
    return true;
fail:
    return false;
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
