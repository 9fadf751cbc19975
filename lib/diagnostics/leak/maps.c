#define _GNU_SOURCE
#include "diagnostics/leak/maps.h"
#include "diagnostics/leak/memory.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#define BUFFER  (64u << 10) /* bytes: longer than any line of the list */
#define ENTRIES 8192u       /* of pagemap, read at a time */
#define MORE    64u         /* mappings that may be added between the two readings of the list */

/* ---- lines of /proc/thread-self/maps ---- */

struct reader {
    long file;
    char *buffer;
    size_t length, at;
};

/* Returns the next line without its newline, valid until the next call; NULL at the end. */
static char *next_line(struct reader *reader)
{
    for (;;) {
        char *line = reader->buffer + reader->at;
        char *end = memchr(line, '\n', reader->length - reader->at);
        if (end) {
            *end = 0;
            reader->at = (size_t)(end + 1 - reader->buffer);
            return line;
        }
        reader->length -= reader->at;
        memmove(reader->buffer, line, reader->length);
        reader->at = 0;
        long got = sys_call3(SYS_read, reader->file, (long)(reader->buffer + reader->length),
                             (long)(BUFFER - reader->length));
        if (got <= 0)
            return NULL;
        reader->length += (size_t)got;
    }
}

static uintptr_t hexadecimal(char **at)
{
    uintptr_t n = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9')
            n = n << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            n = n << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return n;
    }
}

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Files in /dev are devices, except those that hold memory. */
static bool is_device(const char *name)
{
    static const char *const memory[] = {"/dev/shm/", "/dev/zero", "/dev/hugepages/"};
    for (unsigned i = 0; i < array_size(memory); i++)
        if (starts(name, memory[i]))
            return false;
    return starts(name, "/dev/") || starts(name, "/sys/") || starts(name, "/proc/") || starts(name, "anon_inode:");
}

/* A line is "start-end rwxp offset device inode   name". */
static struct map parse(char *line)
{
    struct map map = {.start = hexadecimal(&line)};
    line += *line == '-';
    map.end = hexadecimal(&line);
    line += *line == ' ';
    map.flags =
        (line[0] == 'r' ? MAP_READABLE : 0) | (line[1] == 'w' ? MAP_WRITABLE : 0) | (line[3] == 's' ? MAP_COMMON : 0);
    if (line[0] == '-' && line[1] == '-' && line[2] == '-')
        map.flags |= MAP_CLOSED;
    for (unsigned field = 0; field < 3; field++) { /* permissions, offset, device */
        line += strcspn(line, " ");
        line += *line == ' ';
    }
    map.flags |= *line != '0' ? MAP_OF_FILE : 0; /* the inode */
    line += strcspn(line, " ");
    line += strspn(line, " ");
    if (is_device(line))
        map.flags |= MAP_OF_DEVICE;
    if (!strcmp(line, "[stack]"))
        map.flags |= MAP_MAIN_STACK;
    if (starts(line, "[v"))
        map.flags |= MAP_OF_KERNEL;
    return map;
}

/* Reads the list; stores at most `most` mappings and returns how many there are, 0 if the list cannot be read. */
static size_t read_list(struct map *into, size_t most, char *buffer)
{
    struct reader reader = {.buffer = buffer};
    size_t n = 0;
    char *line;
    reader.file = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/thread-self/maps", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (reader.file < 0)
        return 0;
    for (; (line = next_line(&reader)); n++)
        if (n < most)
            into[n] = parse(line);
    sys_call3(SYS_close, reader.file, 0, 0);
    return n;
}

static int open_pagemap(const char *of)
{
    char path[64] = "/proc/";
    strcat(strcat(path, of), "/pagemap");
    return (int)sys_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

static int open_pagemap_of(uint32_t thread)
{
    char digits[12];
    size_t at = sizeof(digits) - 1;
    for (digits[at] = 0; thread; thread /= 10)
        digits[--at] = (char)('0' + thread % 10);
    return open_pagemap(digits + at);
}

bool maps_read(struct maps *maps, uint32_t origin)
{
    *maps = (struct maps){.pagemap = -1, .common = -1};
    maps->copy = leak_map(BUFFER);
    maps->entries = leak_map(ENTRIES * sizeof(*maps->entries));
    size_t most = maps->copy ? read_list(NULL, 0, maps->copy) : 0;
    if (!most || !maps->entries)
        return false;
    most += MORE;
    maps->all = leak_map(most * sizeof(*maps->all));
    if (!maps->all)
        return false;
    maps->count = read_list(maps->all, most, maps->copy);
    maps->count = maps->count < most ? maps->count : most;
    maps->pagemap = open_pagemap("thread-self");
    maps->common = origin ? open_pagemap_of(origin) : maps->pagemap;
    return maps->count;
}

void maps_close(struct maps *maps)
{
    if (maps->common >= 0 && maps->common != maps->pagemap)
        sys_call3(SYS_close, maps->common, 0, 0);
    if (maps->pagemap >= 0)
        sys_call3(SYS_close, maps->pagemap, 0, 0);
    maps->pagemap = maps->common = -1;
}

size_t maps_find(const struct maps *maps, uintptr_t address)
{
    size_t low = 0, high = maps->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (maps->all[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* ---- parts of a range ---- */

void maps_each_readable(const struct maps *maps, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with)
{
    for (size_t i = maps_find(maps, from); i < maps->count && maps->all[i].start < to; i++) {
        const struct map *map = &maps->all[i];
        if (map->flags & MAP_READABLE)
            visit(map->start > from ? map->start : from, map->end < to ? map->end : to, with);
    }
}

/*
 * A page has data if it is present or swapped out. A present page of a private mapping is the file's until it is
 * written to, which a bit tells. Pages of shared memory that were swapped out look untouched.
 */
static bool has_data(uint64_t entry, bool common)
{
    enum { FILE_BIT = 61, SWAPPED_BIT = 62, PRESENT_BIT = 63 };
    bool present = entry >> PRESENT_BIT & 1, of_file = entry >> FILE_BIT & 1;
    return (entry >> SWAPPED_BIT & 1) || (present && (common || !of_file));
}

void maps_each_present(struct maps *maps, bool common, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with)
{
    size_t page = vm_page_size();
    int file = common ? maps->common : maps->pagemap;
    uintptr_t start = 0, at = from & ~(page - 1); /* start: of the present pages before `at`; 0: none */
    while (at < to) {
        size_t want = (to - at + page - 1) / page;
        want = want < ENTRIES ? want : ENTRIES;
        long got = file < 0 ? 0
                            : sys_call(SYS_pread64, file, (long)maps->entries, (long)(want * 8),
                                       (long)(at / page * 8), 0, 0);
        size_t known = got > 0 ? (size_t)got / 8 : 0;
        for (size_t i = 0; i < (known ? known : want); i++, at += page) {
            bool data = !known || has_data(maps->entries[i], common);
            if (data && !start)
                start = at > from ? at : from;
            if (!data && start) {
                visit(start, at, with);
                start = 0;
            }
        }
    }
    if (start)
        visit(start, to, with);
}

static long copy_in(char *into, uintptr_t from, size_t size)
{
    struct iovec local = {into, size}, remote = {(void *)from, size};
    long self = sys_call3(SYS_gettid, 0, 0, 0); /* the main thread may have ended */
    return sys_call(SYS_process_vm_readv, self, (long)&local, 1, (long)&remote, 1, 0);
}

void maps_each_copied(struct maps *maps, uintptr_t from, uintptr_t to, maps_visitor *visit, void *with)
{
    size_t page = vm_page_size();
    while (from < to) {
        size_t size = to - from < BUFFER ? to - from : BUFFER;
        long got = copy_in(maps->copy, from, size);
        if (got == -ENOSYS || got == -EPERM) { /* a sandbox: what the system says to be present can be read */
            if (maps->pagemap >= 0)
                visit(from, to, with);
            return;
        }
        if (got > 0)
            visit((uintptr_t)maps->copy, (uintptr_t)maps->copy + (size_t)got, with);
        from = got == (long)size ? from + size : ((from + (got > 0 ? (size_t)got : 0)) & ~(page - 1)) + page;
    }
}
