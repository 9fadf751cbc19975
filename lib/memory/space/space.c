#include "memory/space/space.h"
#include "memory/space/hole.h"
#include "memory/space/lean.h"
#include "memory/space/locks.h"
#include "memory/space/slice.h"
#include "platform/os/cpu.h"
#include "platform/rseq/rseq.h"
#include "platform/os/vm.h"

#define REGION_SMALLEST (8ul << 20)
#define REGION_USUAL    (8ul << 40) /* 8 TiB */
#define REGION_LARGEST  (32ul << 40)
#define SLOTS_OPEN      4  /* slots that are writable from the start; more if more CPUs are allowed */
#define CHUNK_SHIFT     9u /* 32 MiB */
#define CHUNKS_LEAST    64 /* a small region has smaller chunks, down to 2 MiB */
#define FEW_SLOTS       8
#define SLOTS_LEAST     2
#define SLOTS_SHARE     8 /* where all slots take more than this part of RLIMIT_AS, there are only FEW_SLOTS */

/*
 * Descriptors of slabs, in lines of 64 bytes: 17 lines for a slab of 8-byte objects; 9, 5, 4, 3 or 2 for larger
 * objects. A descriptor is only reused for one of the same size, so a slice that serves one class after another may
 * need the sum. This is address space, not memory. References to descriptors have 32 bits.
 */
#define SLAB_BYTES_PER_SLICE ((17 + 9 + 5 + 4 + 3 + 2) * 64)
#define SLABS_MOST           (128ul << 30)

struct space space;

#define HUGE_PAGE     ((size_t)HUGE_PAGE_SLICES << SLICE_SHIFT)
#define BOOT_COUNTERS 8 /* slots whose counters lie in the bootstrap tables */
#define SLABS_FIRST   (128ul << 10)
#define SHEAVES_FIRST (256ul << 10)
#define SHEAVES_MOST  (512ul << 20)
#define ONE_TABLE     (1ul << 30) /* what one page of the next level of page tables maps */
#define AWAY          (2 * ONE_TABLE)
#define AWAY_UP       (64 * ONE_TABLE)
#define PLACES        4
#define TABLE_STEP    (1ul << 20)
#define REACH_LEAN    512u   /* slices */
#define REACH_STEP    32768u /* slices; they take 64 KiB of ids, 1 MiB of structs and 4 KiB of dirty bits */

static size_t take(size_t *at, size_t bytes)
{
    size_t start = *at;
    *at = round_up(start + bytes, SLICE_SIZE);
    return start;
}

/* Offsets from the start of the plan, and sizes, in bytes. */
struct layout {
    size_t slabs, slabs_size, mapped, caches, dirty_rest, slices_rest, counters_rest, counters_size, caches_size,
        ids_boot, base, sheaves, sheaves_size, counters, orders, dirty, chunks, slabs_first, sheaves_first, slices,
        slices_end, region, shadow, shadow_size, total;
    unsigned slots, slots_open, chunk_shift;
    uint32_t slice_most, mapped_most;
};

/* Computes the offsets of the bootstrap tables from the end of the counters on. */
static void lay_out_boot(struct layout *l, size_t at)
{
    l->counters = at;
    size_t orders =
        (round_up(at, HUGE_PAGE) + HUGE_PAGE - l->sheaves) >> SHEAF_PAGE_SHIFT; /* up to the first sheaves */
    l->orders = take(&at, orders);
    l->dirty = at;
    l->chunks = at + SLICES_FIRST / 8; /* the chunks of the first 64 GiB share a page with the first dirty bits */
    take(&at, SLICES_FIRST / 8 + (l->slice_most >> l->chunk_shift) + 1);
    l->slabs_first = take(&at, SLABS_FIRST);
    l->sheaves_first = take(&at, SHEAVES_FIRST);
    l->slices = take(&at, SLICES_FIRST * sizeof(struct slice));
    l->slices_end = at;
}

/* Computes the offsets of everything above the ids for a base at offset `base`. */
static void lay_out_above(struct layout *l, size_t base)
{
    size_t at = base;
    l->base = take(&at, (l->slots + 1ul) << SLOT_SHIFT); /* one more: platform/rseq/own.h */
    l->sheaves = take(&at, l->sheaves_size);
    l->mapped = take(&at, sizeof(struct mapped) * l->mapped_most);
    l->caches = take(&at, l->caches_size);
    /*
     * The bootstrap tables end where the region begins. The first pass measures them from a boundary of 2 MiB; what
     * is left of the last range goes to counters, whose lower part is not writable, and so nothing is charged for it.
     */
    size_t boot = round_up(at + l->slots * COUNTER_BLOCK, HUGE_PAGE) + BOOT_COUNTERS * COUNTER_BLOCK;
    lay_out_boot(l, boot);
    lay_out_boot(l, boot + round_up(l->slices_end, HUGE_PAGE) - l->slices_end);
    l->region = l->slices_end;
    size_t region = (size_t)l->slice_most << SLICE_SHIFT;
    l->shadow = l->region + region;
    l->shadow_size = region < REGION_SMALLEST ? 0 : region;
    l->total = l->shadow + l->shadow_size;
}

static void lay_out(struct layout *l, unsigned slots, size_t region_bytes)
{
    l->slots = slots;
    l->slots_open = vm_staged || space.lean ? 1 : cpu_allowed_count > SLOTS_OPEN ? cpu_allowed_count : SLOTS_OPEN;
    l->slots_open = l->slots_open < slots ? l->slots_open : slots;
    l->slice_most = (uint32_t)(region_bytes >> SLICE_SHIFT);
    for (l->chunk_shift = CHUNK_SHIFT;
         HUGE_PAGE_SLICES >> l->chunk_shift == 0 && l->slice_most >> l->chunk_shift < CHUNKS_LEAST;)
        l->chunk_shift--;
    bool tiny = region_bytes < REGION_SMALLEST; /* for malloc alone, so that the plan fits into a small hole */
    l->mapped_most = tiny || space.lean ? MAPPED_LEAN : MAPPED_MAX;
    size_t sheaves = region_bytes / 64, least = tiny ? 256ul << 10 : 1ul << 20;
    sheaves = sheaves < least ? least : sheaves > SHEAVES_MOST ? SHEAVES_MOST : sheaves;
    l->sheaves_size = round_up(sheaves, SLICE_SIZE);

    size_t at = 0, slabs = l->slice_most * (size_t)SLAB_BYTES_PER_SLICE;
    l->slabs_size = slabs < SLABS_MOST ? slabs : SLABS_MOST;
    l->slabs = take(&at, l->slabs_size);
    l->dirty_rest = take(&at, l->slice_most / 8 + 8);
    l->slices_rest = take(&at, l->slice_most * sizeof(struct slice));
    l->counters_size = tiny ? 0 : (CACHE_MAX / COUNTER_GROUP - 1) * slots * COUNTER_BLOCK;
    l->caches_size = tiny ? 0 : (size_t)CACHE_MAX * CACHE_ROW;
    l->counters_rest = take(&at, l->counters_size);
    lay_out_above(l, 0);
    size_t below = l->region >> SLICE_SHIFT; /* ids for what lies between base and the region */
    uint32_t start = l->slice_most < SLICES_FIRST ? l->slice_most : SLICES_FIRST;
    take(&at, (below + l->slice_most) * sizeof(uint16_t));
    l->ids_boot = round_up((below + start + 64) * sizeof(uint16_t), SLICE_SIZE);
    /* Rounding to 2 MiB may add slices below the region at this base; the 64 spare ids cover them. */
    lay_out_above(l, tiny ? at : round_up(at, HUGE_PAGE) + l->ids_boot);
}

/*
 * An address near the process's other mappings; NULL when the system grants none. Also finds out whether memory must
 * be staged, by the system's setting or because the system refuses to map PROBE, as it does when RLIMIT_DATA is low.
 * A low RLIMIT_AS would refuse it as well. PROBE is small because qemu's emulation of user programs needs memory for
 * each page that is mapped.
 */
#define PROBE (1ul << 30)
static char *find_near(void)
{
    bool small = space.limit / 2 < PROBE || atomic_load_explicit(&space.locked, memory_order_relaxed);
    size_t page = vm_page_size(), size = small ? page : PROBE;
    char *near = vm_map(size, 1);
    if (!near || vm_overcommit_off())
        vm_staged = true;
    if (!near && size > page && (near = vm_map(size = page, 1)) && is_resident(near))
        atomic_store(&space.locked, true); /* the program made the system call itself */
    if (near)
        vm_unmap(near, size);
    return near ? near + size - page : NULL;
}

/*
 * A place that is probably free. Mapping the whole plan and unmapping it again would find one for certain, but
 * RLIMIT_AS may refuse that, and qemu's emulation of user programs needs gigabytes of memory for it. The system
 * puts each new mapping below the last one, so a place far below stays free. Where mappings begin at low addresses
 * and grow upwards, as under valgrind, the place is far above. If it is occupied after all, mapping the parts
 * fails.
 */
static char *place(const struct layout *l, char *near, unsigned attempt)
{
    size_t away = l->total + (1 + attempt) * AWAY, aligned_at = l->base - l->ids_boot;
    uintptr_t start = (uintptr_t)near - away;
    if ((uintptr_t)near < away + AWAY)
        start = (uintptr_t)near + (1 + attempt) * AWAY_UP;
    return (char *)round_up(start + aligned_at, ONE_TABLE) - aligned_at;
}

enum vm_extent space_map_part(char *from, const char *to, enum vm_extent (*extend)(void *at, size_t size))
{
    size_t size = (size_t)(to - from);
    enum vm_extent done = size ? extend(from, size) : VM_EXTENDED;
    /* A huge page for the first byte of each table would cost more than all of them hold. */
    if (size && done == VM_EXTENDED)
        vm_advise_huge(from, size, false);
    return done;
}

/*
 * Commits what even the smallest process writes: the words and counters of slot 0, the sizes of the first sheaves,
 * the first dirty bits and chunks, and the structs and ids of the first chunk. The rest follows as it is used.
 */
static noinline_cold bool commit_start(char *plan, const struct layout *l)
{
    size_t first = (l->sheaves_first - l->sheaves) >> SHEAF_PAGE_SHIFT;
    size_t ids_from = (l->region - l->base) / SLICE_SIZE * sizeof(uint16_t);
    size_t ids_to = ids_from + (sizeof(uint16_t) << l->chunk_shift);
    return vm_commit(plan + l->base, (size_t)l->slots_open << SLOT_SHIFT) &&
           vm_commit(plan + l->counters - l->slots_open * COUNTER_BLOCK, l->slots_open * COUNTER_BLOCK) &&
           vm_commit(plan + l->orders + first, SHEAVES_FIRST >> SHEAF_PAGE_SHIFT) &&
           vm_commit(plan + l->dirty, SLICES_FIRST / 8 + 1) &&
           vm_commit(plan + l->slices, sizeof(struct slice) << l->chunk_shift) &&
           vm_commit(plan + l->base - ids_to, ids_to - ids_from);
}

struct part {
    char *from, *to;
    enum vm_extent (*extend)(void *at, size_t size);
};

static void unmap_parts(const struct part *parts, size_t count)
{
    while (count--) /* only what was mapped here: the part that failed may hold a mapping of the program */
        if (parts[count].to > parts[count].from)
            vm_unmap(parts[count].from, (size_t)(parts[count].to - parts[count].from));
}

static bool map_parts(const struct part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (space_map_part(parts[i].from, parts[i].to, parts[i].extend) != VM_EXTENDED) {
            unmap_parts(parts, i);
            return false;
        }
    return true;
}

/*
 * Maps what is used from the start. With overcommit off the system charges for writable memory as if it were used.
 * The words and counters of slots that will hardly be used, and the table of mapped blocks, are therefore only
 * readable until they are needed.
 */
static bool map_start(char *plan, const struct layout *l)
{
    char *slots = plan + l->base, *slots_open = slots + ((size_t)l->slots_open << SLOT_SHIFT);
    char *counters_open = plan + page_down(l->counters - l->slots_open * COUNTER_BLOCK);
    const struct part parts[] = {
        {slots - l->ids_boot, slots_open, vm_extend_staged},
        {slots_open, slots + ((l->slots + 1ul) << SLOT_SHIFT), vm_extend_readable},
        {plan + l->mapped, counters_open, vm_extend_readable},
        {counters_open, plan + l->region + ((size_t)SLICES_START << SLICE_SHIFT), vm_extend_staged},
    };
    if (!map_parts(parts, array_size(parts)))
        return false;
    if (likely(!vm_staged) || commit_start(plan, l))
        return true;
    unmap_parts(parts, array_size(parts));
    return false;
}

static struct space_table table(char *start, size_t most)
{
    return (struct space_table){.start = start, .most = most, .step = TABLE_STEP};
}

static struct space_table boot_table(char *start, size_t size)
{
    return (struct space_table){.start = start,
                                .mapped = vm_staged || space.lean ? 0 : size,
                                .most = size,
                                .step = vm_page_size(),
                                .at_boot = !space.lean};
}

static void set_up(char *plan, const struct layout *l)
{
    space.slots = l->slots;
    space.slots_open = l->slots_open;
    space.sheaves = table(plan + l->sheaves, l->sheaves_size);
    space.sheaves_first = plan + l->sheaves_first;
    bool near = l->sheaves_first + SHEAVES_FIRST - l->base <= UINT32_MAX; /* false with thousands of slots */
    space.sheaves_first_size = near ? SHEAVES_FIRST : 0;
    space.boot_slabs = boot_table(plan + l->slabs_first, SLABS_FIRST);
    space.boot_sheaves = boot_table(plan + l->sheaves_first, space.sheaves_first_size);
    space.boot_slices = boot_table(plan + l->slices, SLICES_FIRST * sizeof(struct slice));
    space.orders = (uint8_t *)plan + l->orders;
    space.counters = plan + l->counters;
    space.counters_rest = table(plan + l->counters_rest, l->counters_size);
    space.slices_first = (struct slice *)(void *)(plan + l->slices);
    space.dirty_first = (uint64_t *)(void *)(plan + l->dirty);
    space.chunks = (uint8_t *)plan + l->chunks;
    space.chunk_shift = l->chunk_shift;
    space.slabs = table(plan + l->slabs, l->slabs_size);
    space.slabs_first = l->slabs_first - l->slabs;
    space.slabs_first_end = space.slabs_first + SLABS_FIRST;
    space.caches = plan + l->caches;
    space.caches_size = l->caches_size;
    space.mapped = (struct mapped *)(void *)(plan + l->mapped);
    size_t ids_below = (l->region - l->base) >> SLICE_SHIFT;
    space.ids_table = table(plan + l->base, (ids_below + l->slice_most) * sizeof(uint16_t));
    space.ids_table.step = SLICE_SIZE;
    space.ids_table.down = true;
    space.ids_table.mapped = space.ids_boot = l->ids_boot;
    space.slices_table = table(plan + l->slices_rest, l->slice_most * sizeof(struct slice));
    space.dirty_table = table(plan + l->dirty_rest, l->slice_most / 8 + 8);
    space.dirty_table.step = SLICE_SIZE;
    space.shadow = table(plan + l->shadow, l->shadow_size);
    space.shadow.staged = true;
    space.ids = (uint16_t *)(void *)(plan + l->base) - ids_below;
    space.region = (uintptr_t)plan + l->region;
    space.slice_most = l->slice_most;
    space.slice_count = l->slice_most < SLICES_FIRST ? l->slice_most : SLICES_FIRST;
    space.page_size = vm_page_size();
    space.base = (uintptr_t)plan + l->base;
}

/* ---- where memory is locked ---- */

/* Maps little more than what the smallest process writes: a page of each table, one slot, and one slice. */
static bool map_lean(char *plan, const struct layout *l)
{
    char *base = plan + l->base, *orders = plan + l->orders, *slices = plan + l->slices, *region = plan + l->region;
    size_t ids = page_up(((l->region - l->base) / SLICE_SIZE + slices_of_page()) * sizeof(uint16_t));
    size_t first = page_down((l->sheaves_first - l->sheaves) >> SHEAF_PAGE_SHIFT);
    const struct part parts[] = {
        {base - ids, base + (1ul << SLOT_SHIFT), vm_extend},
        {plan + page_down(l->counters - COUNTER_BLOCK), plan + l->counters, vm_extend},
        {orders + first, orders + page_up(first + 1 + (SHEAVES_FIRST >> SHEAF_PAGE_SHIFT)), vm_extend},
        {plan + l->dirty, plan + l->dirty + vm_page_size(), vm_extend},
        {slices, slices + vm_page_size(), vm_extend},
        {region, region + SLICE_SIZE, vm_extend},
    };
    if (!map_parts(parts, array_size(parts)))
        return false;
    for (unsigned slot = 1; slot <= l->slots; slot++) {
        char *words = base + ((size_t)slot << SLOT_SHIFT);
        if (vm_extend_readable(words, vm_page_size()) == VM_EXTENDED)
            continue;
        while (--slot)
            vm_unmap(base + ((size_t)slot << SLOT_SHIFT), vm_page_size());
        unmap_parts(parts, array_size(parts));
        return false;
    }
    return true;
}

static bool try_plan(char *plan, const struct layout *l)
{
    if (unlikely(space.lean) ? !map_lean(plan, l) : !map_start(plan, l))
        return false;
    set_up(plan, l);
    space.slices_start = space.lean ? 1 : SLICES_START;
    space.mapped_most = l->mapped_most;
    if (unlikely(space.lean)) {
        space.ids_table.mapped = space.ids_boot = page_up((ids_below() + slices_of_page()) * sizeof(uint16_t));
        lean_set_up(0);
    }
    return true;
}

static bool try_places(unsigned slots, size_t region_bytes, char *near)
{
    struct layout l;
    lay_out(&l, slots, region_bytes);
    for (unsigned attempt = 0; attempt < PLACES; attempt++)
        if (try_plan(place(&l, near, attempt), &l))
            return true;
    return false;
}

/* The same in a hole of the address space that holds the whole plan, where other mappings take all these places. */
static bool try_hole(unsigned slots, size_t region_bytes)
{
    struct layout l;
    lay_out(&l, slots, region_bytes);
    char *plan = hole_anywhere(l.total, HUGE_PAGE);
    return plan && try_plan(plan, &l);
}

/* More slots are worth more than a larger region: without a slot for each CPU the fast paths cannot be used. */
static bool try_holes(unsigned slots, size_t region_bytes)
{
    for (size_t size = region_bytes; size > HUGE_PAGE; size = round_up(size / 2, HUGE_PAGE))
        if (try_hole(slots, size))
            return true;
    return try_hole(slots, HUGE_PAGE) ||
           (slots > SLOTS_LEAST && try_holes(slots > FEW_SLOTS ? FEW_SLOTS : SLOTS_LEAST, region_bytes));
}

/* Keeps slots from taking most of a small address space. The result may be less than the number of CPUs. */
static unsigned affordable_slots(unsigned slots)
{
    size_t each = (1ul << SLOT_SHIFT) + COUNTER_BLOCK;
    return slots > FEW_SLOTS && slots * each > space.limit / SLOTS_SHARE ? FEW_SLOTS : slots;
}

/*
 * Where memory is locked, or the system refuses what others start with, as it does if memory is locked without our
 * knowledge. Here it is worth reading a file to learn how many slots fast paths may look at.
 */
static noinline_cold bool init_lean(unsigned slots, size_t region_bytes, char *near)
{
    vm_staged = vm_overcommit_off();
    if (vm_staged)
        return false;
    space.lean = true;
    space.possible = cpus_possible(slots);
    slots = slots < space.possible ? slots : space.possible;
    if (try_places(slots, region_bytes, near) || try_hole(slots, region_bytes)) {
        atomic_store(&space.locked, true);
        return true;
    }
    space.lean = false;
    return false;
}

bool space_init(unsigned slots, size_t region_bytes)
{
    size_t want = region_bytes;
    if (!want)
        for (want = REGION_USUAL; want < 4 * vm_machine_memory() && want < REGION_LARGEST;)
            want *= 2;
    want = want < REGION_SMALLEST ? REGION_SMALLEST : round_up(want, HUGE_PAGE);
    space.limit = vm_limit();
    space.possible = slots;
    slots = affordable_slots(slots);
    char *near = find_near();
    if (unlikely(atomic_load(&space.locked)) && near && init_lean(slots, want, near))
        return true;
    for (size_t size = want; near && size >= REGION_SMALLEST; size = round_up(size / 2, HUGE_PAGE))
        if (try_places(slots, size, near) || try_hole(slots, size) ||
            (slots > FEW_SLOTS && try_places(FEW_SLOTS, size, near)))
            return true;
    return near && (try_holes(slots, want) || init_lean(slots, want, near));
}

/* ---- growing ---- */

static bool grow_locked(struct space_table *table, size_t to);

static enum vm_extent extend_table(const struct space_table *table, char *at, size_t size)
{
    /* the sizes of sheaves are staged as well */
    if (table == &space.sheaves &&
        !vm_commit(&space.orders[(at - table->start) >> SHEAF_PAGE_SHIFT], size >> SHEAF_PAGE_SHIFT))
        return VM_REFUSED;
    if (unlikely(space.lean) && table == &space.sheaves &&
        !grow_locked(&space.orders_table, (size_t)(at + size - table->start) >> SHEAF_PAGE_SHIFT))
        return VM_REFUSED;
    if (table->at_boot)
        return vm_commit(at, size) ? VM_EXTENDED : VM_REFUSED;
    return space_map_part(at, at + size, table->staged ? vm_extend_staged : vm_extend);
}

static bool grow_locked(struct space_table *table, size_t to)
{
    size_t mapped = atomic_load_explicit(&table->mapped, memory_order_relaxed);
    if (to <= mapped)
        return true;
    size_t wanted = round_up(to, table->step);
    to = wanted < table->most ? wanted : round_up(table->most, space.page_size);
    char *at = table->down ? table->start - to : table->start + mapped;
    if (taken_still(&table->taken))
        return false;
    enum vm_extent done = extend_table(table, at, to - mapped);
    taken_note(&table->taken, done == VM_TAKEN);
    if (done != VM_EXTENDED)
        return false;
    atomic_store_explicit(&table->mapped, to, memory_order_release);
    return true;
}

bool space_grow(struct space_table *table, size_t to)
{
    if (likely(to <= atomic_load_explicit(&table->mapped, memory_order_acquire)))
        return true;
    if (to > table->most || !lock_acquire(lock_of(LOCK_REGION)))
        return false;
    bool grown = grow_locked(table, to);
    lock_release(lock_of(LOCK_REGION));
    return grown;
}

/*
 * Opens all slots below as well, so that one number tells which are open. Two threads, or a thread and its signal
 * handler, may open the same slots; the second call changes nothing. The child of a fork inherits the mappings and
 * the number.
 */
bool space_open_slots(unsigned slots)
{
    unsigned open = atomic_load_explicit(&space.slots_open, memory_order_acquire);
    if (slots <= open)
        return true;
    if (unlikely(space.lean))
        return lean_open_slots(slots);
    char *counters = counters_of(slots), *counters_end = counters_of(open);
    if (slots > space.slots ||
        !vm_open((char *)space.base + ((size_t)open << SLOT_SHIFT), (size_t)(slots - open) << SLOT_SHIFT) ||
        (counters < counters_end && !vm_open(counters, (size_t)(counters_end - counters))))
        return false;
    while (open < slots && !atomic_compare_exchange_weak(&space.slots_open, &open, slots)) {
    }
    return true;
}

/*
 * A signal handler may take the word away while this runs, and then store another value (slot_pause_fast()), which
 * must stay.
 */
static void publish_lowest(uintptr_t *word)
{
    uintptr_t before = read_once(*word), now = ~(((space.region - space.base) >> SLICE_SHIFT) + space.slice_count);
    if (__atomic_load_n(&space.lowest, __ATOMIC_ACQUIRE) == word)
        __atomic_compare_exchange_n(word, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void space_publish_lowest(uintptr_t *word)
{
    write_once(space.lowest, word);
    if (word)
        publish_lowest(word);
}

/* Commits the structs, ids and chunks of the first slices, as far as they lie in what is mapped from the start. */
static noinline_cold bool commit_slices(uint32_t slices)
{
    uint32_t first = slices < SLICES_FIRST ? slices : SLICES_FIRST;
    size_t below = (space.region - space.base) / SLICE_SIZE * sizeof(uint16_t),
           ids = below + slices * sizeof(uint16_t);
    ids = ids < space.ids_boot ? ids : space.ids_boot;
    return grow_locked(&space.boot_slices, first * sizeof(struct slice)) &&
           vm_commit((char *)space.base - ids, ids - below) &&
           vm_commit(space.chunks, (slices >> space.chunk_shift) + 1);
}

static void count_slices(uint32_t slices)
{
    write_once(space.slice_count, slices);
    uintptr_t *word = read_once(space.lowest);
    if (word)
        publish_lowest(word);
}

/* If lean: maps the structs, ids and chunks of the first slices. */
static noinline_cold bool reach_lean(uint32_t slices)
{
    uint32_t first = (uint32_t)round_up(slices, slices_of_page());
    first = first < SLICES_FIRST ? first : SLICES_FIRST;
    first = first < space.slice_most ? first : space.slice_most;
    size_t near = (size_t)(space.chunks_table.start - (char *)space.chunks), used = (slices >> space.chunk_shift) + 1;
    if (!grow_locked(&space.boot_slices, first * sizeof(struct slice)) ||
        !grow_locked(&space.ids_table, (ids_below() + first) * sizeof(uint16_t)) ||
        (used > near && !grow_locked(&space.chunks_table, used - near)))
        return false;
    if (first > space.slice_count)
        count_slices(first);
    return true;
}

/*
 * A thread that frees a block in the new part received that block after this store, so it sees the new `lowest`.
 */
bool space_reach(uint32_t slices)
{
    if (unlikely(vm_staged) && !commit_slices(slices))
        return false;
    if (unlikely(space.lean) && slices <= space.slice_most && !reach_lean(slices))
        return false;
    if (slices <= space.slice_count)
        return true;
    if (slices > space.slice_most)
        return false;
    uint64_t rounded = round_up((uint64_t)slices, space.lean ? REACH_LEAN : REACH_STEP);
    uint32_t to = rounded < space.slice_most ? (uint32_t)rounded : space.slice_most;
    if (!grow_locked(&space.ids_table, (ids_below() + to) * sizeof(uint16_t)) ||
        !grow_locked(&space.slices_table, (to - SLICES_FIRST) * sizeof(struct slice)) ||
        !grow_locked(&space.dirty_table, (to - SLICES_FIRST) / 8 + 8))
        return false;
    count_slices(to);
    return true;
}

bool space_reach_shadow(uint32_t slices)
{
    return !space.shadow.mapped || grow_locked(&space.shadow, (size_t)slices << SLICE_SHIFT);
}
