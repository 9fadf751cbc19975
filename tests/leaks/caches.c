/*
 * The leak report of a program that contains the allocator, and its caches: objects that the allocator keeps, in
 * prefilled sheaves, in the reserve, in sheaves and barns, or until a grace period has passed, are not lost. The
 * program's own malloc is libc's.
 */
#include <urcu-bp.h>

#include "leaks.h"
#include "diagnostics/leak/leak.h"
#include "sheaf/kmem_cache.h"
#include "sheaf/malloc.h"
#include "sheaf/rcu.h"

#include <pthread.h>
#include <sched.h>

static struct kmem_cache *things;
static struct slab_sheaf *volatile sheaf;

static void *volatile kept;

static void *thing(void)
{
    void *p = kmem_cache_alloc(things, GFP_KERNEL | __GFP_ZERO);
    must(p);
    return p;
}

static void create(void)
{
    things = kmem_cache_create("things", 128, NULL, 0);
    must(things);
}

static void lose_things(void)
{
    void *all[40];
    create();
    for (int i = 0; i < 5; i++)
        sink = thing();
    must(kmem_cache_alloc_bulk(things, GFP_KERNEL, 40, all));
    kmem_cache_free_bulk(things, 40, all);
}

static void keep_things(void)
{
    void **first;
    create();
    kept = first = thing();
    *first = sheaf_calloc(1, 100000);
}

LEAK_CASE_WITH(referenced_objects_of_a_cache, "nothing lost", "128.1 KiB in 2 blocks", 0)
{
    away(keep_things);
    leak_report();
}

LEAK_CASE_WITH(lost_objects_of_a_cache, "lost 640 bytes in 5 blocks", "640 bytes in 5 blocks of things, lost", 0)
{
    away(lose_things);
    leak_report();
}

static void prefill(void)
{
    create();
    sheaf = kmem_cache_prefill_sheaf(things, GFP_KERNEL, 700); /* several sheaves */
    must(sheaf);
    for (int i = 0; i < 3; i++)
        sink = kmem_cache_alloc_from_sheaf(things, GFP_KERNEL, sheaf);
    must(kmem_cache_reserve(things, 50) == 0);
}

LEAK_CASE(prefilled_sheaves_and_the_reserve, "lost 384 bytes in 3 blocks")
{
    away(prefill);
    leak_report();
}

static _Atomic int state;

static void *reader(void *unused)
{
    rcu_read_lock();
    state = 1;
    while (state)
        usleep(1000);
    rcu_read_unlock();
    return unused;
}

static void defer(void)
{
    create();
    for (int i = 0; i < 500; i++) {
        void **object = thing();
        *object = i < 2 ? sheaf_calloc(1, 1024) : NULL; /* what a deferred free does not free */
        kfree_rcu(object);
        kfree_rcu(sheaf_calloc(1, 256));
    }
    kfree_rcu(sheaf_calloc(1, 1 << 20));
}

/* While a reader holds up the grace period. The thread that waits for it blocks all signals. */
LEAK_CASE(deferred_frees, "lost 2 KiB in 2 blocks")
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, reader, NULL) == 0);
    while (!state)
        sched_yield();
    away(defer);
    leak_report();
}
