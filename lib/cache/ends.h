/*
 * The sheaves at the ends of a slot's word (slot/slot.h).
 *
 * Two ends change places when the pop end is empty and the push end is not, or when the push end is full and the pop
 * end at most three quarters: ends_swap(), by one section. All other changes are made to detached sheaves.
 * ends_detach() puts 0 in the place of the word; from then on the sheaves belong to the caller alone, as a spare that
 * was taken does. The caller changes them and gives them back by ends_attach(). Another thread or a signal handler on
 * the slot meanwhile finds the constant sheaf, and installs a sheaf of its own; then ends_attach() passes ours to the
 * spare, the barn or the slabs. A fork meanwhile loses them to the child, as every sheaf in a thread's hands.
 *
 * Accounts. Fast operations are not counted one by one; they follow from where the ends stand and from what is
 * written in the first word of a sheaf when the ends are attached. With two ends it is the sheaf of the push end:
 *
 * link: pushes before this sheaf became the push end, less the objects that it had then, counted up from
 * slot_fold_start, so that it overflows after fold_interval pushes;
 *
 * count: objects in both sheaves when they were attached.
 *
 * Then pushes = link - slot_fold_start + objects at the push end now, and pops = pushes + count - objects at both
 * ends now. ends_swap() writes the account of the new push end before its commit, from the old one, so that a
 * restarted section writes the same again. The first word of the sheaf at the pop end tells nothing of operations,
 * except where there is no push end: there its `count` is what it had when it was attached. The one end of a LIFO
 * cache has that, too, and its pops are counted in the word.
 */
#ifndef SHEAF_CACHE_ENDS_H
#define SHEAF_CACHE_ENDS_H

#include "cache/kmem_cache.h"

struct ends {
    struct sheaf *pop, *push; /* NULL: none. A LIFO cache has only the first. */
};

/* Fast operations implied by a slot's word, and the objects at its ends; nothing of a held one. */
struct ends_account {
    uint32_t pops, pushes;
    unsigned pop_depth, push_depth;
};
struct ends_account ends_account(const struct kmem_cache *cache, uint64_t top);

/* Open an account, and return the word that makes a slot use these sheaves, whose counts are right. */
uint64_t ends_top(const struct kmem_cache *cache, struct ends ends);

/* The sheaves whose ends were just removed from a slot: count their operations, and make their counts right. */
struct ends ends_fold(struct kmem_cache *cache, unsigned slot, uint64_t top);

/* Take the sheaves of the slot whose word is `top`. False: the thread is not on that slot, or the word has changed.
 */
bool ends_detach(struct kmem_cache *cache, unsigned slot, uint64_t top, struct ends *ends);

/* Give them back to the slot if it has none, else to where they are most useful. */
void ends_attach(struct kmem_cache *cache, unsigned slot, struct ends ends);

/* Whether to exchange the ends: the pop end is empty and the push end is not, or the push end is full and the other
 * sheaf leaves room for a quarter of its capacity. */
static inline bool ends_due(unsigned pop_depth, unsigned push_depth, unsigned capacity)
{
    return pop_depth ? push_depth >= capacity && 4 * pop_depth <= 3 * capacity : push_depth;
}

/*
 * Exchange the two ends of the cache with this id if that is due. Returns false if it is not, or if growth or a full
 * account requires ends_exchange().
 */
bool ends_swap(unsigned slot, uintptr_t id);

/*
 * The same for detached ends. The new push end is NULL if there was no sheaf at the pop end and there is no memory
 * for one. Sheaves of hot classes grow.
 */
void ends_exchange(struct kmem_cache *cache, unsigned slot, struct ends *ends);

/*
 * Make `sheaf` the pop end, or the push end, of the slot whose word was `top`. The sheaf that was there is put where
 * it is most useful, and so is the new one where the word has changed. The one end of a LIFO cache is both.
 */
void ends_replace_pop(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf);
void ends_replace_push(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf);

#endif
