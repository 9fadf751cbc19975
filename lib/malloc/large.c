#include "malloc/large.h"
#include "cache/kmem_cache.h"
#include "cache/misuse.h"
#include "os/vm.h"
#include "region/outside.h"

#include <stdint.h>
#include <string.h>

#define REMAP_UNITS 16 /* from 1 MiB up, moving pages is cheaper than copying them */

static bool units_for(size_t n, uint32_t *units)
{
    if (n > PTRDIFF_MAX)
        return false;
    size_t u = (n + UNIT_SIZE - 1) >> UNIT_SHIFT;
    *units = (uint32_t)u;
    return u < space.unit_count;
}

static void zero_dirty(uint32_t unit, size_t n)
{
    char *at = unit_address(unit);
    for (size_t done = 0; done < n; done += UNIT_SIZE, unit++) {
        size_t part = n - done < UNIT_SIZE ? n - done : UNIT_SIZE;
        if (!region_unit_clean(unit))
            memset(at + done, 0, part);
    }
}

/* When the region is full, give back everything that only lies in sheaves, once. */
static uint32_t run_alloc(uint32_t units, size_t align, bool *zeroed)
{
    uint32_t align_units = align > UNIT_SIZE ? (uint32_t)(align >> UNIT_SHIFT) : 1;
    if (align >> UNIT_SHIFT >= space.unit_count)
        return UNIT_NONE;
    return region_alloc(ARENA_LARGE, units, align_units, zeroed);
}

void *large_alloc(size_t n, size_t align, bool zero)
{
    uint32_t units;
    bool zeroed;
    if (n > PTRDIFF_MAX || align > PTRDIFF_MAX)
        return NULL;
    n += !n; /* a block of its own all the same */
    cache_decay(slot_current());
    if (units_for(n, &units)) {
        uint32_t unit = run_alloc(units, align, &zeroed);
        if (unit != UNIT_NONE) {
            if (zero && !zeroed)
                zero_dirty(unit, n);
            return unit_address(unit);
        }
    }
    void *p = outside_alloc(n, align);
    if (p || !units_for(n, &units) || !cache_trim_all())
        return p;
    uint32_t unit = run_alloc(units, align, &zeroed);
    if (unit == UNIT_NONE)
        return NULL;
    if (zero && !zeroed)
        zero_dirty(unit, n);
    return unit_address(unit);
}

/* The exchange decides between two threads that free the same block. */
void large_free(void *p)
{
    uintptr_t unit = unit_of(p);
    uint8_t live = UNIT_LARGE;
    if (unlikely((uintptr_t)p & (UNIT_SIZE - 1)) ||
        unlikely(!__atomic_compare_exchange_n(&space.units[unit].kind, &live, UNIT_CLOSED, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED)))
        large_report("free of", p);
    cache_decay(slot_current());
    region_free((uint32_t)unit);
}

size_t large_size(const void *p)
{
    uintptr_t unit = unit_of(p);
    if (((uintptr_t)p & (UNIT_SIZE - 1)) || read_once(space.units[unit].kind) != UNIT_LARGE)
        return 0;
    return (size_t)space.units[unit].length << UNIT_SHIFT;
}

/* A block that grows will often grow again: leave it a quarter of room, which costs no memory until it is touched. */
static void *grow_moving(void *p, size_t old, size_t n)
{
    uint32_t have = (uint32_t)(old >> UNIT_SHIFT);
    char *to = large_alloc(n + n / 4, 1, false);
    if (!to)
        to = large_alloc(n, 1, false);
    if (!to)
        return NULL;
    bool in_region = unit_of(to) < space.unit_count;
    if (have >= REMAP_UNITS && in_region && vm_move(p, to, old))
        __atomic_fetch_add(&region_stats.large_remap, 1, __ATOMIC_RELAXED);
    else
        memcpy(to, p, old);
    large_free(p);
    return to;
}

void *large_resize(void *p, size_t n)
{
    uint32_t units;
    size_t old = large_size(p);
    if (!units_for(n, &units))
        return n > PTRDIFF_MAX ? NULL : grow_moving(p, old, n);
    if (!units)
        units = 1;
    uint32_t have = (uint32_t)(old >> UNIT_SHIFT);
    /* shrinking keeps the room that growing left, unless it is worth something */
    if (units == have || (units < have && have - units < 2 + units / 4))
        return p;
    if (region_resize((uint32_t)unit_of(p), units))
        return p;
    return units < have ? p : grow_moving(p, old, n);
}

/* Look for the run that the unit is part of; slow, and the last thing that the process does. */
noinline_cold void large_report(const char *call, const void *p)
{
    static char text[64];
    uintptr_t unit = unit_of(p);
    uintptr_t head = unit;
    const char *kind = "foreign pointer";
    while (space.units[head].kind == UNIT_INSIDE || space.units[head].kind == UNIT_TAIL) {
        if (!head)
            break;
        head--;
    }
    const struct unit *run = &space.units[head];
    bool within = run->length > unit - head;
    if (within && run->kind == UNIT_LARGE)
        kind = "interior pointer";
    else if (within && (run->kind == UNIT_FREE || run->kind == UNIT_CLOSED || run->kind == UNIT_BUSY))
        misuse_report("double free of", p, "large block");
    strcpy(text, call);
    strcat(text, " ");
    strcat(text, kind);
    misuse_report(text, p, within ? "large block" : "not from this allocator");
}
