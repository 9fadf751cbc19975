#include "memory/space/internal.h"

#include <link.h>
#include <sys/auxv.h>

/* A place is claimed by the counter before it is filled, so a reader may find ranges that are still empty. */
static large_table struct internal_range ranges[INTERNAL_MOST];
static _Atomic unsigned claimed;

void internal_note(const void *start, size_t size)
{
    unsigned at = atomic_fetch_add(&claimed, 1);
    if (at < INTERNAL_MOST)
        ranges[at] = (struct internal_range){(uintptr_t)start, (uintptr_t)start + size};
}

unsigned internal_ranges(struct internal_range *into, unsigned most)
{
    unsigned n = atomic_load(&claimed);
    n = n < INTERNAL_MOST ? n : INTERNAL_MOST;
    n = n < most ? n : most;
    for (unsigned i = 0; i < n; i++)
        into[i] = ranges[i];
    return n;
}

extern const ElfW(Ehdr) __ehdr_start hidden; /* defined by the linker */

struct internal_range own_data(void)
{
    uintptr_t base = (uintptr_t)&__ehdr_start, entry = getauxval(AT_ENTRY);
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
    struct internal_range data = {0, 0};
    for (unsigned i = 0; i < __ehdr_start.e_phnum; i++) {
        uintptr_t start = segment[i].p_vaddr, end = start + segment[i].p_memsz;
        if (segment[i].p_type != PT_LOAD)
            continue;
        if (__ehdr_start.e_type == ET_DYN) { /* other programs lie at the addresses that they were linked for */
            start += base;
            end += base;
        }
        if (entry >= start && entry < end)
            return (struct internal_range){0, 0};
        if (segment[i].p_flags & PF_W)
            data = (struct internal_range){start, end};
    }
    return data;
}
