/*
 * Restartable sequences: the critical sections, and whose registration they run on.
 *
 * A section is a few instructions that end in one store. If the thread is preempted, migrated or signalled inside,
 * the kernel sends it to the abort handler, which starts again. In pseudo-code, `slot` being the number the kernel
 * keeps in the thread's rseq area, `words` the words of that slot, `zero` the constant sheaf (see cache/slot.h):
 *
 *   pop(id)         w = words[id]; p = [zero + low32(w) - 8]; if p == 0 fail
 *                   w' = w + 2^32 - 8; if that overflowed fail           one step down, one pop more
 *                   words[id] = w'                                       commit
 *   push(id, p)     w = words[id]; if [zero + low32(w) - 8] == p or [.. - 16] == p fail    freed twice
 *                   if [zero + low32(w)] == base fail                    full
 *                   [zero + low32(w)] = p; words[id] = w + 8             commit
 *   install(s, id, old, new)    if slot != s or words[id] != old fail; words[id] = new    commit
 *   add(first, n)   [first + slot * 512 KiB] += n                          commit
 *
 * pop_near(id) is pop(id + near), `near` being read from the slot's head: the sibling of the slot's node
 * (cache/node.h). pop_cid and push_cid are the same for where the slot is mm_cid. The store of p by a push that is
 * then restarted is harmless: it lies above the top. Only rseq_cs is ever written to the kernel's area
 * (google/tcmalloc#292).
 */
#ifndef SHEAF_OS_RSEQ_H
#define SHEAF_OS_RSEQ_H

#include "os/compiler.h"

#define SLOT_SHIFT  16 /* a slot's words lie 64 KiB apart: a multiple of every page size */
#define CONSTANT_AT 64 /* where in slot 0 the constant sheaf lies, and offsets of sheaves start */
#define NEAR_AT     8  /* where in each slot lies what pop_near adds to the id */
#define AREA_AT     80 /* where in slot 0 struct rseq_area lies */
#define STEP_AT     96 /* and what a pop adds to the word: 2^32 - 8 */

/* Both are offsets from the thread pointer. Sections find them at base + AREA_AT. */
struct rseq_area {
    uintptr_t cs;   /* of the field rseq_cs */
    uintptr_t slot; /* of the field that numbers the slot: mm_cid or cpu_id */
};

enum rseq_owner { RSEQ_NONE, RSEQ_LIBC, RSEQ_OWN };

/* Sections that the kernel restarted, counted by the abort handlers. */
extern hidden uint64_t rseq_restarts;

/*
 * Find out what the calling thread can use. `own` allows to register where libc did not, `want_cid` asks for mm_cid;
 * *is_cid tells whether it is. Must be called before any section runs.
 */
enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid);

/* Under RSEQ_OWN every thread has to register, once; true when it is or was. */
bool rseq_register_thread(const struct rseq_area *area);

/* Labels in all sections: 1 first instruction, 2 behind the commit, 3 descriptor, 4 abort handler, 5 entry. */
#define RSEQ_DESCRIPTOR                                                                                              \
    ".pushsection __rseq_cs, \"aw\"\n\t"                                                                             \
    ".balign 32\n"                                                                                                   \
    "3:\n\t"                                                                                                         \
    ".long 0, 0\n\t"                                                                                                 \
    ".quad 1f, 2f - 1f, 4f\n\t"                                                                                      \
    ".popsection\n"

#if defined(SHEAF_NO_RSEQ)
#define SHEAF_HAVE_RSEQ 0
#elif defined(__x86_64__)
#define SHEAF_HAVE_RSEQ 1
#include "os/rseq_x86_64.h"
#elif defined(__aarch64__)
#define SHEAF_HAVE_RSEQ 1
#include "os/rseq_aarch64.h"
#endif

#if !SHEAF_HAVE_RSEQ
#define rseq_pop_cid  rseq_pop
#define rseq_push_cid rseq_push
#define rseq_pop_near rseq_pop
/* The build without: sections always fail, so every operation takes the way that needs none. */
static inline void *rseq_pop(uintptr_t base, uintptr_t id)
{
    (void)base, (void)id;
    return NULL;
}
static inline bool rseq_push(uintptr_t base, uintptr_t id, void *p)
{
    (void)base, (void)id, (void)p;
    return false;
}
static inline bool rseq_install(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                uint64_t new)
{
    (void)area, (void)slot, (void)word, (void)old, (void)new;
    return false;
}
static inline uint32_t rseq_add(const struct rseq_area *area, uintptr_t base, uintptr_t at, uint64_t n)
{
    (void)area, (void)base, (void)at, (void)n;
    return 0;
}
static inline uint32_t rseq_slot(const struct rseq_area *area)
{
    (void)area;
    return 0;
}
#endif

#endif
