#include "memory/space/hole.h"
#include "platform/os/cgroup.h"
#include "platform/os/syscall.h"

#include <fcntl.h>
#include <sys/mman.h>

/* Memory without access is neither charged nor counted against RLIMIT_DATA. */
char *hole_anywhere(size_t size, size_t align)
{
    if (size + align < size)
        return NULL;
    long at =
        sys_call(SYS_mmap, 0, (long)(size + align), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at < 0 && at > -4096)
        return NULL;
    sys_call3(SYS_munmap, at, (long)(size + align), 0);
    return (char *)round_up((uintptr_t)at, align);
}

struct search {
    uintptr_t at, to; /* all of [from, at) is of no use */
    size_t size, align;
    uintptr_t start, value; /* of the line that is being read; the number that is being read */
    int field;              /* 0: the start of a mapping, 1: its end, 2: the rest of the line */
};

static bool fits(const struct search *search, uintptr_t end)
{
    return search->at < end && end - search->at >= search->size;
}

/* Returns whether there is a hole before the mapping. Mappings are in the order of their addresses. */
static bool before_mapping(struct search *search, uintptr_t start, uintptr_t end)
{
    if (fits(search, start < search->to ? start : search->to))
        return true;
    if (end > search->at)
        search->at = round_up(end, search->align);
    return search->at >= search->to;
}

/* Reads "start-end ..." character by character. Returns true when the search is over. */
static bool next(struct search *search, char c)
{
    if (c == '\n') {
        search->field = 0;
        search->value = 0;
        return false;
    }
    if (search->field > 1)
        return false;
    if (c != '-' && c != ' ') {
        search->value = search->value << 4 | (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        return false;
    }
    uintptr_t value = search->value;
    search->value = 0;
    if (search->field++ == 0) {
        search->start = value;
        return false;
    }
    return before_mapping(search, search->start, value);
}

uintptr_t hole_from(uintptr_t from, uintptr_t to, size_t size, size_t align)
{
    static large_table char text[4096]; /* the stack of a signal handler may be small */
    struct search search = {.at = round_up(from, align), .to = to, .size = size, .align = align};
    long fd = -1, got;
    if (cgroup_may_open())
        fd = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0)
        return HOLE_UNKNOWN;
    bool done = false, any = false;
    while (!done && (got = sys_call3(SYS_read, fd, (long)text, sizeof(text))) > 0) {
        any = true;
        for (long i = 0; i < got && !done; i++)
            done = next(&search, text[i]);
    }
    sys_call3(SYS_close, fd, 0, 0);
    return !any ? HOLE_UNKNOWN : fits(&search, to) ? search.at : 0;
}

bool is_resident(void *page)
{
    unsigned char there = 0;
    return sys_call3(SYS_mincore, (long)page, 1, (long)&there) == 0 && there & 1;
}

/* The file has a list such as "0-3" or "0,2-5"; its last number is the highest. */
unsigned cpus_possible(unsigned most)
{
    char text[256];
    long fd = sys_call(SYS_openat, AT_FDCWD, (long)"/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0)
        return most;
    long got = sys_call3(SYS_read, fd, (long)text, sizeof(text)), at = 0;
    sys_call3(SYS_close, fd, 0, 0);
    unsigned last = 0, n = 0;
    for (; at < got && text[at] != '\n'; at++) {
        n = text[at] >= '0' && text[at] <= '9' ? n * 10 + (unsigned)(text[at] - '0') : 0;
        last = n;
    }
    return at > 0 && at < got && last < most ? last + 1 : most;
}
