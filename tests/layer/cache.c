/*
 * A cache by itself: its slow paths, drains and decay between one slot, its spare, one barn and the slabs. The case
 * walks at random through the states of the model in docs/cold-path.md (model.h).
 */
#include "cache/alloc.h"
#include "cache/barns.h"
#include "cache/decay.h"
#include "cache/free.h"
#include "cache/remote.h"
#include "cache/sheaves.h"
#include "platform/rseq/membarrier.h"
#include "caches.h" /* after the others: its variable would shadow their parameters */

#define STEPS 500000 /* more until each row was met, but at most eight times as many */

static struct model model;

/* ---- remote drains ---- */

/* Bits. */
enum situation {
    NO_MEMORY = 1,
    NO_SHEAF = 2,
    IN_HANDLER = 4,
    SLOT_BUSY = 8,
    CLAIMED = 16,
    LATE_POP = 32,
    LATE_PUSH = 64,
    LATE_POPS = 128,
    NO_BARRIER = 256,
};

static unsigned situation;
static uint64_t late_top; /* the word that a late section has read, as it stands after that section */
static unsigned late_sections;

/* A section that had read the word before a remote drain claimed the ends stores its half after that. */
static void late_pop(void)
{
    struct end end = {top_pop_end(late_top).at - 8};
    now_used(*sheaf_entry(end));
    late_top = cache->lifo ? top_of_lifo(end, top_pops(late_top) + 1) : top_of(end, top_push_end(late_top));
    if (cache->lifo)
        *top() = late_top;
    else
        ((uint32_t *)top())[0] = end.at;
}

static void late_push(void)
{
    struct end end = cache->lifo ? top_pop_end(late_top) : top_push_end(late_top);
    *sheaf_entry(end) = no_longer_used();
    ((uint32_t *)top())[!cache->lifo] = end.at + 8;
}

bool membarrier_rseq(void)
{
    if (late_sections) {
        late_sections--;
        must(top_claimed(*top()));
        situation == LATE_PUSH ? late_push() : late_pop();
    }
    return situation != NO_BARRIER;
}

/* From another slot. Sections are simulated, so that the drain does what it does where slots have no lock. */
static void drain(enum remote_aim aim)
{
    late_top = *top();
    late_sections = situation == LATE_POPS ? 4 : situation == LATE_POP || situation == LATE_PUSH;
    must(lock_acquire(lock_of(LOCK_DRAIN)));
    slot_mode = !situation && below(2) ? SHEAF_MODE_LOCK : SHEAF_MODE_RSEQ_CPU_ID;
    remote_drain(cache, SLOT, SLOT + 1, aim);
    slot_mode = SHEAF_MODE_LOCK;
    lock_release(lock_of(LOCK_DRAIN));
    must(!late_sections);
}

/* ---- events ---- */

static int direct; /* objects that the event itself took from slabs */
static bool failed;

static void event_alloc(void)
{
    void *object = slot_pop(ID, cache->lifo);
    if (!object)
        object = cache_alloc_slow(cache);
    failed = !object;
    if (object)
        now_used(object);
}

static void event_free(void)
{
    void *object = no_longer_used();
    if (!slot_push(cache_push_id(cache), object))
        cache_free_slow(cache, object);
}

/* A prefilled sheaf comes back as the spare. */
static void event_return(void)
{
    struct sheaf *sheaf = empty_sheaf_alloc(CAPACITY);
    must(sheaf);
    sheaf->count = (uint16_t)slab_take(&cache->slab, sheaf->objects, below(2) ? CAPACITY : 1 + below(CAPACITY));
    direct = sheaf->count;
    must(cache_put_spare(SLOT, ID, sheaf));
}

static void event_drain(void)
{
    drain(REMOTE_EMPTY);
}

static void event_count(void)
{
    drain(REMOTE_COUNT);
}

static void event_age(void)
{
    uint64_t sees = age_sees();
    bool looks = *top() || (uint32_t)spare_word();
    decay_slot(cache, SLOT);
    seen_by_age = looks ? sees : seen_by_age;
}

static void event_decay(void)
{
    decay_barns(cache, below(2) ? DECAY_AGED : DECAY_GROWN);
}

static void event_trim(void)
{
    cache_drain(cache);
}

/* `needs` tells whether the event is possible now. */
struct event {
    const char *name;
    void (*run)(void);
    unsigned situation;
    enum { ALWAYS, USED_OBJECT, NO_SPARE, POPS, PUSHES } needs;
    bool two_ends; /* not for LIFO words */
};

static const struct event events[] = {
    {.name = "alloc, no memory", .run = event_alloc, .situation = NO_MEMORY},
    {.name = "alloc, no sheaf", .run = event_alloc, .situation = NO_SHEAF},
    {.name = "alloc, in a handler", .run = event_alloc, .situation = IN_HANDLER},
    {.name = "alloc, slot busy", .run = event_alloc, .situation = SLOT_BUSY},
    {.name = "alloc, claimed", .run = event_alloc, .situation = CLAIMED},
    {.name = "alloc, claimed in a handler", .run = event_alloc, .situation = CLAIMED | IN_HANDLER},
    {.name = "free, claimed in a handler",
     .run = event_free,
     .situation = CLAIMED | IN_HANDLER,
     .needs = USED_OBJECT},
    {.name = "free, no sheaf", .run = event_free, .situation = NO_SHEAF, .needs = USED_OBJECT},
    {.name = "free, in a handler", .run = event_free, .situation = IN_HANDLER, .needs = USED_OBJECT},
    {.name = "free, slot busy", .run = event_free, .situation = SLOT_BUSY, .needs = USED_OBJECT},
    {.name = "free, claimed", .run = event_free, .situation = CLAIMED, .needs = USED_OBJECT},
    {.name = "return", .run = event_return, .needs = NO_SPARE},
    {.name = "return", .run = event_return, .needs = NO_SPARE},
    {.name = "return", .run = event_return, .needs = NO_SPARE},
    {.name = "drain", .run = event_drain},
    {.name = "drain, late pop", .run = event_drain, .situation = LATE_POP, .needs = POPS},
    {.name = "drain, late push", .run = event_drain, .situation = LATE_PUSH, .needs = PUSHES},
    {.name = "drain, four late pops", .run = event_drain, .situation = LATE_POPS, .needs = POPS, .two_ends = true},
    {.name = "drain, no barrier", .run = event_drain, .situation = NO_BARRIER},
    {.name = "drain, in a handler", .run = event_drain, .situation = IN_HANDLER},
    {.name = "count", .run = event_count},
    {.name = "age", .run = event_age},
    {.name = "decay", .run = event_decay},
    {.name = "poll", .run = barns_poll},
    {.name = "trim", .run = event_trim},
};
static const struct event event_of_alloc = {.name = "alloc", .run = event_alloc};
static const struct event event_of_drain = {.name = "drain", .run = event_drain};
static const struct event event_of_free = {.name = "free", .run = event_free, .needs = USED_OBJECT};

static bool possible(const struct event *event, const struct state *now)
{
    int push = now->in[cache->lifo ? POP : PUSH];
    if ((cache->lifo && event->two_ends) || (event->needs != USED_OBJECT && used_count > USED))
        return false;
    switch (event->needs) {
    case USED_OBJECT:
        return used_count;
    case NO_SPARE:
        return now->in[SPARE] == ABSENT;
    case POPS:
        return now->in[POP] >= (event->situation == LATE_POPS ? 4 : 1) && !(cache->lifo && top_full_count(*top()));
    case PUSHES:
        return push >= 0 && push < CAPACITY && used_count;
    default:
        return true;
    }
}

/* The event whose row was met least in this state, so that a rare state is not left without what is rare in it. */
static const struct event *rare(const struct state *now)
{
    const char *name = model_rare(&model, now);
    for (unsigned i = 0; name && i < array_size(events); i++)
        if (!strcmp(events[i].name, name))
            return &events[i];
    return &event_of_alloc;
}

/* Loads grow, shrink and swing, and situations last, because some states need many objects in use or a series. */
static const struct event *choose(const struct state *now)
{
    static const unsigned shares[] = {20, 50, 80, 0, 100};
    static unsigned left, share, often;
    static const struct event *favourite;
    if (!left--) {
        left = below(60);
        share = shares[below(array_size(shares))];
        often = below(100);
        favourite = &events[below(array_size(events))];
        if (below(2))
            return &event_of_drain;
    }
    if (below(100) < often)
        return favourite;
    if (!below(4))
        return below(4) ? rare(now) : &events[below(array_size(events))];
    bool more = below(100) < share ? used_count < USED : !used_count;
    return more ? &event_of_alloc : &event_of_free;
}

/* The slabs' code takes locks as the thread that really runs, not as the simulated one (thread.h). */
static bool interrupt_lock_holder(void)
{
    uintptr_t simulated = thread_pointer;
    thread_pointer = (uintptr_t)(__builtin_thread_pointer)();
    bool taken = lock_acquire(cache->slab.lock);
    thread_pointer = simulated;
    return taken;
}

static void run(const struct event *event)
{
    struct end end = {END_CLAIMED};
    uint64_t word = *top(), claimed = cache->lifo ? top_of_lifo(end, top_pops(word)) : top_of(end, end);
    situation = event->situation;
    slabs_refused = situation & NO_MEMORY;
    if (situation & NO_SHEAF)
        refuse_sheaves();
    must(!(situation & SLOT_BUSY) || slot_shut(SLOT));
    must(!(situation & IN_HANDLER) || interrupt_lock_holder());
    if (situation & CLAIMED)
        *top() = claimed;
    event->run();
    if (situation & CLAIMED) {
        must_be(*top(), claimed);
        *top() = word;
    }
    if (situation & IN_HANDLER)
        lock_release(cache->slab.lock);
    if (situation & SLOT_BUSY)
        slot_open(SLOT);
    if (situation & NO_SHEAF)
        grant_sheaves(0);
    slabs_refused = false;
}

static void step(void)
{
    struct state before = state_now();
    const struct event *event = choose(&before);
    if (!possible(event, &before))
        return;
    struct row *row = model_row(&model, event->name, &before);
    struct counters counters = counters_now();
    direct = 0;
    failed = false;
    run(event);
    row->met++;
    struct state after = state_now();
    model_check(row, &before, &after);
    check_counters(row, &counters, direct);
    if (failed != model_counts(row, "fails").most)
        model_fail(row, failed ? "there was no object" : "there was an object");
    must_be_conserved(row);
    /* what this model leaves out: the capacity that a drain takes from the slot, and the bound on all barns */
    if (!spare_capacity(spare_word()))
        cache_next_capacity(cache, SLOT);
    slot_head(SLOT)->barn_traffic = slot_head(0)->barn_traffic = 0;
}

static unsigned never_met(bool say)
{
    unsigned n = 0;
    for (struct row *row = model.rows; row < model.rows + model.count; row++)
        if (!row->met && ++n && say)
            dprintf(2, "docs/cold-path.md:%u: %s: never met\n", row->line, row->cell[EVENT]);
    return n;
}

static void walk(unsigned table, uint32_t size)
{
    model_read(&model, MODEL_PAGE, table);
    start_cache(size);
    must_be(cache->lifo, table);
    cache_next_capacity(cache, SLOT);
    for (unsigned i = 0; i < STEPS || (i < 8 * STEPS && never_met(false)); i++)
        step();
    must_be(never_met(true), 0);
}

CASE(a_walk_with_two_ends)
{
    walk(0, 1024);
}

CASE(a_walk_with_lifo_words)
{
    walk(1, 8192);
}
