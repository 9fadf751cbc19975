#define _GNU_SOURCE
#include "platform/os/cgroup.h"
#include "platform/os/file.h"

#include <string.h>

/*
 * Static, because the stack may be a signal handler's of a few KiB. Only one thread may therefore run this code at
 * a time; limit_poll() (process/limit.c) calls cgroup_limit() once per process.
 */
#define TEXT_MOST 4096
static large_table char groups[TEXT_MOST], name[TEXT_MOST];

const char *cgroup_root = "";
long cgroup_sandbox_at_start;

/* Returns the limit in bytes; SIZE_MAX for "max" and for a number that does not fit a size_t. */
static size_t limit_in(const char *path)
{
    char text[32];
    size_t limit = 0;
    if (!file_read(path, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
        return SIZE_MAX;
    for (const char *at = text; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(limit, 10, &limit) || __builtin_add_overflow(limit, (size_t)(*at - '0'), &limit))
            return SIZE_MAX;
    return limit ? limit : SIZE_MAX;
}

/*
 * The smallest limit of the groups from `path` up to the root of the hierarchy mounted at `mount`. Groups whose
 * limit file cannot be read are skipped.
 */
static size_t limit_along(const char *mount, const char *path, size_t length, const char *file)
{
    size_t before = strlen(cgroup_root), root = before + strlen(mount), limit = SIZE_MAX;
    if (root + length + strlen(file) + 1 > sizeof(name))
        return SIZE_MAX;
    strcpy(name, cgroup_root);
    strcpy(name + before, mount);
    memcpy(name + root, path, length);
    for (;;) {
        while (length && path[length - 1] == '/')
            length--;
        strcpy(name + root + length, file);
        size_t here = limit_in(name);
        limit = here < limit ? here : limit;
        if (!length)
            return limit;
        while (length && path[length - 1] != '/')
            length--;
    }
}

/* Whether "memory" is among the comma-separated controllers in [from, to). */
static bool has_memory(const char *from, const char *to)
{
    static const char memory[] = "memory";
    for (const char *at = from; at < to;) {
        const char *end = memchr(at, ',', (size_t)(to - at));
        end = end ? end : to;
        if ((size_t)(end - at) == sizeof(memory) - 1 && !memcmp(at, memory, sizeof(memory) - 1))
            return true;
        at = end + 1;
    }
    return false;
}

/* A line of /proc/self/cgroup is number:controllers:path; version 2 has number 0 and no controllers. */
static size_t limit_of_line(const char *line, const char *end)
{
    const char *controllers = memchr(line, ':', (size_t)(end - line));
    const char *path = controllers ? memchr(controllers + 1, ':', (size_t)(end - controllers - 1)) : NULL;
    if (!path)
        return SIZE_MAX;
    controllers++;
    size_t length = (size_t)(end - ++path);
    if (controllers == path - 1) {
        size_t pure = limit_along("/sys/fs/cgroup", path, length, "/memory.max");
        size_t hybrid = limit_along("/sys/fs/cgroup/unified", path, length, "/memory.max");
        return pure < hybrid ? pure : hybrid;
    }
    return has_memory(controllers, path - 1)
               ? limit_along("/sys/fs/cgroup/memory", path, length, "/memory.limit_in_bytes")
               : SIZE_MAX;
}

/*
 * A container's filter is there from the start. A filter that the program adds to that one leaves the mode as it is
 * and is recognized only if the program had to set no_new_privs for it.
 */
bool cgroup_may_open(void)
{
    long now = cgroup_sandbox();
    return now == cgroup_sandbox_at_start && (now == 0 || now >= CGROUP_FILTER);
}

size_t cgroup_limit(void)
{
    static const char own[] = "/proc/self/cgroup";
    size_t limit = SIZE_MAX, before = strlen(cgroup_root);
    if (before + sizeof(own) > sizeof(name) || !cgroup_may_open())
        return limit;
    strcpy(name, cgroup_root);
    strcpy(name + before, own);
    if (!file_read(name, groups, sizeof(groups)))
        return limit;
    for (const char *line = groups, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
        size_t here = limit_of_line(line, end);
        limit = here < limit ? here : limit;
    }
    return limit;
}
