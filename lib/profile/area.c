#include "profile/area.h"
#include "os/clock.h"
#include "os/stack.h"
#include "os/syscall.h"
#include "os/vm.h"
#include "profile/modules.h"
#include "space/locks.h"
#include "space/own.h"

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
};
_Static_assert(sizeof(struct sheaf_profile_sample) == 48 && sizeof(struct sheaf_profile) <= LIFETIMES_AT &&
                   LIFETIMES_AT + SHEAF_PROFILE_SIZES * SHEAF_PROFILE_TIMES * 8 <= MODULES_AT &&
                   MODULES_AT + MODULES_MAX * sizeof(struct sheaf_profile_module) <= SAMPLES_AT,
               "the parts of the area do not overlap");

#define CHUNK        (64u << 10) /* of the area: unit in which memory is asked for */
#define CHUNKS       (SHEAF_PROFILE_BYTES / CHUNK)
#define STACK_PLACES 65536u /* in the hash table of stacks */
#define PLACES       (2u * SAMPLES_MAX)
#define MISSED       16

/* Hash tables with open addressing. 0: the place is empty. */
struct tables {
    uint32_t stacks[STACK_PLACES]; /* offset of a stack's entry from the start of the area */
    uint32_t samples[PLACES];      /* 1 + index of a live sample */
};

enum chunk { CHUNK_UNKNOWN, CHUNK_READY, CHUNK_REFUSED };

static struct {
    struct sheaf_profile *truth; /* NULL until area_start() */
    struct tables *tables;
    char *mirror;
    uint8_t truth_chunks[CHUNKS], mirror_chunks[CHUNKS]; /* enum chunk */
    uint32_t start_ms;                                   /* clock_ms() at start_ns */
    uint32_t free_sample;                                /* 1 + index of a free entry below samples_used; 0: none.
                                                            `stack` of a free entry leads to the next one */
    _Atomic(const void *) missed[MISSED];                /* freed where the lock was out of reach */
} area;

static char *at(uint64_t offset)
{
    return (char *)area.truth + offset;
}

/* ---- memory, and the mirror ---- */

/* Whether the part of the private copy may be written. */
static bool commit(uint64_t offset, size_t size)
{
    for (uint64_t i = offset / CHUNK; i <= (offset + size - 1) / CHUNK; i++) {
        if (area.truth_chunks[i] == CHUNK_UNKNOWN)
            area.truth_chunks[i] = vm_commit(at(i * CHUNK), CHUNK) ? CHUNK_READY : CHUNK_REFUSED;
        if (area.truth_chunks[i] != CHUNK_READY)
            return false;
    }
    return true;
}

/* Copy a part to the mirror. The file may have no memory for it: the mirror then lacks that part. */
static void publish(uint64_t offset, size_t size)
{
    if (!area.mirror)
        return;
    while (size) {
        uint64_t i = offset / CHUNK;
        size_t part = (i + 1) * CHUNK - offset < size ? (i + 1) * CHUNK - offset : size;
        if (area.mirror_chunks[i] == CHUNK_UNKNOWN)
            area.mirror_chunks[i] = vm_populate(area.mirror + i * CHUNK, CHUNK) ? CHUNK_READY : CHUNK_REFUSED;
        if (area.mirror_chunks[i] == CHUNK_READY)
            memcpy(area.mirror + offset, at(offset), part);
        offset += part;
        size -= part;
    }
}

static void publish_at(const void *what, size_t size)
{
    publish((uint64_t)((const char *)what - (char *)area.truth), size);
}

/* Readers see an odd number in between, and try again. */
static void begin(void)
{
    area.truth->sequence++;
    publish_at(&area.truth->sequence, 8);
    atomic_thread_fence(memory_order_release);
}

static uint32_t now_ms(void)
{
    return clock_ms() - area.start_ms;
}

static void end(void)
{
    area.truth->now_ms = now_ms();
    size_t from = offsetof(struct sheaf_profile, rate);
    publish(from, sizeof(struct sheaf_profile) - from);
    atomic_thread_fence(memory_order_release);
    area.truth->sequence++;
    publish_at(&area.truth->sequence, 8);
}

/* ---- modules ---- */

static bool module_known(uintptr_t pc)
{
    const struct sheaf_profile_module *modules = (const void *)at(MODULES_AT);
    for (uint32_t i = 0; i < area.truth->modules_used; i++)
        if (pc - modules[i].start < modules[i].end - modules[i].start)
            return true;
    return false;
}

static void add_module(uintptr_t pc)
{
    struct sheaf_profile_module found = {0};
    if (module_known(pc) || area.truth->modules_used == MODULES_MAX || !module_find(pc, &found))
        return;
    struct sheaf_profile_module *module = (struct sheaf_profile_module *)(void *)at(MODULES_AT);
    module += area.truth->modules_used;
    *module = found;
    publish_at(module, sizeof(*module));
    area.truth->modules_used++;
}

/* ---- stacks ---- */

static struct sheaf_profile_stack *stack_at(uint32_t offset)
{
    return (struct sheaf_profile_stack *)(void *)at(STACKS_AT + (uint64_t)offset);
}

/* Appends an entry. Returns 0, the entry of unknown stacks, if there is no room. */
static uint32_t append_stack(uint64_t hash, const uintptr_t *pcs, unsigned depth)
{
    struct sheaf_profile *h = area.truth;
    uint32_t bytes = (uint32_t)(sizeof(struct sheaf_profile_stack) + depth * sizeof(uint64_t)),
             offset = h->stacks_used;
    if (bytes > h->stacks_bytes - offset || h->stacks_count >= STACK_PLACES / 4 * 3 ||
        !commit(STACKS_AT + (uint64_t)offset, bytes))
        return 0;
    struct sheaf_profile_stack *stack = stack_at(offset);
    stack->bytes = bytes;
    stack->depth = depth;
    stack->hash = hash;
    memcpy(stack->pcs, pcs, depth * sizeof(*pcs));
    h->stacks_used += bytes;
    h->stacks_count++;
    return offset;
}

/* The entry of a stack; 0 if it is not known and there is no room for it. */
static uint32_t intern(const uintptr_t *pcs, unsigned depth)
{
    uint64_t hash = stack_hash(pcs, depth);
    uint32_t place = (uint32_t)hash % STACK_PLACES;
    for (; area.tables->stacks[place]; place = (place + 1) % STACK_PLACES) {
        const struct sheaf_profile_stack *stack = stack_at(area.tables->stacks[place]);
        if (stack->hash == hash && stack->depth == depth && !memcmp(stack->pcs, pcs, depth * sizeof(*pcs)))
            return area.tables->stacks[place];
    }
    uint32_t offset = depth ? append_stack(hash, pcs, depth) : 0;
    if (!offset)
        return 0;
    area.tables->stacks[place] = offset;
    for (unsigned i = 0; i < depth; i++)
        add_module(pcs[i] - 1); /* a call may be the last instruction of a function */
    publish_at(stack_at(offset), stack_at(offset)->bytes);
    return offset;
}

/* Before the values of a live stack change: keep those of the peak, which is the moment of the last new maximum. */
static void keep_peak(struct sheaf_profile_stack *stack)
{
    if (stack->peak_epoch == area.truth->peak_epoch)
        return;
    stack->peak_epoch = area.truth->peak_epoch;
    stack->peak_count = stack->live_count;
    stack->peak_bytes = stack->live_bytes;
}

static void count_in(struct sheaf_profile_stack *stack, const struct sheaf_profile_sample *sample, double sign)
{
    double bytes = sample->weight * (double)sample->size;
    double variance = sample->weight * (sample->weight - 1) * (double)sample->size * (double)sample->size;
    stack->live_count += sign * sample->weight;
    stack->live_bytes += sign * bytes;
    stack->live_variance += sign * variance;
    stack->live_wasted += sign * sample->weight * (double)(sample->room - sample->size);
    stack->live_samples += sign > 0 ? 1 : -1ull;
    if (!stack->live_samples) /* sums of rounded numbers need not be exactly 0 */
        stack->live_count = stack->live_bytes = stack->live_variance = stack->live_wasted = 0;
    area.truth->live_count += sign * sample->weight;
    area.truth->live_bytes += sign * bytes;
    area.truth->live_variance += sign * variance;
    if (sign < 0)
        return;
    stack->samples++;
    stack->alloc_count += sample->weight;
    stack->alloc_bytes += bytes;
    stack->alloc_variance += variance;
    area.truth->alloc_count += sample->weight;
    area.truth->alloc_bytes += bytes;
}

/* ---- live samples ---- */

static struct sheaf_profile_sample *sample_at(uint32_t index)
{
    return (struct sheaf_profile_sample *)(void *)at(SAMPLES_AT) + index;
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
    double *cell = (double *)(void *)at(LIFETIMES_AT) + (size_t)row * SHEAF_PROFILE_TIMES + column;
    *cell += sample->weight;
    publish_at(cell, sizeof(*cell));
}

static void drop(uint32_t place)
{
    uint32_t index = area.tables->samples[place] - 1;
    struct sheaf_profile_sample *sample = sample_at(index);
    struct sheaf_profile_stack *stack = stack_at(sample->stack);
    keep_peak(stack);
    count_in(stack, sample, -1);
    count_lifetime(sample);
    empty_place(place);
    area.truth->freed++;
    *sample = (struct sheaf_profile_sample){.stack = area.free_sample};
    area.free_sample = index + 1;
    uint32_t next = sample->stack;
    sample->stack = 0;
    publish_at(sample, sizeof(*sample));
    sample->stack = next;
    publish_at(stack, sizeof(*stack));
}

/* The index of a free entry; SAMPLES_MAX if there is none. */
static uint32_t claim_sample(void)
{
    struct sheaf_profile *h = area.truth;
    uint32_t index = area.free_sample ? area.free_sample - 1 : h->samples_used;
    if (area.free_sample) {
        area.free_sample = sample_at(index)->stack;
    } else if (index == SAMPLES_MAX || !commit(SAMPLES_AT + index * sizeof(struct sheaf_profile_sample),
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
    uint32_t stack_offset = intern(new->pcs, new->depth);
    struct sheaf_profile_stack *stack = stack_at(stack_offset);
    struct sheaf_profile_sample *sample = sample_at(index);
    *sample = (struct sheaf_profile_sample){
        .address = (uint64_t)(uintptr_t) new->address,
        .size = new->size,
        .room = new->room,
        .weight = 1 / new->probability,
        .time_ms = now_ms(),
        .stack = stack_offset,
    };
    area.tables->samples[place] = index + 1;
    area.truth->taken++;
    area.truth->lost_stacks += !stack_offset;
    area.truth->slowed += new->slowed;
    if (area.truth->live_bytes + sample->weight * (double)sample->size <= area.truth->peak_bytes)
        keep_peak(stack);
    count_in(stack, sample, 1);
    if (area.truth->live_bytes > area.truth->peak_bytes) {
        area.truth->peak_bytes = area.truth->live_bytes;
        area.truth->peak_ms = sample->time_ms;
        area.truth->peak_epoch++;
    }
    publish_at(sample, sizeof(*sample));
    publish_at(stack, sizeof(*stack));
    return true;
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
    unsigned depth = stack->depth < most ? stack->depth : most;
    memcpy(pcs, stack->pcs, depth * sizeof(*pcs));
    return depth;
}

/* ---- start, record and fork ---- */

static bool set_up(struct sheaf_profile *truth, struct tables *tables)
{
    area.truth = truth;
    area.tables = tables;
    if (!commit(0, SAMPLES_AT) || !commit(STACKS_AT, sizeof(struct sheaf_profile_stack))) {
        area.truth = NULL;
        return false;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    area.start_ms = clock_ms();
    *truth = (struct sheaf_profile){
        .version = SHEAF_PROFILE_VERSION,
        .start_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
        .stacks_at = STACKS_AT,
        .stacks_bytes = SHEAF_PROFILE_BYTES - STACKS_AT,
        .stacks_used = sizeof(struct sheaf_profile_stack),
        .stacks_count = 1,
        .samples_at = SAMPLES_AT,
        .samples_max = SAMPLES_MAX,
        .modules_at = MODULES_AT,
        .modules_max = MODULES_MAX,
        .lifetimes_at = LIFETIMES_AT,
    };
    memcpy(truth->magic, SHEAF_PROFILE_MAGIC, sizeof(truth->magic));
    stack_at(0)->bytes = sizeof(struct sheaf_profile_stack);
    return true;
}

/* Takes the lock because two requests may come at once. */
bool area_start(void)
{
    if (!lock_acquire(lock_of(LOCK_PROFILE)))
        return false;
    bool done = area.truth;
    if (!done) {
        struct sheaf_profile *truth = vm_map_staged(SHEAF_PROFILE_BYTES, 4096);
        struct tables *tables = truth ? vm_map(sizeof(struct tables), 4096) : NULL;
        done = tables && set_up(truth, tables);
        if (done)
            own_note(truth, SHEAF_PROFILE_BYTES); /* it has the addresses of samples */
        if (!done && truth)
            vm_unmap(truth, SHEAF_PROFILE_BYTES);
        if (!done && tables)
            vm_unmap(tables, sizeof(*tables));
    }
    lock_release(lock_of(LOCK_PROFILE));
    return done;
}

void area_switched(uint64_t rate)
{
    if (!area.truth || !enter())
        return;
    area.truth->on = rate != 0;
    publish_at(&area.truth->on, sizeof(area.truth->on)); /* end() begins behind it */
    if (rate)
        area.truth->rate = rate;
    leave();
}

static void publish_all(void)
{
    const struct sheaf_profile *h = area.truth;
    publish(LIFETIMES_AT, MODULES_AT - LIFETIMES_AT);
    publish(MODULES_AT, h->modules_used * sizeof(struct sheaf_profile_module));
    publish(SAMPLES_AT, h->samples_used * sizeof(struct sheaf_profile_sample));
    publish(STACKS_AT, h->stacks_used);
    publish(0, sizeof(*h));
}

bool area_in_use(void)
{
    return area.truth;
}

void area_mirror(void *mirror)
{
    if (!area.truth || !lock_acquire(lock_of(LOCK_PROFILE)))
        return;
    area.mirror = mirror;
    memset(area.mirror_chunks, CHUNK_UNKNOWN, sizeof(area.mirror_chunks));
    publish_all();
    lock_release(lock_of(LOCK_PROFILE));
}

/* The fork held the lock, so nothing is half changed; area_mirror() follows. */
void area_fork_child(void)
{
    struct sheaf_profile *h = area.truth;
    if (!h)
        return;
    area.mirror = NULL;
    h->sequence &= ~1ull;
    h->pid_of_parent = (uint64_t)sys_call3(SYS_getppid, 0, 0, 0);
    h->alloc_count = h->alloc_bytes = 0;
    for (uint32_t offset = 0; offset < h->stacks_used; offset += stack_at(offset)->bytes) {
        struct sheaf_profile_stack *stack = stack_at(offset);
        stack->alloc_count = stack->alloc_bytes = stack->alloc_variance = 0;
    }
}
