/* Limits of fast allocations (cache/ends.h): none comes after the last that is allowed, the counts stay right, and
 * the exchanges of the ends stay out of the slow path while a limit is far away. Includes internal headers. */
#include "../cases.h"
#include "class.h"
#include "cache/ends.h"
#include "platform/config/config.h"
#include "process/census.h"

enum { QUEUE = 2000, OPERATIONS = 1 << 20 };

void sheaf_configure(struct sheaf_config *config)
{
    config->profile = 0;
}

/* ---- a feature that limits ---- */

static uint32_t left;           /* allocations until one must take the slow path */
static uint64_t seen, too_many; /* allocations; those that came too late */

static void counted(const struct kmem_cache *cache, unsigned slot, uint32_t n)
{
    (void)cache, (void)slot;
    seen += n;
    too_many += n > left;
    left = n < left ? left - n : 0;
}

static uint32_t limit(const struct kmem_cache *cache, unsigned slot)
{
    (void)cache, (void)slot;
    return left;
}

static uint32_t most;
static uint32_t random_number(void)
{
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

/* Where the limit was reached, the ends are detached, so that all is counted, and the next limit is drawn. */
static void *sample(struct kmem_cache *cache, size_t n, size_t align)
{
    (void)n, (void)align;
    unsigned slot = slot_current();
    uint64_t top = read_once(slot_words(slot, word_id(cache->number))->top);
    struct ends ends;
    if (ends_account(cache, top).pops >= left && ends_detach(cache, slot, top, &ends)) {
        left = 1 + random_number() % most; /* the request itself comes first */
        ends_attach(cache, slot, ends);
    }
    return NULL;
}

static const struct cache_ops ops = {.counted = counted, .limit = limit, .sample = sample};

/* The sheaves that the slot has already get the limit, too. */
static void attach_with(struct kmem_cache *cache, uint32_t first)
{
    unsigned slot = slot_current();
    struct ends ends;
    left = UINT32_MAX;
    cache_attach(cache, &ops);
    must(ends_detach(cache, slot, read_once(slot_words(slot, word_id(cache->number))->top), &ends));
    left = first;
    ends_attach(cache, slot, ends);
}

/* Allocates and frees at random, a queue that grows and shrinks. Returns the number of allocations. */
static uint64_t churn(size_t size, unsigned operations)
{
    static void *queue[QUEUE];
    uint64_t allocations = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < operations; i++) {
        bool grow = random_number() % 2000 < (i >> 12 & 1 ? 1100u : 900u);
        if (n && (n == QUEUE || !grow)) {
            sheaf_free(queue[--n]);
            continue;
        }
        must((queue[n++] = sheaf_malloc(size)));
        allocations++;
    }
    while (n)
        sheaf_free(queue[--n]);
    return allocations;
}

static uint64_t counted_allocations(const struct kmem_cache *cache)
{
    uint64_t pops = 0;
    for (unsigned slot = 0; slot < slot_top; slot++)
        pops += ends_account(cache, read_once(slot_words(slot, word_id(cache->number))->top)).pops;
    return pops + counter_sum(cache->number, COUNT_alloc_fastpath) + counter_sum(cache->number, COUNT_alloc_slowpath);
}

static void run(size_t size, uint32_t up_to)
{
    struct kmem_cache *cache = class_of_size(size);
    most = up_to;
    attach_with(cache, 0);
    uint64_t before = counted_allocations(cache);
    seen = too_many = 0;
    uint64_t allocations = churn(size, OPERATIONS);
    must(counted_allocations(cache) - before == allocations);
    must(too_many == 0);
    must(seen <= allocations && seen + most >= allocations);
    struct cache_census census;
    cache_census(cache, &census);
    must(census.in_use == 0);
    cache_check(cache);
}

/* ---- cases ---- */

CASE(near_limits)
{
    run(64, 3);
    run(80, 40);
}

CASE(middle_limits)
{
    run(96, 500);
    run(1000, 5000);
}

CASE(far_limits)
{
    run(112, 1000000);
}

CASE(lifo_limits)
{
    run(1500, 3);
    run(2000, 700);
    run(5000, 1000000);
}

/* The queue exchanges the ends about once for each sheaf; an account is full after some thousand operations. */
CASE(far_limits_leave_exchanges_fast)
{
    static void *queue[100];
    struct kmem_cache *cache = class_of_size(128);
    most = UINT32_MAX;
    attach_with(cache, 1 << 30);
    for (unsigned i = 0; i < 100; i++)
        must((queue[i] = sheaf_malloc(128)));
    uint64_t before = counter_sum(cache->number, COUNT_alloc_slowpath);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        sheaf_free(queue[i % 100]);
        must((queue[i % 100] = sheaf_malloc(128)));
    }
    must(counter_sum(cache->number, COUNT_alloc_slowpath) - before < OPERATIONS / 2000);
}

/* A census reads the word and then the account, which may be that of a later word: here one that allows no exchange,
 * with a word that has no pop end. */
CASE(an_account_of_a_later_word)
{
    struct kmem_cache *cache = class_of_size(64);
    unsigned slot = slot_current();
    uint64_t *top = &slot_words(slot, word_id(cache->number))->top;
    most = 100;
    attach_with(cache, most);
    void *object = sheaf_malloc(64);
    must(object);
    sheaf_free(object);
    must(top_pop_end(*top).at && top_push_end(*top).at);
    for (unsigned n = 0; n < 3; n++) /* with every form of the account */
        for (unsigned count = 0; count <= UINT16_MAX; count += 1024) {
            struct attached_sheaf *push = sheaf_containing(top_push_end(*top));
            struct ends_total kept = push->total;
            push->total.bits = (uint16_t)(count + n);
            ends_account(cache, top_of((struct end){0}, top_push_end(*top)));
            push->total = kept;
        }
    cache_check(cache);
}
