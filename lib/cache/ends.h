/*
 * The sheaves at the ends of a slot's word (cache/slot/slot.h).
 *
 * The two ends change places when the pop end is empty and the push end is not, or when the push end is full and
 * the pop end is at most three quarters full. ends_swap() does so by one section. All other changes are made to
 * detached sheaves. ends_detach() replaces the word by 0, and from then on the sheaves belong to the caller alone,
 * like a spare that was taken. The caller changes them and gives them back by ends_attach(). If another thread or
 * a signal handler uses the slot meanwhile, it finds the constant sheaf and attaches a sheaf of its own;
 * ends_attach() then passes the detached sheaves to the spare, the barn or the slabs. A child of fork loses the
 * sheaves that other threads had detached.
 *
 * Accounts. Fast operations are not counted one by one. Their numbers follow from the positions of the ends and
 * from an account in the first word of a sheaf, which is written when the ends are attached. With two ends it is
 * the sheaf of the push end:
 *
 * pushes: pushes before this sheaf became the push end, less the objects that it had then, counted up from
 * slot_fold_start, so that it overflows after fold_interval pushes;
 *
 * total: objects in both sheaves when they were attached.
 *
 * Then pushes = `pushes` - slot_fold_start + objects at the push end now, and pops = pushes + total - objects at both
 * ends now. Before ends_swap() commits, it writes the account of the new push end, computed from the old one, so
 * that a restarted section writes the same again. If there is no push end, the account is `count_then` of the sheaf
 * at the pop end: its objects when it was attached. The one end of a LIFO cache has the same account, and its pops
 * are counted in the word, from `pops_start` on.
 *
 * Limits. A feature may limit the number of fast pops until the slow path is taken (ops->limit()). A LIFO word then
 * counts from a number that overflows at that pop. With two ends the sheaf at the pop end gets no more objects than
 * that, and ends_swap() is limited by the number from which `pushes` counts. The upper six bits of `total` tell
 * which one that is (ends.c).
 */
#ifndef SHEAF_CACHE_ENDS_H
#define SHEAF_CACHE_ENDS_H

#include "cache/kmem_cache.h"

struct ends {
    struct sheaf *pop, *push; /* NULL: none. A LIFO cache has only the first. */
};

/* Fast operations that follow from a slot's word, and the objects at its ends. All are 0 if a remote drain holds the
 * ends. */
struct ends_account {
    uint32_t pops, pushes;
    unsigned pop_depth, push_depth;
};
struct ends_account ends_account(const struct kmem_cache *cache, uint64_t top);

/* Write the account of these sheaves, and return the word with which the slot uses them. `count` of each sheaf must
 * be the number of its objects. */
uint64_t ends_top(const struct kmem_cache *cache, unsigned slot, struct ends ends);

/* Add the operations that follow from `top`, a word that was just removed from a slot, to the counters. Returns
 * its sheaves, with `count` set to the number of their objects. */
struct ends ends_fold(struct kmem_cache *cache, unsigned slot, uint64_t top);

/* Take the sheaves of the slot whose word is `top`; both are NULL if the word is 0. Returns false if the thread is
 * not on that slot or the word has changed. */
bool ends_detach(struct kmem_cache *cache, unsigned slot, uint64_t top, struct ends *ends);

/* Attach detached sheaves if the slot's word is still 0. Otherwise put them where they are most useful
 * (cache_put_sheaf()). */
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
bool ends_swap(unsigned slot, struct word_id id);

/*
 * The same for detached ends. The new push end is NULL if there was no sheaf at the pop end and there is no memory
 * for one. Sheaves of hot classes grow.
 */
void ends_exchange(struct kmem_cache *cache, unsigned slot, struct ends *ends);

/* Make `sheaf` the pop end, or the push end, of the slot whose word was `top`. The sheaf that was there is put
 * where it is most useful; if the word has changed, the new one is. The one end of a LIFO cache is both. */
void ends_replace_pop(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf);
void ends_replace_push(struct kmem_cache *cache, unsigned slot, uint64_t top, struct sheaf *sheaf);

#endif
