#include "memory/space/lean.h"
#include "memory/space/hole.h"
#include "platform/rseq/rseq.h"

static void unmap_between(char *from, const char *to)
{
    if (from < to)
        vm_unmap(from, (size_t)(to - from));
}

static void lean_table(struct space_table *table, char *start, size_t mapped, size_t most)
{
    *table = (struct space_table){.start = start, .mapped = mapped, .most = most, .step = vm_page_size()};
}

void lean_set_up(uint32_t slices)
{
    slices = (uint32_t)round_up(slices + !slices, slices_of_page());
    slices = slices < SLICES_FIRST ? slices : SLICES_FIRST;
    slices = slices < space.slice_most ? slices : space.slice_most;
    space.lean = true;
    if (space.slice_count <= SLICES_FIRST)
        space.slice_count = slices;
    lean_table(&space.boot_slices, (char *)space.slices_first, slices * sizeof(struct slice),
               SLICES_FIRST * sizeof(struct slice));
    size_t tail = page_down((size_t)(space.sheaves_first - space.sheaves.start) >> SHEAF_PAGE_SHIFT);
    lean_table(&space.orders_table, (char *)space.orders,
               page_up(atomic_load(&space.sheaves.mapped) >> SHEAF_PAGE_SHIFT), tail);
    char *chunks = (char *)space.dirty_first + vm_page_size();
    size_t near = (size_t)(chunks - (char *)space.chunks), used = (slices >> space.chunk_shift) + 1,
           most = (space.slice_most >> space.chunk_shift) + 1;
    lean_table(&space.chunks_table, chunks, used > near ? page_up(used - near) : 0,
               most > near ? page_up(most - near) : 0);
    space.ids_table.step = space.dirty_table.step = vm_page_size();
    space.slabs.step = space.sheaves.step = space.slices_table.step = SLICE_SIZE;
}

/* ---- growing ---- */

/*
 * The same if lean, where parts have to be mapped: one thread at a time. Others, and a handler that interrupted it,
 * are refused, as if the system had no memory; cache_fork_child() lets the child of a fork try again.
 */
bool lean_open_slots(unsigned slots)
{
    if (slots > space.slots || atomic_exchange(&space.opening, true))
        return false;
    unsigned slot = atomic_load(&space.slots_open);
    for (; slot < slots; slot++) {
        char *words = (char *)space.base + ((size_t)slot << SLOT_SHIFT);
        char *counters = counters_of(slot + 1), *counters_end = counters_of(slot);
        size_t page = vm_page_size(), rest = (1ul << SLOT_SHIFT) - page;
        if (space_map_part(counters, counters_end, vm_extend) != VM_EXTENDED)
            break;
        if (!vm_open(words, page) || (rest && vm_extend(words + page, rest) != VM_EXTENDED)) {
            unmap_between(counters, counters_end);
            break;
        }
        atomic_store(&space.slots_open, slot + 1);
    }
    atomic_store(&space.opening, false);
    return slot >= slots;
}

static _Atomic uint32_t caches_open; /* bits of groups */

#define GROUP_BYTES ((size_t)COUNTER_GROUP * CACHE_ROW)

/* The first whole page of a group's rows. With large pages the page before holds its first rows, and the last of the
 * group below. */
static char *rows_of(unsigned group)
{
    return space.caches + page_up(group * GROUP_BYTES);
}

/* If lean: maps the groups below as well, because caches are looked at by number; the first only if it shares a page
 * with the next. */
static noinline_cold bool open_caches_lean(unsigned group)
{
    bool shared = GROUP_BYTES % vm_page_size();
    for (unsigned i = group && !shared ? 1 : 0; i <= group; i++) {
        if (atomic_load(&caches_open) >> i & 1)
            continue;
        if (space_map_part(rows_of(i), rows_of(i + 1), vm_extend) != VM_EXTENDED)
            return atomic_load(&caches_open) >> group & 1; /* another thread may have done it meanwhile */
        atomic_fetch_or(&caches_open, 1u << i);
    }
    return true;
}

/* Two threads may open the same group; the second call changes nothing. */
bool space_open_caches(unsigned group)
{
    _Static_assert(CACHE_MAX / COUNTER_GROUP <= 32, "a bit for each group");
    if (atomic_load_explicit(&caches_open, memory_order_acquire) >> group & 1)
        return true;
    if (unlikely((group + 1) * GROUP_BYTES > space.caches_size))
        return false;
    if (unlikely(space.lean))
        return open_caches_lean(group);
    char *rows = space.caches + page_down(group * GROUP_BYTES);
    if (!vm_open(rows, (size_t)(rows_of(group + 1) - rows)))
        return false;
    atomic_fetch_or(&caches_open, 1u << group);
    return true;
}

/* ---- becoming lean ---- */

static void slim_slots(unsigned used)
{
    size_t page = vm_page_size();
    char *words = (char *)space.base, *end = words + ((size_t)space.slots << SLOT_SHIFT);
    unsigned open = used < atomic_load(&space.slots_open) ? used : atomic_load(&space.slots_open),
             possible = cpus_possible(space.slots);
    for (unsigned slot = open; slot < possible; slot++)
        unmap_between(words + ((size_t)slot << SLOT_SHIFT) + page, words + ((slot + 1ul) << SLOT_SHIFT));
    unmap_between(words + ((size_t)(possible > open ? possible : open) << SLOT_SHIFT), end);
    atomic_store(&space.slots_open, open);
    unmap_between(space.caches + space.caches_size, counters_of(open));
    if (!atomic_load(&space.mapped_open)) {
        unmap_between((char *)space.mapped, space.caches);
        space.mapped_most = MAPPED_LEAN;
    }
    for (unsigned group = 0; (group + 1) * GROUP_BYTES <= space.caches_size && !(atomic_load(&caches_open) >> 1);
         group++)
        if (!(atomic_load(&caches_open) >> group & 1))
            unmap_between(rows_of(group), rows_of(group + 1));
}

void space_slim(uint32_t slices, unsigned slots)
{
    if (vm_staged || space.lean)
        return;
    slim_slots(slots);
    char *chunks_end = space.slabs.start + space.slabs_first;
    lean_set_up(slices);
    if (space.lowest)
        space_publish_lowest(space.lowest);
    unmap_between(space.boot_slices.start + space.boot_slices.mapped, (char *)space.region);
    unmap_between(space.orders_table.start + space.orders_table.mapped,
                  space.orders_table.start + space.orders_table.most);
    unmap_between(space.chunks_table.start + space.chunks_table.mapped, chunks_end);
}

void space_shorten(struct space_table *table, size_t used)
{
    used = page_up(used);
    if (!space.lean || used >= atomic_load(&table->mapped) || table->down)
        return;
    unmap_between(table->start + used, table->start + atomic_load(&table->mapped));
    atomic_store(&table->mapped, used);
    table->at_boot = false;
    table->step = vm_page_size();
}
