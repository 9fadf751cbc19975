/*
 * The mappings of the process, from /proc/thread-self/maps, and reading them without faults. (After the main thread
 * has ended, /proc/self has none.)
 *
 * All of it is called while the other threads are stopped: no lock is taken and nothing is allocated but by
 * leak_map().
 */
#ifndef SHEAF_LEAK_MAPS_H
#define SHEAF_LEAK_MAPS_H

#include "platform/os/compiler.h"

enum map_flags {
    MAP_READABLE = 1,
    MAP_WRITABLE = 2,
    MAP_CLOSED = 4, /* no access at all: a guard */
    MAP_COMMON = 8, /* shared */
    MAP_OF_FILE = 16,
    MAP_OF_DEVICE = 32, /* reading may have effects, or never end */
    MAP_MAIN_STACK = 64,
    MAP_OF_KERNEL = 128, /* vdso and its data */
};

struct map {
    uintptr_t start, end;
    uint32_t flags;
};

struct maps {
    struct map *all; /* by address */
    size_t count;
    int pagemap;       /* file; negative if it cannot be read */
    int common;        /* the same for shared mappings */
    uint64_t *entries; /* of /proc/thread-self/pagemap, a buffer */
    char *copy;        /* a buffer for memory that may fault */
};

/*
 * Returns false if the list cannot be read or there is no memory. `origin`: a thread of the process that this one is
 * a copy of; 0: none. A copy has no page of a shared mapping until it reads it, so the original tells what is there.
 */
bool maps_read(struct maps *maps, uint32_t origin);
void maps_close(struct maps *maps);

/* The mapping that contains the address, or else the first one above it; count if there is none. */
size_t maps_find(const struct maps *maps, uintptr_t address);

typedef void maps_visitor(uintptr_t from, uintptr_t to, void *with);

/*
 * Visits the parts of a range, which lies in one mapping, that the process may have written to: without the pages
 * that were never touched, and in private mappings without those that are still the file's, as far as the system
 * tells.
 */
void maps_each_present(struct maps *maps, bool common, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with);

/* Visits the readable parts of a range. */
void maps_each_readable(const struct maps *maps, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with);

/*
 * Visits copies of the parts of a range that can be read, page by page where necessary. Memory of a file beyond the
 * file's end cannot.
 */
void maps_each_copied(struct maps *maps, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with);

#endif
