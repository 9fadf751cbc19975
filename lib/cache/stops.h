/*
 * Stops: the fast pop at which a slot's word takes the slow path, so that one allocation can be sampled at exactly
 * the place that was drawn (profile/profile.h). Fast paths are not involved: a stop is something that they miss at
 * anyway.
 *
 * ops->draw() says how many fast pops come before the next stop. A LIFO word counts pops, so its count is set such
 * that it becomes full after that number. With two ends pops are not counted. Three forms of the account cover this:
 *
 *   stop    The stop lies in the sheaf at the pop end. A NULL is put between its entries at the right depth, and
 *           pops find the sheaf empty there. The displaced object is put on top.
 *   near    The stop lies shortly behind that sheaf. Each exchange of the ends takes the slow path, which places the
 *           NULL when the time has come.
 *   level   The stop lies farther away. Exchanges by ends_swap() are limited such that at most `quota` pops happen
 *           before one takes the slow path, and the stop lies in [quota, upper bound of the level). The exact number
 *           has no room in the account, so it is forgotten. The slow path draws it again from the distribution under
 *           this condition (struct pops_due), so that the distances are distributed as if it were drawn once.
 *
 * The sheaf that has the account is the one at the push end or, if there is none, the one at the pop end. While it is
 * in a slot, its `count` has three parts: objects in the lower 10 bits, the form in the next four, and in the upper
 * two the mean with which the number was drawn.
 *
 *   plain   all 0: as in cache/ends.h; nothing is known of the next stop
 *   level j link of the push end: (objects at the pop end when attached) - 1 - quota, plus the objects that were
 *           exchanged since, so that it overflows after quota - objects; count: objects in both sheaves
 *   near    link of the pop end: pops until the stop; count of the pop end: its objects when attached, the NULL
 *   stop    included; link of the push end: the largest number, so that every exchange overflows
 *   LIFO    stop: link of the sheaf: the number at which the count of pops began
 *
 * A takeover or a slow path that detaches the ends finds what is due in struct ends and removes the NULL, so that no
 * sheaf outside a slot ever holds one. What is due survives ends_detach() followed by ends_attach(), and is dropped
 * with sheaves that go elsewhere. That is no bias: such moments do not depend on the number, and the distribution is
 * memoryless.
 */
#ifndef SHEAF_CACHE_STOPS_H
#define SHEAF_CACHE_STOPS_H

#include "cache/ends.h"

/* `count` of a sheaf that has the account of a slot's ends. Two sheaves of one piece each have fewer objects. */
#define STOPS_OBJECTS 0x3ffu
_Static_assert(2 * ((1u << SHEAF_ORDER_MAX) - 3) <= STOPS_OBJECTS, "the objects of both sheaves fit their bits");

/* All stops that come after at least this many fast pops get the same account. UINT32_MAX: each has its own. */
uint32_t stops_far(const struct kmem_cache *cache, const struct ends *ends);

/*
 * Attach sheaves such that the stop comes after `pops` fast pops; UINT32_MAX: no stop. ends.pop is not NULL. Writes
 * the account, and stores the word in *top. Returns false, with the sheaves unchanged, if the account stays plain.
 */
bool stops_arm(const struct kmem_cache *cache, struct ends ends, uint32_t pops, uint64_t *top);

/* Set the counts of operations from `top` if its account is not plain; otherwise return false. */
bool stops_account(const struct kmem_cache *cache, uint64_t top, struct ends_account *account);

/* Remove the NULL from sheaves that were detached with `top`, and set ends->due. `count` of the sheaves is not
 * changed: the caller sets it from the account. */
void stops_fold(const struct kmem_cache *cache, uint64_t top, struct ends *ends, const struct ends_account *account);

/* Whether the next pop from this word is the one that was to stop. */
bool stops_here(const struct kmem_cache *cache, uint64_t top);

#endif
