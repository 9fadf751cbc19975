/* The shadow heap that scenarios share: who has which object, and what must hold at the end. */
#ifndef SHEAF_EXPLORE_HEAP_H
#define SHEAF_EXPLORE_HEAP_H

#include "explore.h"
#include "cache/kmem_cache.h"
#include "sheaf/kmem_cache.h"

extern struct kmem_cache *cache; /* the explored one */

/* Create it, and let n objects of the CPU's slot lie at its ends. */
void create(unsigned size, unsigned capacity);
void warm(unsigned cpu, unsigned n);

/* An object of the cache, filled with a mark that nobody else has; and back. */
void *take(void);
void *try_take(void); /* NULL if there is none, as in a signal handler */
void give(void *object);

/* The same for memory that came another way. */
void hold(void *object, size_t size);
void let_go(void *object);
bool is_held(const void *object);
unsigned held_count(void);

/*
 * At the end: no lock is held, no end is claimed, each object is in one place, and the counters know how many are in
 * use. check_all() then frees all, and nothing may be left.
 */
void check_locks(void);
void check_cache(void);
void check_all(void);

#endif
