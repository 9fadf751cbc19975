/*
 * The file of the record: its layout (sheaf/record.h), its creation, and where it is mapped.
 *
 * The mapping consists of the file, memory for the counters of slots that the file has no room for, and the profile
 * area, whose part of the file may lie beyond the end of the file. It stays where it is while the process lives: the
 * file of a forked child takes the place of the parent's. Code that a signal handler with a fork interrupted may
 * therefore go on with addresses in it, and then writes to the child's file.
 */
#ifndef SHEAF_PRELOAD_RECORD_FILE_H
#define SHEAF_PRELOAD_RECORD_FILE_H

#include "cache/node/node.h"
#include "diagnostics/profile/profile.h"
#include "sheaf/control.h"
#include "sheaf/profile.h"
#include "sheaf/record.h"
#include "cache/slot/counters.h"

struct record_file {
    struct sheaf_record_header *header; /* NULL while the process has no record */
    unsigned caches, slots;             /* what the file has room for */
    uint64_t slots_at;                  /* offset */
    char *profile;                      /* where the profile area is mapped; NULL if there was no room for it */
    bool reach_profile;                 /* files are created with the profile area */
};
extern hidden struct record_file record_file;

#define RECORD_VALUES_AT 8192
#define RECORD_CACHES_AT 16384

/*
 * Create the file of this process and map it, all but `magic` zero or constant. Must be called once in a process, and
 * again in a forked child, where it replaces the mapping of the parent's file. Returns false after a message that
 * says why there is no record. A child's mapping is then private memory, which nothing reads. Changes errno.
 */
bool record_file_open(void);

/* Whether the file has memory for the counters of sampled caches (diagnostics/profile/profile.h); makes system calls.
 * Any context. */
bool record_file_has_sampled(void);

/* The control area and its window in the mapping. The header has their offsets too, but is not read back. */
struct sheaf_control *record_control(void);
char *record_window(void);

/* Print why there is no record: "sheaf: no record in DIR: WHAT ADVICE". */
void record_complain(const char *what, const char *advice);

/* CRC-32, as zlib computes it. */
uint32_t record_checksum(const char *bytes, size_t size);

/* The time in nanoseconds since 1970. */
uint64_t record_now_ns(void);

static inline char *record_at(uint64_t offset)
{
    return (char *)record_file.header + offset;
}

/* Bytes from the counters of one slot to those of the next. */
static inline uint64_t record_slot_stride(void)
{
    return (uint64_t)record_file.caches * COUNTER_STRIDE;
}

/*
 * The number of a cache in the file, which has room for malloc's caches. These have the first numbers of each node
 * (cache/node/node.h). Returns record_file.caches for all others: they count in memory only.
 */
static inline unsigned record_number(unsigned number)
{
    unsigned first = number % node_stride;
    return first < COUNTER_GROUP ? number / node_stride * COUNTER_GROUP + first : record_file.caches;
}
_Static_assert(CACHE_GAP <= COUNTER_GROUP && CACHE_MAX / NODES_MAX % COUNTER_GROUP == 0,
               "malloc's caches of a node are in one group of counters");

#endif
