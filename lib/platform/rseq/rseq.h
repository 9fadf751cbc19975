/*
 * Restartable sequences: the critical sections, and the registration that they run on.
 *
 * A section is a few instructions that end in one store, the commit. If the thread is preempted, migrated or
 * signalled inside, the kernel sends it to the abort handler, which starts the section again. In pseudo-code `slot`
 * is the number that the kernel keeps in the thread's rseq area, `at` the address of the 8-byte word of that slot and
 * id, and `zero` the address of the constant sheaf (cache/slot/slot.h has the two formats of the word):
 *
 *   pop(id)         w = low32(at); p = [zero + w - 8]; if p == 0 fail              empty
 *                   low32(at) = w - 8                                              commit
 *   pop_lifo(id)    as pop(id), but
 *                   n = high32(at) + 1; if that overflowed fail                    one pop more
 *                   at = w - 8 and n, in one store of 8 bytes                      commit
 *   push(id, p)     w = 32 bits at `at`; if [zero + w - 8] == p or [zero + w - 16] == p fail    freed twice
 *                   if [zero + w] == base fail                                     full
 *                   [zero + w] = p; 32 bits at `at` = w + 8                        commit
 *   install(s, at, old, new)    if slot != s or at != old fail; at = new           commit
 *   exchange(s, at, old, from, to, n)    if slot != s or at != old fail
 *                   if low32(from) + n overflowed fail
 *                   to = from + n, all 8 bytes                                     a restart writes the same again
 *                   at = old with its halves exchanged                             commit
 *   add(first, stride, n, open)    if slot >= open fail
 *                   [first + slot * stride] += n                                   commit
 *
 * The id of a push is that of the word where it works on the low half, and 4 more where it works on the high one.
 * pop_local(id) is pop(id + local), where `local` is read from the slot's head: the word of the sibling for the
 * slot's node (cache/node/node.h). pop_class, pop_lifo_cid and push_slice are for slots numbered by mm_cid; pop_class
 * and push_slice read the id from a table, malloc's by size and that of slices. A push that is restarted after it
 * stored p leaves p above the end, where nothing reads it. Of the kernel's area only rseq_cs is ever written
 * (google/tcmalloc#292).
 */
#ifndef SHEAF_RSEQ_RSEQ_H
#define SHEAF_RSEQ_RSEQ_H

#include "platform/arch/arch.h"
#include "platform/os/compiler.h"
#include "platform/rseq/layout.h"

/*
 * The two ids of a cache, offsets in the page of each slot: that of its word, and that of the half that a push works
 * on. They are equal for LIFO caches, so no test of such a cache finds one given for the other; the compiler does.
 */
struct word_id {
    uintptr_t at;
};
struct push_id {
    uintptr_t at;
};

/* Both are offsets from the thread pointer. */
struct rseq_area {
    uintptr_t cs;   /* of the field rseq_cs */
    uintptr_t slot; /* of the field that is the slot's number: mm_cid or cpu_id */
};

/*
 * What the fast paths and their sections read first, in one cache line. `area` is a copy of that at base + AREA_AT.
 * On x86-64 sections read the copy, so that its load does not wait for that of the base, which saves 4 to 5 cycles of
 * each malloc and free. slot_init() and fast_enable() (front/malloc/classes.c) write it.
 */
struct rseq_roots {
    struct rseq_area area;
    uintptr_t cid_base, cpu_base, cxx_base; /* see fast_enable() */
};
extern hidden struct rseq_roots rseq_roots;
_Static_assert(offsetof(struct rseq_area, slot) == RSEQ_AREA_SLOT_AT && offsetof(struct rseq_roots, area) == 0 &&
                   SLOT_SHIFT_8 * 8 == SLOT_SHIFT,
               "as platform/rseq/layout.h says");

enum rseq_owner { RSEQ_NONE, RSEQ_LIBC, RSEQ_OWN };

/* Sections that the kernel restarted, counted by the abort handlers. */
extern hidden uint64_t rseq_restarts;

/*
 * Find out which area the calling thread has. With `own` an area is registered if libc has registered none; with
 * `want_cid` slots are numbered by mm_cid if the kernel has it, and *is_cid is whether they are. To be called before
 * any section runs.
 */
enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *area, bool *is_cid);

/* Under RSEQ_OWN each thread must register once. Returns whether the calling thread is registered. */
bool rseq_register_thread(const struct rseq_area *area);

/*
 * For a child that shares the memory and the thread pointer of its parent while that is suspended (vfork()). The
 * kernel has dropped the registration in the child: rseq_stand_in() registers the parent's area for it. Returns false
 * if the kernel refuses. The registration ends when the child executes a program or exits, and leaves the child's
 * numbers in the area. From Linux 6.19 on the kernel writes the parent's numbers only when they change, so the parent
 * calls rseq_renew() afterwards, which makes the kernel write them. Signals must be blocked from before the child is
 * made until each of them has made its call.
 */
bool rseq_stand_in(const struct rseq_area *area);
void rseq_renew(const struct rseq_area *area);

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
#elif __has_include(ARCH_HEADER(rseq.h))
#define SHEAF_HAVE_RSEQ 1
#include ARCH_HEADER(rseq.h)
#endif

#if !SHEAF_HAVE_RSEQ
#define rseq_pop_local      rseq_pop
#define rseq_pop_lifo       rseq_pop
#define rseq_pop_lifo_cid   rseq_pop
#define rseq_pop_lifo_local rseq_pop
/* Without rseq all sections fail, so that every operation takes a path that needs none. */
static inline void *rseq_pop(uintptr_t base, struct word_id id)
{
    (void)base, (void)id;
    return NULL;
}
static inline void *rseq_pop_class(uintptr_t base, size_t size)
{
    (void)base, (void)size;
    return NULL;
}
static inline bool rseq_push(uintptr_t base, struct push_id id, void *p)
{
    (void)base, (void)id, (void)p;
    return false;
}
static inline bool rseq_push_slice(uintptr_t base, uintptr_t slice, void *p)
{
    (void)base, (void)slice, (void)p;
    return false;
}
static inline bool rseq_install(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                uint64_t new)
{
    (void)area, (void)slot, (void)word, (void)old, (void)new;
    return false;
}
static inline bool rseq_exchange(const struct rseq_area *area, uint32_t slot, uint64_t *word, uint64_t old,
                                 const void *from, void *to, uint32_t n)
{
    (void)area, (void)slot, (void)word, (void)old, (void)from, (void)to, (void)n;
    return false;
}
static inline uint32_t rseq_add(const struct rseq_area *area, uintptr_t first, intptr_t stride, uint64_t n,
                                uint32_t open)
{
    (void)area, (void)first, (void)stride, (void)n, (void)open;
    return 0;
}
static inline uint32_t rseq_slot(const struct rseq_area *area)
{
    (void)area;
    return 0;
}
#endif

#endif
