#include "cache/stops.h"

/* ---- the upper bits of `count` ---- */

enum { PLAIN = 0, LEVEL_FIRST = 1, LEVEL_LAST = 7, NEAR = 14, STOP = 15 };
#define STATE_SHIFT 10
#define MEAN_SHIFT  14

static uint16_t mark(unsigned objects, unsigned state, unsigned mean)
{
    sheaf_assert(objects <= STOPS_OBJECTS && mean < 4);
    return (uint16_t)(objects | state << STATE_SHIFT | mean << MEAN_SHIFT);
}

static unsigned state_of(uint16_t count)
{
    return count >> STATE_SHIFT & 15;
}

/*
 * Level j: the stop comes after at least quota(j) pops and before quota(j - 1), which is twice as much, or at any
 * later time for the first level.
 */
#define QUOTA_LEAST 16u
static uint32_t quota(unsigned level)
{
    return (0u - slot_fold_start) >> (level - LEVEL_FIRST);
}

/* ---- arming ---- */

static uint64_t arm_lifo(struct sheaf *sheaf, uint32_t pops, unsigned mean)
{
    bool within = pops < 0u - slot_fold_start;
    uint32_t start = within ? UINT32_MAX - pops : slot_fold_start;
    uint64_t top = top_of(end_of(sheaf), start);
    sheaf->link = start;
    sheaf->count = mark(sheaf->count, within ? STOP : LEVEL_FIRST, mean);
    return top;
}

/*
 * Whether all numbers of a level agree with what was known when the number was drawn. Otherwise a later draw, which
 * knows the level alone, would have another distribution. An exact number of the first level was kept where no number
 * could be forgotten, so nothing else was known of it.
 */
static bool nested(unsigned level, const struct pops_due *due)
{
    if (level == LEVEL_FIRST && due->known && due->span == 1)
        return true;
    uint64_t above = level == LEVEL_FIRST ? UINT64_MAX : quota(level - 1);
    return quota(level) >= due->least && (!due->span || above <= (uint64_t)due->least + due->span);
}

/* Whether the ends' account may have that level. */
static bool level_fits(unsigned level, unsigned objects, const struct pops_due *due)
{
    return quota(level) >= objects && nested(level, due);
}

uint32_t stops_far(const struct kmem_cache *cache, const struct ends *ends)
{
    bool coarse = cache->lifo || (ends->push && level_fits(LEVEL_FIRST, ends->pop->count, &ends->due));
    return coarse ? quota(LEVEL_FIRST) : UINT32_MAX;
}

/*
 * The level of `pops`; PLAIN if the exact number has to be kept. That is so where the stop is near, and in the two
 * intervals that contain a bound of what is known: after an overflow these are no longer than what is exchanged at
 * once, or improbable.
 */
static unsigned level_for(uint32_t pops, unsigned objects, const struct pops_due *due)
{
    for (unsigned level = LEVEL_FIRST; level <= LEVEL_LAST && quota(level) >= QUOTA_LEAST; level++)
        if (quota(level) <= pops)
            return level_fits(level, objects, due) ? level : PLAIN;
    return PLAIN;
}

/* Put a NULL below the uppermost `pops` objects. A full sheaf first gives an object to the other one. Returns false
 * if neither has room; the stop then comes late, at the next exchange. */
static bool place(struct ends ends, uint32_t pops)
{
    struct sheaf *pop = ends.pop, *push = ends.push;
    if (pop->count == pop->capacity) {
        if (!push || push->count == push->capacity)
            return false;
        push->objects[push->count++] = pop->objects[--pop->count];
    }
    unsigned at = pop->count - pops;
    pop->objects[pop->count] = pop->objects[at]; /* if pops is 0, both are the new top */
    pop->objects[at] = NULL;
    pop->count++;
    return true;
}

bool stops_arm(const struct kmem_cache *cache, struct ends ends, uint32_t pops, uint64_t *top)
{
    unsigned mean = ends.due.mean;
    if (pops == UINT32_MAX)
        return false;
    if (cache->lifo) {
        *top = arm_lifo(ends.pop, pops, mean);
        return true;
    }
    unsigned level = ends.push ? level_for(pops, ends.pop->count, &ends.due) : PLAIN;
    unsigned state = level ? level : pops < ends.pop->count && place(ends, pops) ? STOP : NEAR;
    uint16_t in_pop = ends.pop->count;
    *top = top_of(end_of(ends.pop), end_of(ends.push));
    if (!level)
        ends.pop->link = pops;
    if (!ends.push) {
        ends.pop->count = mark(in_pop, state, mean);
        return true;
    }
    ends.push->link = level ? in_pop - 1u - quota(level) : UINT32_MAX;
    ends.push->count = mark(in_pop + ends.push->count, state, mean);
    return true;
}

/* ---- reading ---- */

/* The sheaf whose `count` describes the word; NULL if there is none. */
static const struct sheaf *holder_of(const struct kmem_cache *cache, uint64_t top)
{
    uint32_t push_end = cache->lifo ? 0 : top_push_end(top), pop_end = top_pop_end(top);
    return push_end ? sheaf_containing(push_end) : pop_end ? sheaf_containing(pop_end) : NULL;
}

bool stops_account(const struct kmem_cache *cache, uint64_t top, struct ends_account *a)
{
    const struct sheaf *holder = holder_of(cache, top);
    unsigned state = holder ? state_of(holder->count) : PLAIN;
    if (state == PLAIN)
        return false;
    unsigned objects = holder->count & STOPS_OBJECTS;
    if (cache->lifo) {
        a->pops = top_push_end(top) - holder->link;
        a->pushes = a->pops + a->pop_depth - objects;
        return true;
    }
    if (state < NEAR) {
        a->pushes = holder->link + 1 + quota(state) - objects + a->push_depth;
        a->pops = a->pushes + objects - a->pop_depth - a->push_depth;
        return true;
    }
    unsigned in_pop = sheaf_containing(top_pop_end(top))->count & STOPS_OBJECTS;
    a->pops = in_pop - a->pop_depth;
    a->pushes = top_push_end(top) ? a->push_depth - (objects - in_pop) : 0;
    a->stopped = state == STOP;
    a->pop_depth -= a->stopped;
    return true;
}

static struct pops_due due_of(const struct kmem_cache *cache, const struct sheaf *holder, const struct sheaf *pop,
                              uint32_t pops)
{
    unsigned state = state_of(holder->count);
    bool exact = state >= NEAR;
    uint32_t least = !exact ? quota(state) : cache->lifo ? UINT32_MAX - pop->link : pop->link;
    return (struct pops_due){
        .known = true,
        .mean = (uint8_t)(holder->count >> MEAN_SHIFT),
        .least = least > pops ? least - pops : 0,
        .span = exact                  ? 1
                : state == LEVEL_FIRST ? 0
                                       : quota(state - 1) - quota(state),
    };
}

void stops_fold(const struct kmem_cache *cache, uint64_t top, struct ends *ends, const struct ends_account *account)
{
    const struct sheaf *holder = holder_of(cache, top);
    if (!holder || state_of(holder->count) == PLAIN)
        return;
    struct sheaf *pop = ends->pop;
    ends->due = due_of(cache, holder, pop, account->pops);
    if (!account->stopped)
        return;
    unsigned at = (pop->count & STOPS_OBJECTS) - 1u - pop->link;
    sheaf_assert(at <= account->pop_depth && !pop->objects[at]);
    pop->objects[at] = pop->objects[account->pop_depth]; /* the uppermost entry, which may be the NULL itself */
}

bool stops_here(const struct kmem_cache *cache, uint64_t top)
{
    uint32_t end = top_pop_end(top);
    if (end <= END_HELD || !end_depth(end))
        return false;
    if (cache->lifo)
        return top_full_count(top) && state_of(read_once(sheaf_containing(end)->count)) == STOP;
    return !__atomic_load_n(&sheaf_entry(end)[-1], __ATOMIC_ACQUIRE);
}
