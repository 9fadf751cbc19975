#include "diagnostics/profile/area.h"
#include "platform/os/clock.h"
#include "platform/os/stack.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"
#include "diagnostics/profile/mirror.h"
#include "diagnostics/profile/modules.h"
#include "diagnostics/profile/names.h"
#include "diagnostics/profile/script.h"
#include "diagnostics/profile/strata.h"
#include "memory/space/locks.h"
#include "memory/space/internal.h"

#include <string.h>
#include <time.h>

/* ---- layout ---- */

enum {
    LIFETIMES_AT = 4096,
    MODULES_AT = 8192,
    MODULES_MAX = 500,
    SAMPLES_AT = 192 << 10,
    SAMPLES_MAX = 131072, /* at the default rate, those of 64 GiB of live memory */
    STACKS_AT = SAMPLES_AT + SAMPLES_MAX * 48,
    STRATA_AT = 184 << 10,
    NAMES_AT = SHEAF_PROFILE_BYTES - NAMES_BYTES,
};
_Static_assert(sizeof(struct sheaf_profile_sample) == 48 && sizeof(struct sheaf_profile) <= LIFETIMES_AT &&
                   LIFETIMES_AT + SHEAF_PROFILE_SIZES * SHEAF_PROFILE_TIMES * 8 <= MODULES_AT &&
                   MODULES_AT + MODULES_MAX * sizeof(struct sheaf_profile_module) <= STRATA_AT &&
                   STRATA_AT + STRATA * sizeof(struct sheaf_profile_stratum) <= SAMPLES_AT,
               "the parts of the area do not overlap");

#define STACKS_MOST 65536u /* in the hash table of stacks */
#define PLACES      (2u * SAMPLES_MAX)
#define MISSED      16

/* Hash tables with open addressing. 0: the place is empty. */
struct tables {
    uint32_t stacks[STACKS_MOST]; /* offset of a stack's entry from the start of the area */
    uint32_t samples[PLACES];     /* 1 + index of a live sample */
};

static struct {
    struct sheaf_profile *truth; /* NULL until area_start() has succeeded */
    struct tables *tables;
    double live, counted;                 /* estimates of live bytes: now, and when the strata were counted */
    unsigned counts;                      /* of strata in this tick of the clock */
    uint32_t start_ms;                    /* clock_ms() at start_ns */
    uint32_t free_sample;                 /* 1 + index of a free entry below samples_used; 0: none.
                                             `stack` of a free entry leads to the next one */
    _Atomic(const void *) missed[MISSED]; /* freed where the lock was out of reach */
} area;

static struct sheaf_profile_stratum *strata(void)
{
    return (struct sheaf_profile_stratum *)(void *)mirror_at(STRATA_AT);
}

static uint32_t now_ms(void)
{
    return clock_ms() - area.start_ms;
}

/* ---- changes ---- */

/* Readers see an odd number in between, and try again. */
static void begin(void)
{
    area.truth->sequence++;
    mirror_publish_at(&area.truth->sequence, 8);
    atomic_thread_fence(memory_order_release);
}

static void end(void)
{
    area.truth->now_ms = now_ms();
    size_t from = offsetof(struct sheaf_profile, rate);
    mirror_publish(from, sizeof(struct sheaf_profile) - from);
    atomic_thread_fence(memory_order_release);
    area.truth->sequence++;
    mirror_publish_at(&area.truth->sequence, 8);
}

/* ---- modules ---- */

static bool module_known(uintptr_t pc)
{
    const struct sheaf_profile_module *modules = (const void *)mirror_at(MODULES_AT);
    for (uint32_t i = 0; i < area.truth->modules_used; i++)
        if (pc - modules[i].start < modules[i].end - modules[i].start)
            return true;
    return false;
}

static void add_module(uintptr_t pc)
{
    struct sheaf_profile_module found = {0};
    if (pc >= SHEAF_PROFILE_NAMED - 1 || module_known(pc) || area.truth->modules_used == MODULES_MAX ||
        !module_find(pc, &found))
        return;
    struct sheaf_profile_module *module = (struct sheaf_profile_module *)(void *)mirror_at(MODULES_AT);
    module += area.truth->modules_used;
    *module = found;
    mirror_publish_at(module, sizeof(*module));
    area.truth->modules_used++;
    script_examine(&found);
}

/* ---- stacks ---- */

static struct sheaf_profile_stack *stack_at(uint32_t offset)
{
    return (struct sheaf_profile_stack *)(void *)mirror_at(STACKS_AT + (uint64_t)offset);
}

/* The entry of the stacks of a stratum that are not known. */
static uint32_t unknown(unsigned stratum)
{
    return (uint32_t)(stratum * sizeof(struct sheaf_profile_stack));
}

/* Appends an entry. Returns false if there is no room. */
static bool append_stack(uint64_t hash, const uintptr_t *pcs, unsigned depth, unsigned stratum)
{
    struct sheaf_profile *h = area.truth;
    uint32_t bytes = (uint32_t)(sizeof(struct sheaf_profile_stack) + depth * sizeof(uint64_t)),
             offset = h->stacks_used;
    if (bytes > h->stacks_bytes - offset || h->stacks_count >= STACKS_MOST / 4 * 3 ||
        !mirror_commit(STACKS_AT + (uint64_t)offset, bytes))
        return false;
    struct sheaf_profile_stack *stack = stack_at(offset);
    stack->bytes = bytes;
    stack->depth = (uint16_t)depth;
    stack->stratum = (uint16_t)stratum;
    stack->hash = hash;
    if (depth)
        memcpy(stack->pcs, pcs, depth * sizeof(*pcs));
    h->stacks_used += bytes;
    h->stacks_count++;
    return true;
}

static bool is_stack(const struct sheaf_profile_stack *stack, uint64_t hash, const uintptr_t *pcs, unsigned depth)
{
    return stack->hash == hash && stack->depth == depth && !memcmp(stack->pcs, pcs, depth * sizeof(*pcs));
}

/* Entries of one stack in several strata lie behind each other in the table. Returns the place of the one in that
 * stratum, or the empty place where the search ends, and stores in *like any of them, or 0. */
static uint32_t find_stack(uint64_t hash, const uintptr_t *pcs, unsigned depth, unsigned stratum, uint32_t *like)
{
    uint32_t place = (uint32_t)(hash >> 16) % STACKS_MOST, offset;
    for (*like = 0; (offset = area.tables->stacks[place]); place = (place + 1) % STACKS_MOST) {
        if (!is_stack(stack_at(offset), hash, pcs, depth))
            continue;
        *like = offset;
        if (stack_at(offset)->stratum == stratum)
            break;
    }
    return place;
}

static uint32_t add_stack(uint32_t place, uint64_t hash, const uintptr_t *pcs, unsigned depth, unsigned stratum)
{
    uint32_t offset = area.truth->stacks_used;
    if (!depth || !append_stack(hash, pcs, depth, stratum))
        return unknown(stratum);
    area.tables->stacks[place] = offset;
    for (unsigned i = 0; i < depth; i++)
        add_module(pcs[i] - 1); /* a call may be the last instruction of a function */
    mirror_publish_at(stack_at(offset), stack_at(offset)->bytes);
    return offset;
}

/* A stack that is not known yet gets an entry in the last stratum, for want of a better one. */
static uint32_t intern(const uintptr_t *pcs, unsigned depth)
{
    uint32_t like;
    uint64_t hash = stack_hash(pcs, depth);
    uint32_t place = find_stack(hash, pcs, depth, STRATA, &like);
    return like ? like : add_stack(place, hash, pcs, depth, STRATUM_ALWAYS);
}

/* The entry of the same stack in that stratum. */
static struct sheaf_profile_stack *in_stratum(uint32_t offset, unsigned stratum)
{
    const struct sheaf_profile_stack *known = stack_at(offset);
    if (known->stratum == stratum)
        return stack_at(offset);
    if (!known->depth)
        return stack_at(unknown(stratum));
    uint32_t like, place = find_stack(known->hash, known->pcs, known->depth, stratum, &like);
    uint32_t found = area.tables->stacks[place];
    return stack_at(found ? found : add_stack(place, known->hash, known->pcs, known->depth, stratum));
}

/* Before the values of a live stack change: keep those of the peak, which is the moment of the last new maximum. */
static void retain_peak(struct sheaf_profile_stack *stack)
{
    if (stack->peak_epoch == area.truth->peak_epoch)
        return;
    stack->peak_epoch = area.truth->peak_epoch;
    stack->peak_count = stack->live_count;
    stack->peak_bytes = stack->live_bytes;
    stack->peak_square = stack->live_square;
}

static void count_in(struct sheaf_profile_stack *stack, const struct sheaf_profile_sample *sample, double sign)
{
    struct stratum_samples *stratum = &strata_samples[stack->stratum];
    double weight = sample->weight, bytes = weight * (double)sample->size;
    stack->live_count += sign * weight;
    stack->live_bytes += sign * bytes;
    stack->live_square += sign * weight * weight;
    stack->live_wasted += sign * weight * (double)(sample->room - sample->size);
    stack->live_samples += sign > 0 ? 1 : -1ull;
    stratum->live += sign > 0 ? 1 : -1ull;
    stratum->room += sign > 0 ? sample->room : -sample->room;
    area.live += sign * weight * (double)sample->room;
    if (!stack->live_samples) /* sums of rounded numbers need not be exactly 0 */
        stack->live_count = stack->live_bytes = stack->live_square = stack->live_wasted = 0;
    if (sign < 0)
        return;
    stratum->taken++;
    stack->samples++;
    stack->alloc_count += weight;
    stack->alloc_bytes += bytes;
    stack->alloc_square += weight * weight;
}

static void publish_sums(const struct sheaf_profile_stack *stack)
{
    mirror_publish_at(stack, sizeof(*stack));
}

/* ---- live samples ---- */

static struct sheaf_profile_sample *sample_at(uint32_t index)
{
    return (struct sheaf_profile_sample *)(void *)mirror_at(SAMPLES_AT) + index;
}

static uint32_t place_of(uint64_t address)
{
    return (uint32_t)((address >> 3) * 0x9e3779b97f4a7c15ull >> 32) % PLACES;
}

/* The place of a live sample, or the empty place where the search ends. */
static uint32_t find(uint64_t address)
{
    uint32_t place = place_of(address);
    while (area.tables->samples[place] && sample_at(area.tables->samples[place] - 1)->address != address)
        place = (place + 1) % PLACES;
    return place;
}

/* Empties a place, and moves back those entries that a search would no longer reach. */
static void empty_place(uint32_t place)
{
    uint32_t *samples = area.tables->samples;
    samples[place] = 0;
    for (uint32_t i = (place + 1) % PLACES; samples[i]; i = (i + 1) % PLACES) {
        uint32_t home = place_of(sample_at(samples[i] - 1)->address);
        if ((i - home) % PLACES < (i - place) % PLACES)
            continue;
        samples[place] = samples[i];
        samples[i] = 0;
        place = i;
    }
}

static void count_lifetime(const struct sheaf_profile_sample *sample)
{
    uint32_t ms = now_ms() - sample->time_ms;
    unsigned row = sample->size <= 16 ? 0 : 64 - (unsigned)__builtin_clzll((sample->size - 1) >> 4);
    unsigned column = ms ? 32 - (unsigned)__builtin_clz(ms) : 0;
    row = row < SHEAF_PROFILE_SIZES ? row : SHEAF_PROFILE_SIZES - 1;
    column = column < SHEAF_PROFILE_TIMES ? column : SHEAF_PROFILE_TIMES - 1;
    double *cell = (double *)(void *)mirror_at(LIFETIMES_AT) + (size_t)row * SHEAF_PROFILE_TIMES + column;
    *cell += sample->weight;
    mirror_publish_at(cell, sizeof(*cell));
}

static void drop(uint32_t place)
{
    uint32_t index = area.tables->samples[place] - 1;
    struct sheaf_profile_sample *sample = sample_at(index);
    struct sheaf_profile_stack *stack = stack_at(sample->stack);
    retain_peak(stack);
    count_in(stack, sample, -1);
    count_lifetime(sample);
    empty_place(place);
    area.truth->freed++;
    *sample = (struct sheaf_profile_sample){.stack = area.free_sample};
    area.free_sample = index + 1;
    uint32_t next = sample->stack;
    sample->stack = 0;
    mirror_publish_at(sample, sizeof(*sample));
    sample->stack = next;
    publish_sums(stack);
}

/* The index of a free entry; SAMPLES_MAX if there is none. */
static uint32_t claim_sample(void)
{
    struct sheaf_profile *h = area.truth;
    uint32_t index = area.free_sample ? area.free_sample - 1 : h->samples_used;
    if (area.free_sample) {
        area.free_sample = sample_at(index)->stack;
    } else if (index == SAMPLES_MAX || !mirror_commit(SAMPLES_AT + index * sizeof(struct sheaf_profile_sample),
                                                      sizeof(struct sheaf_profile_sample))) {
        return SAMPLES_MAX;
    } else {
        h->samples_used++;
    }
    return index;
}

static bool add(const struct sample *new)
{
    uint32_t place = find((uint64_t)(uintptr_t) new->address);
    if (area.tables->samples[place]) { /* its free was not noticed */
        drop(place);
        place = find((uint64_t)(uintptr_t) new->address);
    }
    uint32_t index = claim_sample();
    if (index == SAMPLES_MAX) {
        area.truth->lost_samples++;
        return false;
    }
    struct sheaf_profile_stack *stack = in_stratum(new->stack, new->stratum);
    struct sheaf_profile_sample *sample = sample_at(index);
    *sample = (struct sheaf_profile_sample){
        .address = (uint64_t)(uintptr_t) new->address,
        .size = new->size,
        .room = new->room,
        .weight = new->weight,
        .time_ms = now_ms(),
        .stack = (uint32_t)((char *)stack - mirror_at(STACKS_AT)),
    };
    area.tables->samples[place] = index + 1;
    area.truth->taken++;
    area.truth->lost_stacks += !stack->depth;
    area.truth->slowed += new->slowed;
    retain_peak(stack);
    count_in(stack, sample, 1);
    mirror_publish_at(sample, sizeof(*sample));
    publish_sums(stack);
    return true;
}

/* ---- the strata ---- */

#define COUNT_MS    64 /* between two counts while little changes */
#define COUNT_SHARE 64 /* of the live bytes: a smaller change is little */
#define COUNT_OLD   16 /* of the live bytes: after a larger change the counts are of no use to readers */
#define COUNT_TICK  3  /* counts in a tick of the clock, which has some milliseconds */

static void count_strata(void)
{
    uint32_t now = now_ms();
    area.counts = now == (uint32_t)area.truth->strata_ms ? area.counts + 1 : 0;
    area.counted = area.live;
    strata_count(area.truth, strata(), now);
    mirror_publish(STRATA_AT, STRATA * sizeof(struct sheaf_profile_stratum));
}

/* Samples are up to date at any time, so their strata must be, too, also if the program does nothing more. */
static void count_if_due(void)
{
    uint32_t elapsed = now_ms() - (uint32_t)area.truth->strata_ms;
    double change = area.live > area.counted ? area.live - area.counted : area.counted - area.live;
    bool much = change > area.counted / COUNT_SHARE;
    if (elapsed >= COUNT_MS || (much && (elapsed || area.counts < COUNT_TICK)))
        count_strata();
    change = area.live > area.counted ? area.live - area.counted : area.counted - area.live;
    area.truth->strata_old = change > area.counted / COUNT_OLD;
}

/* ---- the lock ---- */

static void remove_missed(void)
{
    for (unsigned i = 0; i < MISSED; i++) {
        const void *address = atomic_load_explicit(&area.missed[i], memory_order_relaxed);
        if (likely(!address))
            continue;
        address = atomic_exchange(&area.missed[i], NULL);
        uint32_t place = find((uint64_t)(uintptr_t)address);
        if (address && area.tables->samples[place])
            drop(place);
    }
}

static bool enter(void)
{
    if (!lock_acquire(lock_of(LOCK_PROFILE)))
        return false;
    begin();
    remove_missed();
    return true;
}

static void leave(void)
{
    count_if_due();
    end();
    lock_release(lock_of(LOCK_PROFILE));
}

/* If the list is full, the sample stays until its address is sampled again. */
static void note_missed(const void *address)
{
    for (unsigned i = 0; i < MISSED; i++) {
        const void *none = NULL;
        if (atomic_compare_exchange_strong(&area.missed[i], &none, address))
            return;
    }
}

uint32_t area_intern(const uintptr_t *pcs, unsigned depth)
{
    if (!enter())
        return AREA_NO_STACK;
    uint32_t stack = intern(pcs, depth);
    end();
    lock_release(lock_of(LOCK_PROFILE));
    return stack;
}

uintptr_t area_name(const struct script_name *name, uint32_t line)
{
    if (!enter())
        return 0;
    uintptr_t address = names_address(name, line);
    end();
    lock_release(lock_of(LOCK_PROFILE));
    return address;
}

const struct sheaf_profile_stack *area_stack_entry(uint32_t offset)
{
    return stack_at(offset);
}

bool area_add(const struct sample *sample)
{
    if (!enter())
        return false;
    bool added = add(sample);
    leave();
    return added;
}

bool area_remove(const void *address)
{
    if (!enter()) {
        note_missed(address);
        return false;
    }
    uint32_t place = find((uint64_t)(uintptr_t)address);
    bool found = area.tables->samples[place];
    if (found)
        drop(place);
    leave();
    return found;
}

unsigned area_stack(const void *address, uintptr_t *pcs, unsigned most)
{
    if (!area.truth)
        return 0;
    uint32_t place = find((uint64_t)(uintptr_t)address);
    if (!area.tables->samples[place])
        return 0;
    const struct sheaf_profile_stack *stack = stack_at(sample_at(area.tables->samples[place] - 1)->stack);
    unsigned depth = 0;
    for (unsigned i = 0; i < stack->depth && depth < most; i++)
        if (stack->pcs[i] < SHEAF_PROFILE_NAMED)
            pcs[depth++] = stack->pcs[i];
    return depth;
}

/* ---- start, record and fork ---- */

static void write_header(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    area.start_ms = clock_ms();
    *area.truth = (struct sheaf_profile){
        .version = SHEAF_PROFILE_VERSION,
        .start_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
        .stacks_at = STACKS_AT,
        .stacks_bytes = NAMES_AT - STACKS_AT,
        .samples_at = SAMPLES_AT,
        .samples_max = SAMPLES_MAX,
        .modules_at = MODULES_AT,
        .modules_max = MODULES_MAX,
        .lifetimes_at = LIFETIMES_AT,
        .strata_at = STRATA_AT,
        .strata = STRATA,
    };
    memcpy(area.truth->magic, SHEAF_PROFILE_MAGIC, sizeof(area.truth->magic));
}

static bool set_up(void)
{
    area.tables = area.tables ? area.tables : vm_map(sizeof(struct tables), 4096);
    if (!area.tables || (!mirror_truth && !mirror_start()) || !mirror_commit(0, SAMPLES_AT) ||
        !mirror_commit(STACKS_AT, STRATA * sizeof(struct sheaf_profile_stack)))
        return false;
    area.truth = mirror_truth;
    write_header();
    names_start(NAMES_AT);
    for (unsigned i = 0; i < STRATA; i++)
        append_stack(0, NULL, 0, i);
    return true;
}

/* Takes the lock because two requests may come at once. */
bool area_start(void)
{
    if (!lock_acquire(lock_of(LOCK_PROFILE)))
        return false;
    bool done = area.truth || set_up();
    lock_release(lock_of(LOCK_PROFILE));
    return done;
}

void area_switched(uint64_t rate)
{
    if (!area.truth || !enter())
        return;
    area.truth->on = rate != 0;
    mirror_publish_at(&area.truth->on, sizeof(area.truth->on)); /* end() begins behind it */
    if (rate) {
        area.truth->rate = rate;
        strata_start(strata());
        count_strata();
    }
    leave();
}

void area_count(void)
{
    if (!area.truth || !enter())
        return;
    count_strata();
    leave();
}

static void publish_all(void)
{
    const struct sheaf_profile *h = area.truth;
    mirror_publish(LIFETIMES_AT, MODULES_AT - LIFETIMES_AT);
    mirror_publish(STRATA_AT, STRATA * sizeof(struct sheaf_profile_stratum));
    mirror_publish(MODULES_AT, h->modules_used * sizeof(struct sheaf_profile_module));
    mirror_publish(SAMPLES_AT, h->samples_used * sizeof(struct sheaf_profile_sample));
    mirror_publish(STACKS_AT, h->stacks_used);
    names_publish();
    mirror_publish(0, sizeof(*h));
}

bool area_in_use(void)
{
    return area.truth;
}

void area_mirror(void *mirror)
{
    if (!area.truth || !lock_acquire(lock_of(LOCK_PROFILE)))
        return;
    mirror_to(mirror);
    publish_all();
    lock_release(lock_of(LOCK_PROFILE));
}

/* The fork held the lock, so nothing is half changed; area_mirror() follows. */
void area_fork_child(void)
{
    struct sheaf_profile *h = area.truth;
    if (!h)
        return;
    mirror_to(NULL);
    h->sequence &= ~1ull;
    h->pid_of_parent = (uint64_t)sys_call3(SYS_getppid, 0, 0, 0);
    for (uint32_t offset = 0; offset < h->stacks_used; offset += stack_at(offset)->bytes) {
        struct sheaf_profile_stack *stack = stack_at(offset);
        stack->alloc_count = stack->alloc_bytes = stack->alloc_square = 0;
    }
    strata_fork_child();
}
