/* Where the allocator's tables lie: fork() copies each page that is written and each page table that maps one. */
#define _GNU_SOURCE
#include "../cases.h"
#include "cache/kmem_cache.h"
#include "sheaf/malloc.h"
#include "memory/space/locks.h"
#include "memory/slab/descriptor.h"

#include <fcntl.h>

#define RANGE (2ul << 20) /* the range that one page table maps */

CASE(locks_are_found_by_number)
{
    uintptr_t first = UINTPTR_MAX, last = 0;
    for (unsigned i = 0; i < CACHE_MAX; i++) {
        must(lock_number(lock_of(i)) == i);
        uintptr_t at = (uintptr_t)lock_of(i);
        if (i < LOCK_GROUP) {
            first = at < first ? at : first;
            last = at > last ? at : last;
        }
        must(at >> 6 != (uintptr_t)lock_of((i + 1) % CACHE_MAX) >> 6);
    }
    must(last - first < 4096);
}

/* Counts the ranges of 2 MiB that contain pages of Sheaf's tables. */
static unsigned ranges(void)
{
    static uint64_t entries[RANGE / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (map < 0 || page != 4096)
        _exit(CASE_SKIPPED);
    unsigned n = 0;
    must(!space.slabs.mapped && !space.sheaves.mapped && !space.slices_table.mapped && !space.dirty_table.mapped);
    for (uintptr_t at = space.base - space.ids_table.mapped; at < space.region; at += RANGE) {
        must(pread(map, entries, sizeof(entries), (off_t)(at / page * 8)) == sizeof(entries));
        bool any = false;
        for (size_t i = 0; i < sizeof(entries) / 8; i++)
            any |= entries[i] >> 62 != 0; /* resident or swapped out */
        n += any;
    }
    close(map);
    return n;
}

CASE(a_small_program_touches_few_pages_of_page_tables)
{
    void *held[2000];
    for (size_t i = 0; i < 2000; i++)
        held[i] = sheaf_malloc(i % 1000);
    for (size_t i = 0; i < 2000; i++)
        sheaf_free(held[i]);
    if (slot_top > 2) /* with slots numbered by CPU, each may take ranges for its words and counters */
        _exit(CASE_SKIPPED);
    must(ranges() == 2);
}

/* The first part of the space for sheaves is limited; further sheaves lie elsewhere. */
CASE(sheaves_beyond_the_first)
{
    enum { N = 300 };
    static struct sheaf *made[N];
    must(sheaf_malloc(1));
    for (unsigned i = 0; i < N; i++) {
        must((made[i] = empty_sheaf_alloc(253)) != NULL);
        must(sheaf_at(sheaf_offset(made[i])) == made[i]);
        must(sheaf_order(made[i]) == sheaf_order_for(253));
        for (unsigned k = 0; k < 253; k++)
            made[i]->objects[k] = made[i];
    }
    bool beyond = false;
    for (unsigned i = 0; i < N; i++) {
        for (unsigned k = 0; k < 253; k++)
            must(made[i]->objects[k] == made[i]);
        beyond |= (char *)made[i] < space.sheaves_first;
    }
    must(beyond);
}

CASE(descriptors_beyond_the_first)
{
    enum { N = 400, OBJECTS = 4096 };
    static struct slab *made[N];
    must(sheaf_malloc(1));
    for (unsigned i = 0; i < N; i++) {
        must((made[i] = descriptor_alloc(OBJECTS)) != NULL);
        must(descriptor_of(made[i]->reference) == made[i]);
        made[i]->slice = i;
        for (unsigned k = 0; k < OBJECTS / 64; k++)
            made[i]->bits[k] = i;
    }
    bool beyond = false;
    for (unsigned i = 0; i < N; i++) {
        must(made[i]->slice == i);
        for (unsigned k = 0; k < OBJECTS / 64; k++)
            must(made[i]->bits[k] == i);
        beyond |= (char *)made[i] < space.slabs.start + space.slabs_first;
    }
    must(beyond);
}
