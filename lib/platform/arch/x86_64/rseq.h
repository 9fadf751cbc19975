/* The sections of platform/rseq/rseq.h for x86-64. The thread pointer is %fs. */
#ifndef SHEAF_ARCH_RSEQ_H
#define SHEAF_ARCH_RSEQ_H

#define RSEQ_SIGNATURE 0x53053053 /* glibc registers with it; the kernel wants it before each abort handler */

#define RSEQ_ABORT                                                                                                   \
    ".pushsection .text.rseq_abort, \"ax\"\n\t"                                                                      \
    ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1 with the signature as its operand: disassemblers stay in step */             \
    ".long " RSEQ_TEXT(RSEQ_SIGNATURE) "\n"                                                                          \
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
 * The beginning of pops and pushes: enter the section, and load the slot's number into t. `temp` is any register that
 * the section sets later. The section loads the offsets of the area into t itself, and the ids from tables into w:
 * with five registers, none of which needs a prefix, malloc() fits into one cache line.
 *
 * The load of the number begins two bytes below the field, which yields the number shifted by SLOT_SHIFT. The bytes
 * below are the upper half of node_id or cpu_id_start: 0, because there are fewer than 65536 nodes and CPUs.
 */
#define RSEQ_BEGIN(temp)                                                                                             \
    "5:\n\t"                                                                                                         \
    "movq rseq_roots(%%rip), %[t]\n\t"                                                                               \
    "leaq 3b(%%rip), %[" temp "]\n\t"                                                                                \
    "movq %[" temp "], %%fs:(%[t])\n"                                                                                \
    "1:\n\t"
#define RSEQ_SLOT_ANY                                                                                                \
    "movq rseq_roots+" RSEQ_TEXT(RSEQ_AREA_SLOT_AT) "(%%rip), %[t]\n\t"                                              \
    "movl %%fs:-" RSEQ_TEXT(SLOT_SHIFT_8) "(%[t]), %k[t]\n\t"
/* mm_cid lies at a known distance from rseq_cs, which saves one load: a pair takes 3.8 ns instead of 4.2. */
#define RSEQ_SLOT_CID                                                                                                \
    "movl %%fs:" RSEQ_TEXT(RSEQ_MM_CID_AT) "-" RSEQ_TEXT(RSEQ_CS_AT) "-" RSEQ_TEXT(SLOT_SHIFT_8) "(%[t]), %k[t]\n\t"

/*
 * Sets t to base + slot * 64 KiB + id, the address of the word. The whole address is computed, because a load through
 * (register) gets a word that was just stored without delay, and a load through (register, register) after 8 cycles
 * (Sapphire Rapids). The id is an operand, or is read from a table with two bytes an entry that the operand indexes:
 * at base, or at base + CLASS_TABLE_AT.
 */
#define RSEQ_WORD                                                                                                    \
    "addq %[base], %[t]\n\t"                                                                                         \
    "addq %[id], %[t]\n\t"
#define RSEQ_WORD_IN(displacement)                                                                                   \
    "movzwl " displacement "(%[base], %[id], 2), %k[w]\n\t"                                                          \
    "addq %[base], %[t]\n\t"                                                                                         \
    "addq %[w], %[t]\n\t"
/* The same for the sibling of the slot's node: the head of the slot holds the distance to its word. */
#define RSEQ_WORD_LOCAL                                                                                               \
    "addq %[base], %[t]\n\t"                                                                                         \
    "movl " RSEQ_TEXT(LOCAL_AT) "(%[t]), %k[w]\n\t"                                                                   \
    "addq %[id], %[t]\n\t"                                                                                           \
    "addq %[w], %[t]\n\t"

/* The rest of a pop, with the address of the word in t: sets w and p, and commits by the last instruction. */
#define RSEQ_POP_ENDS                                                                                                \
    "movl (%[t]), %k[w]\n\t"                                                                                         \
    "movq " RSEQ_LAST "(%[base], %[w]), %[p]\n\t"                                                                    \
    "testq %[p], %[p]\n\t"                                                                                           \
    "jz %l[fail]\n\t"                                                                                                \
    "subl $8, %k[w]\n\t"                                                                                             \
    "movl %k[w], (%[t])\n"

/*
 * The halves are loaded one by one: a push stores only the low half, and a load of both halves would wait until that
 * store has left the store buffer.
 */
#define RSEQ_POP_LIFO                                                                                                \
    "movl (%[t]), %k[w]\n\t"                                                                                         \
    "movq " RSEQ_LAST "(%[base], %[w]), %[p]\n\t"                                                                    \
    "testq %[p], %[p]\n\t"                                                                                           \
    "jz %l[fail]\n\t"                                                                                                \
    "movl " RSEQ_TEXT(HIGH_HALF_AT) "(%[t]), %k[n]\n\t"                                                              \
    "addl $1, %k[n]\n\t"                                                                                             \
    "jc %l[fail]\n\t"                                                                                                \
    "shlq $32, %[n]\n\t"                                                                                             \
    "leaq -8(%[w], %[n]), %[w]\n\t"                                                                                  \
    "movq %[w], (%[t])\n"

/* Returns an object, or NULL if the sheaf is empty or, in a LIFO cache, the count of pops is full. */
#define RSEQ_POP(name, parameter, operand, address_text, pop_text)                                                   \
    static always_inline void *name(uintptr_t base, parameter)                                                       \
    {                                                                                                                \
        uintptr_t t, w, n, p;                                                                                        \
        __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_BEGIN("p") address_text pop_text "2:\n" RSEQ_ABORT                \
                              : [t] "=&r"(t), [w] "=&r"(w), [n] "=&r"(n), [p] "=&a"(p)                               \
                              : [base] "r"(base), [id] "r"(operand)                                                  \
                              : "memory", "cc"                                                                       \
                              : fail);                                                                               \
        if (!p)                                                                                                      \
            __builtin_unreachable();                                                                                 \
        return (void *)p;                                                                                            \
    fail:                                                                                                            \
        return NULL;                                                                                                 \
    }

#define RSEQ_PUSH_END                                                                                                \
    "movl (%[t]), %k[w]\n\t"                                                                                         \
    "cmpq %[p], " RSEQ_LAST "(%[base], %[w])\n\t"                                                                    \
    "je %l[fail]\n\t"                                                                                                \
    "cmpq %[p], " RSEQ_BEFORE "(%[base], %[w])\n\t"                                                                  \
    "je %l[fail]\n\t"                                                                                                \
    "cmpq %[base], " RSEQ_ENTRY "(%[base], %[w])\n\t"                                                                \
    "je %l[fail]\n\t"                                                                                                \
    "movq %[p], " RSEQ_ENTRY "(%[base], %[w])\n\t"                                                                   \
    "addl $8, %k[w]\n\t"                                                                                             \
    "movl %k[w], (%[t])\n"

/* Returns false if the sheaf is full, or if p was among the two latest frees. */
#define RSEQ_PUSH(name, parameter, operand, address_text)                                                            \
    static always_inline bool name(uintptr_t base, parameter, void *object)                                          \
    {                                                                                                                \
        uintptr_t t, w;                                                                                              \
        __asm__ goto volatile(RSEQ_DESCRIPTOR RSEQ_BEGIN("w") address_text RSEQ_PUSH_END "2:\n" RSEQ_ABORT           \
                              : [t] "=&r"(t), [w] "=&r"(w)                                                           \
                              : [base] "r"(base), [id] "r"(operand), [p] "r"(object)                                 \
                              : "memory", "cc"                                                                       \
                              : fail);                                                                               \
        return true;                                                                                                 \
    fail:                                                                                                            \
        return false;                                                                                                \
    }

RSEQ_POP(rseq_pop, struct word_id id, id.at, RSEQ_SLOT_ANY RSEQ_WORD, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_local, struct word_id id, id.at, RSEQ_SLOT_ANY RSEQ_WORD_LOCAL, RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_class, size_t size, size, RSEQ_SLOT_CID RSEQ_WORD_IN(RSEQ_TEXT(CLASS_TABLE_AT)), RSEQ_POP_ENDS)
RSEQ_POP(rseq_pop_lifo, struct word_id id, id.at, RSEQ_SLOT_ANY RSEQ_WORD, RSEQ_POP_LIFO)
RSEQ_POP(rseq_pop_lifo_cid, struct word_id id, id.at, RSEQ_SLOT_CID RSEQ_WORD, RSEQ_POP_LIFO)
RSEQ_POP(rseq_pop_lifo_local, struct word_id id, id.at, RSEQ_SLOT_ANY RSEQ_WORD_LOCAL, RSEQ_POP_LIFO)
RSEQ_PUSH(rseq_push, struct push_id id, id.at, RSEQ_SLOT_ANY RSEQ_WORD)
RSEQ_PUSH(rseq_push_slice, uintptr_t slice, slice, RSEQ_SLOT_CID RSEQ_WORD_IN(""))

/*
 * Adds n to the word at first + slot * stride, where slot is that of the calling thread, and returns the slot. Adds
 * nothing if that is `open` or larger.
 */
static always_inline uint32_t rseq_add(const struct rseq_area *area, uintptr_t first, intptr_t stride, uint64_t n,
                                     uint32_t open)
{
    uintptr_t t, at;
    __asm__ volatile(RSEQ_DESCRIPTOR RSEQ_ENTER "movl %%fs:(%[slot]), %k[t]\n\t"
                                                "movl %k[t], %k[at]\n\t"
                                                "cmpl %[open], %k[t]\n\t"
                                                "jae 2f\n\t"
                                                "imulq %[stride], %[t]\n\t"
                                                "addq %[first], %[t]\n\t"
                                                "addq %[n], (%[t])\n"
                                                "2:\n" RSEQ_ABORT
                     : [t] "=&r"(t), [at] "=&r"(at)
                     : [cs] "r"(area->cs), [slot] "r"(area->slot), [first] "r"(first), [stride] "r"(stride), [open] "r"(open), [n] "r"(n)
                     : "memory", "cc");
    return (uint32_t)at;
}

/* Returns false if the thread is not on that slot, or if the word is not `old`. */
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

/* Returns false if the thread is not on that slot, if the word is not `old`, or if the total overflows. */
static always_inline bool rseq_exchange(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                        const void *from, void *to, uint32_t n)
{
    uintptr_t t, u;
    __asm__ goto volatile(
        RSEQ_DESCRIPTOR RSEQ_ENTER "cmpl %%fs:(%[slot]), %[s]\n\t"
                                   "jne %l[fail]\n\t"
                                   "cmpl %k[old], (%[word])\n\t"
                                   "jne %l[fail]\n\t"
                                   "cmpl %k[new], " RSEQ_TEXT(HIGH_HALF_AT) "(%[word])\n\t"
                                   "jne %l[fail]\n\t"
                                   "movq (%[from]), %[t]\n\t"
                                   "movl %k[t], %k[u]\n\t"
                                   "addl %k[n], %k[u]\n\t"
                                   "jc %l[fail]\n\t"
                                   "addq %[n], %[t]\n\t"
                                   "movq %[t], (%[to])\n\t"
                                   "movq %[new], (%[word])\n"
                                   "2:\n" RSEQ_ABORT
        : [t] "=&r"(t), [u] "=&r"(u)
        : [cs] "r"(area->cs), [slot] "r"(area->slot), [s] "r"(slot), [word] "r"(word), [old] "r"(old),
          [new] "r"(old >> 32 | old << 32), [from] "r"(from), [to] "r"(to), [n] "r"((uint64_t)n)
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
