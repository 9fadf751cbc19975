/*
 * One cache with one slot that is used, its spare and one barn: what a walk through its states needs (cache.c). The
 * state and what must hold are found from outside, by the words, sheaves and counters.
 */
#ifndef SHEAF_TESTS_LAYER_CACHES_H
#define SHEAF_TESTS_LAYER_CACHES_H

#include "model.h"
#include "slots.h"
#include "cache/ends.h"

#define NUMBER   CACHE_USERS
#define ID       word_id(NUMBER)
#define SLOT     1u /* of the walk; 0 is the slot of a remote drain with sections */
#define CAPACITY 5
#define USED     150 /* objects that the walk has; an event may add a few */

static struct kmem_cache *cache;

static uint64_t random_state = 88172645463325252ull;
static unsigned below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 20) % n;
}

/* ---- the objects of the walk ---- */

static void *used[USED + 10];
static unsigned used_count;
static unsigned char place_of[1 << 16]; /* 0: nowhere, 1: with the walk, 2: in a sheaf */

static unsigned char *place(const void *object)
{
    size_t index = (size_t)((const char *)object - (char *)slice_address(0)) / cache->slab.size;
    must(index < sizeof(place_of) && slice_address(0) + index * cache->slab.size == object);
    return &place_of[index];
}

static void now_used(void *object)
{
    must(!*place(object));
    *place(object) = 1;
    used[used_count++] = object;
}

static void *no_longer_used(void)
{
    unsigned i = below(2) ? used_count - 1 : below(used_count);
    void *object = used[i];
    used[i] = used[--used_count];
    *place(object) = 0;
    return object;
}

/* ---- what is refused ---- */

static bool slabs_refused;
static bool slab_created(struct slab_cache *slabs, uint32_t slice)
{
    (void)slabs, (void)slice;
    return !slabs_refused;
}

static void slab_released(struct slab_cache *slabs, uint32_t slice)
{
    (void)slabs, (void)slice;
}

static void attach_features(struct kmem_cache *of, struct cache_shape *shape)
{
    (void)shape;
    of->home = of->number;
    of->slab.watched = 1;
}

static void poll(unsigned slot)
{
    (void)slot;
}

static void nothing(void) {}

static struct sheaf *all_sheaves[1 << 16];
static unsigned empty_sheaves;

static void refuse_sheaves(void)
{
    os_refuse(OS_EXTEND, 1, OS_ALWAYS);
    while ((all_sheaves[empty_sheaves] = empty_sheaf_alloc(CAPACITY)))
        must(++empty_sheaves < array_size(all_sheaves));
}

static void grant_sheaves(unsigned left)
{
    while (empty_sheaves > left)
        empty_sheaf_free(all_sheaves[--empty_sheaves]);
    os_grant();
}

/* ---- the start ---- */

static void start_cache(uint32_t size)
{
    struct kmem_cache_args args = {.sheaf_capacity = CAPACITY};
    hooks.attach_features = attach_features;
    hooks.slab_created = slab_created;
    hooks.slab_released = slab_released;
    hooks.poll = poll;
    hooks.burst_ended = nothing;
    start(4);
    slot_fold_start = 0u - 8; /* pushes, or pops of a LIFO word, until its account is full */
    os_quiet = true;
    sheaf_config.slot_budget = GIB;
    sheaf_config.barn = CAPACITY * size;
    sheaf_config.barn_max = CAPACITY * size * 3 / 2;
    must(cache_reach(NUMBER));
    cache_setup(NUMBER,
                (struct cache_shape){.name = "walk", .object_size = size, .size = size, .align = 16, .args = &args});
    cache = cache_at(NUMBER);
    must_be(cache->capacity, CAPACITY);
    must_be(cache->barn_least, 2 * CAPACITY);
    must_be(cache->barn_most, 3 * CAPACITY);
    cache->slab.watched = 1;
    run_on(SLOT);
    must(slot_enter(SLOT));
    refuse_sheaves();
    must(empty_sheaves > 50);
    grant_sheaves(empty_sheaves - 50); /* the others stay out of the pool, and the pool can be emptied */
}

/* ---- the state ---- */

static uint64_t *top(void)
{
    return &slot_words(SLOT, ID)->top;
}

static uint64_t spare_word(void)
{
    return slot_words(SLOT, ID)->spare;
}

static int depth(struct end end)
{
    return end.at ? (int)end_depth(end) : ABSENT;
}

/* Whether ends_swap() may exchange the ends: the capacity is settled, and the account has room. */
static bool settled(struct end pop_end, struct end push_end)
{
    if (!pop_end.at || !push_end.at || !(spare_word() & SPARE_SETTLED))
        return false;
    unsigned n = end_depth(push_end) - end_depth(pop_end);
    return end_depth(push_end) >= end_depth(pop_end) ? sheaf_containing(push_end)->pushes <= UINT32_MAX - n : true;
}

static uint64_t seen_by_age; /* what the last step of decay saw, as decay_slot() has it */
static uint64_t age_sees(void)
{
    uint64_t both = *top() + *counter_at(SLOT, NUMBER, COUNT_alloc_fastpath);
    return both + (!cache->lifo && top_push_end(*top()).at
                       ? (uint64_t)sheaf_containing(top_push_end(*top()))->pushes << 16
                       : 0);
}

static void add_sheaf(struct sheaf *sheaf, void *with)
{
    struct state *state = with;
    if (!state->sheaves++)
        state->last = sheaf->count;
    state->barn += sheaf->count;
}

static struct state state_now(void)
{
    static char conditions[2][64];
    static unsigned turn;
    struct end pop_end = top_pop_end(*top()), push_end = cache->lifo ? (struct end){0} : top_push_end(*top());
    struct barn *barn = cache_barn(cache, 0);
    char *text = conditions[turn++ % 2];
    struct state state = {
        .in = {depth(pop_end), depth(push_end),
               (uint32_t)spare_word() ? sheaf_at((uint32_t)spare_word())->count : -1},
        .capacity = CAPACITY,
        .limit = (int)barn_limit(barn, cache->barn_least),
        .conditions = text,
    };
    sheaf_stack_each(&barn->full, add_sheaf, &state);
    must_be(barn_objects(barn), state.barn);
    must_be(barn_sheaves(barn), state.sheaves);
    *text = 0;
    if (settled(pop_end, push_end))
        strcat(text, "settled,");
    if (cache->lifo && top_full_count(*top()))
        strcat(text, "count full,");
    if (cache->slab.free)
        strcat(text, "objects in slabs,");
    if (age_sees() == seen_by_age)
        strcat(text, "slot idle,");
    return state;
}

/* ---- what must always hold ---- */

static unsigned in_sheaves; /* objects */
static unsigned sheaves;

static void see_objects(void *const *objects, unsigned n, unsigned char as)
{
    for (unsigned i = 0; i < n; i++) {
        must_be(*place(objects[i]), as == 2 ? 0 : 2);
        *place(objects[i]) = as;
        must(as != 2 || !slab_is_free(&cache->slab, objects[i]));
        in_sheaves += as == 2;
    }
}

static void count_sheaf(struct sheaf *sheaf, void *with)
{
    (void)sheaf, (void)with;
    sheaves++;
}

static void see_sheaf(struct sheaf *sheaf, void *with)
{
    sheaves++;
    see_objects(sheaf->objects, sheaf->count, *(unsigned char *)with);
}

static void see_end(struct end end, unsigned char as)
{
    if (!end.at)
        return;
    sheaves++;
    see_objects(sheaf_containing(end)->objects, end_depth(end), as);
}

static void see_all(unsigned char as)
{
    see_end(top_pop_end(*top()), as);
    see_end(cache->lifo ? (struct end){0} : top_push_end(*top()), as);
    if ((uint32_t)spare_word())
        see_sheaf(sheaf_at((uint32_t)spare_word()), &as);
    sheaf_stack_each(&cache_barn(cache, 0)->full, see_sheaf, &as);
}

static uint64_t counted(enum slot_counter which)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < slot_top; slot++)
        sum += *counter_at(slot, NUMBER, which);
    return sum;
}

/* Each object is in one place, each sheaf too, and the counters know how many objects the walk has. */
static void must_be_conserved(const struct row *row)
{
    in_sheaves = 0;
    see_all(2);
    sheaves = empty_sheaves;
    see_all(0);
    struct ends_account ends = ends_account(cache, *top());
    uint64_t in_use = counted(COUNT_alloc_fastpath) + counted(COUNT_alloc_slowpath) + ends.pops -
                      counted(COUNT_free_fastpath) - counted(COUNT_free_slowpath) - ends.pushes;
    if (slab_out(&cache->slab) != in_sheaves + used_count)
        model_fail(row, "%u objects are out of the slabs, but %u in sheaves and %u in use",
                   (unsigned)slab_out(&cache->slab), in_sheaves, used_count);
    if (in_use != used_count)
        model_fail(row, "%u objects are in use, but the counters say %d", used_count, (int)in_use);
    if (below(16)) /* what follows takes longer */
        return;
    slab_check(&cache->slab);
    sheaf_pool_each(count_sheaf, NULL);
    if (sheaves != sheaf_pool_cut())
        model_fail(row, "%u sheaves were cut, but %u are somewhere", (unsigned)sheaf_pool_cut(), sheaves);
}

/* ---- counters ---- */

static const char *const counter_names[] = {
#define SHEAF_SLOT_COUNTERS(name, help) #name,
#include "cache/slot/counters.def"
#undef SHEAF_SLOT_COUNTERS
};

struct counters {
    uint64_t n[SLOT_COUNTERS], out;
};

static struct counters counters_now(void)
{
    struct counters now = {.out = slab_out(&cache->slab)};
    for (unsigned i = 0; i < SLOT_COUNTERS; i++)
        now.n[i] = counted(i);
    return now;
}

/* `direct` objects went from slabs to the walk without a sheaf. */
static void check_counters(const struct row *row, const struct counters *before, int direct)
{
    struct counters now = counters_now();
    for (unsigned i = 0; i < SLOT_COUNTERS; i++) {
        struct range want = model_counts(row, counter_names[i]);
        int more = (int)(now.n[i] - before->n[i]);
        bool objects = i == COUNT_sheaf_refill || i == COUNT_sheaf_flush;
        if (i == COUNT_alloc_fastpath || i == COUNT_free_fastpath) /* must_be_conserved() looks at these */
            continue;
        if (more < want.least || (more > want.most && !(objects && want.most)))
            model_fail(row, "%s went up by %d", counter_names[i], more);
    }
    int moved = (int)(now.n[COUNT_sheaf_refill] - before->n[COUNT_sheaf_refill]) -
                (int)(now.n[COUNT_sheaf_flush] - before->n[COUNT_sheaf_flush]);
    direct += model_counts(row, "slab+1").most - model_counts(row, "slab-1").most;
    if ((int)(now.out - before->out) != moved + direct)
        model_fail(row, "%d objects left the slabs, but %d were counted and %d passed by",
                   (int)(now.out - before->out), moved, direct);
}

#endif
