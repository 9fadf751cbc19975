#define _GNU_SOURCE
#include "measure.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000U + (uint64_t)t.tv_usec;
}

struct usage usage_now(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (struct usage){
        .minor_faults = (uint64_t)r.ru_minflt,
        .major_faults = (uint64_t)r.ru_majflt,
        .user_us = microseconds(r.ru_utime),
        .system_us = microseconds(r.ru_stime),
    };
}

struct usage usage_since(struct usage before)
{
    struct usage now = usage_now();
    return (struct usage){
        .minor_faults = now.minor_faults - before.minor_faults,
        .major_faults = now.major_faults - before.major_faults,
        .user_us = now.user_us - before.user_us,
        .system_us = now.system_us - before.system_us,
    };
}

uint64_t proc_kib(const char *file, const char *key)
{
    char text[8192];
    size_t length = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    for (ssize_t n; length < sizeof(text) - 1 && (n = read(fd, text + length, sizeof(text) - 1 - length)) > 0;)
        length += (size_t)n;
    close(fd);
    text[length] = 0;
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key), NULL, 10);
    }
    return 0;
}

/* Exact if the kernel has smaps_rollup. VmRSS may lag by some pages per CPU. */
uint64_t resident_kib(void)
{
    uint64_t kib = proc_kib("/proc/self/smaps_rollup", "Rss:");
    return kib != 0 ? kib : proc_kib("/proc/self/status", "VmRSS:");
}

void *scratch(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        fail("no memory for %zu bytes of scratch space; free some memory first", bytes);
    return p;
}

const char *allocator_path(void)
{
    Dl_info where;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    if (address == NULL || dladdr(address, &where) == 0 || where.dli_fname == NULL)
        return "unknown";
    return where.dli_fname;
}

void sort_doubles(double *values, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        double value = values[i];
        unsigned place = i;
        for (; place > 0 && values[place - 1] > value; place--)
            values[place] = values[place - 1];
        values[place] = value;
    }
}

double median_of_sorted(const double *values, unsigned count)
{
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void fail(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, line);
    _exit(1);
}

uint64_t number_argument(const char *option, const char *text, uint64_t most)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != 0 || errno != 0 || value == 0 || value > most)
        fail("%s '%s': not a number from 1 to %llu", option, text != NULL ? text : "", (unsigned long long)most);
    return value;
}
