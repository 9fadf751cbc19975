#define _GNU_SOURCE
#include "platform/os/objects.h"

#ifndef __GLIBC__

#include "platform/os/peek.h"

#include <elf.h>
#include <stdatomic.h>
#include <string.h>

enum {
    OBJECTS = 512,   /* further ones are found by copies */
    UNFINISHED = 64, /* objects behind the table that are looked at */
    SEGMENTS = 24,   /* those of an object that is looked at by copies */
};

struct object {
    uintptr_t start, end;
    const void *tables; /* the sorted table of unwind entries, or NULL */
    struct link_map *map;
};

static struct object objects[OBJECTS]; /* in the order of the linker's list */
static _Atomic unsigned object_count;
static _Atomic unsigned wanted; /* updates that were asked for since the present one began */

static struct object object_of(uintptr_t base, const ElfW(Phdr) * segments, unsigned n)
{
    struct object object = {.start = UINTPTR_MAX};
    for (unsigned i = 0; i < n; i++) {
        uintptr_t at = base + segments[i].p_vaddr;
        if (segments[i].p_type == PT_GNU_EH_FRAME)
            object.tables = (const void *)at;
        if (segments[i].p_type != PT_LOAD)
            continue;
        object.start = at < object.start ? at : object.start;
        object.end = at + segments[i].p_memsz > object.end ? at + segments[i].p_memsz : object.end;
    }
    return object;
}

/* ---- the table ---- */

/*
 * The link_map of an object that dl_iterate_phdr() lists. The objects before it are in the list for good. libc copies
 * dlpi_name from l_name, so equal pointers identify the object.
 */
static struct link_map *link_map_of(const struct dl_phdr_info *info)
{
    const struct r_debug *linker = libc_objects();
    struct link_map *map = linker ? linker->r_map : NULL;
    while (map && (map->l_addr != info->dlpi_addr || map->l_name != info->dlpi_name))
        map = map->l_next;
    return map;
}

static int add(struct dl_phdr_info *info, size_t size, void *passed)
{
    (void)size;
    unsigned *at = passed, count = atomic_load_explicit(&object_count, memory_order_relaxed);
    if ((*at)++ < count)
        return 0;
    if (count == OBJECTS)
        return 1;
    objects[count] = object_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum);
    objects[count].map = link_map_of(info);
    atomic_store_explicit(&object_count, count + 1, memory_order_release);
    return 0;
}

/* A caller that finds another thread at work, or interrupts it, leaves the update to that thread. */
void objects_update(void)
{
    if (atomic_fetch_add(&wanted, 1))
        return;
    unsigned done;
    do {
        unsigned at = 0;
        done = atomic_load(&wanted);
        dl_iterate_phdr(add, &at);
    } while (!atomic_compare_exchange_strong(&wanted, &done, 0));
}

void objects_prepare(void)
{
    if (!atomic_load_explicit(&object_count, memory_order_relaxed))
        objects_update();
}

void objects_fork_child(void)
{
    if (atomic_load_explicit(&wanted, memory_order_relaxed)) /* or its page would be copied */
        atomic_store(&wanted, 0);
}

/* ---- objects whose constructors still run ---- */

/* Reads an object that may be removed meanwhile. */
static bool copy_object(long self, const struct link_map *map, struct object *object)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[SEGMENTS];
    if (!peek(self, &header, map->l_addr, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_phentsize != sizeof(*segments) || header.e_phnum > SEGMENTS ||
        !peek(self, segments, map->l_addr + header.e_phoff, header.e_phnum * sizeof(*segments)))
        return false;
    *object = object_of(map->l_addr, segments, header.e_phnum);
    return true;
}

static bool find_unfinished(uintptr_t pc, const struct link_map *last, struct object *object)
{
    uintptr_t next = (uintptr_t)__atomic_load_n(&last->l_next, __ATOMIC_ACQUIRE);
    long self = next ? peek_self() : 0;
    for (unsigned i = 0; next && i < UNFINISHED; i++) {
        struct link_map map;
        if (!peek(self, &map, next, sizeof(map)))
            return false;
        if (copy_object(self, &map, object) && pc - object->start < object->end - object->start) {
            object->map = (struct link_map *)next;
            return true;
        }
        next = (uintptr_t)map.l_next;
    }
    return false;
}

/* ---- finding ---- */

static bool find(uintptr_t pc, struct object *found)
{
    objects_prepare();
    unsigned count = atomic_load_explicit(&object_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++)
        if (pc - objects[i].start < objects[i].end - objects[i].start) {
            *found = objects[i];
            return true;
        }
    const struct link_map *last = count ? objects[count - 1].map : NULL;
    return last && find_unfinished(pc, last, found);
}

bool objects_find_any(uintptr_t pc, struct dl_find_object *result)
{
    struct object object;
    if (!find(pc, &object))
        return false;
    *result = (struct dl_find_object){.dlfo_map_start = (void *)object.start,
                                      .dlfo_map_end = (void *)object.end,
                                      .dlfo_link_map = object.map,
                                      .dlfo_eh_frame = (void *)object.tables};
    return true;
}

int objects_find(void *pc, struct dl_find_object *result)
{
    return objects_find_any((uintptr_t)pc, result) && result->dlfo_eh_frame ? 0 : -1;
}

int _dl_find_object(void *pc, struct dl_find_object *result)
{
    return objects_find(pc, result);
}

#endif
