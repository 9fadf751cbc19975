/*
 * The profile area of the calling process, read from its record. The programs here run on the preloaded object with
 * SHEAF_RECORD and SHEAF_PROFILE set; profile_environment() arranges that.
 */
#ifndef SHEAF_TESTS_PROFILE_AREA_H
#define SHEAF_TESTS_PROFILE_AREA_H

#include "../cases.h"
#include "../proc.h"
#include "sheaf/profile.h"
#include "sheaf/record.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/mman.h>

/* Run the program again with these options (cost NULL: the default), and remove the records at the end. Returns in
 * the second run. */
static void profile_environment(char **argv, const char *rate, const char *cost);

/* Map the area of this process. A forked child has one of its own. */
static const struct sheaf_profile *profile_area(void);

/* ---- */

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *at)
{
    (void)status, (void)flag, (void)at;
    return remove(path);
}

static void profile_environment(char **argv, const char *rate, const char *cost)
{
    char directory[] = "/tmp/sheaf-profile-XXXXXX";
    if (getenv("SHEAF_PROFILE"))
        return;
    must(mkdtemp(directory));
    setenv("SHEAF_RECORD", directory, 1);
    setenv("SHEAF_PROFILE", rate, 1);
    if (cost)
        setenv("SHEAF_PROFILE_COST", cost, 1);
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* The path of the mapped record, without an allocation by way of stdio's buffers. */
static void record_path(char *path, size_t size)
{
    static char maps[1 << 20];
    proc_read("/proc/self/maps", maps, sizeof(maps));
    char *end = strstr(maps, ".sheaf\n");
    must(end);
    char *start = end;
    while (start[-1] != ' ')
        start--;
    must((size_t)(end + 6 - start) < size);
    memcpy(path, start, (size_t)(end + 6 - start));
    path[end + 6 - start] = 0;
}

__attribute__((unused)) static const struct sheaf_profile *profile_area(void)
{
    char path[512];
    record_path(path, sizeof(path));
    int fd = open(path, O_RDONLY);
    must(fd >= 0);
    struct sheaf_record_header *header = mmap(NULL, sizeof(*header), PROT_READ, MAP_SHARED, fd, 0);
    must(header != MAP_FAILED && header->profile_offset);
    const char *area = mmap(NULL, header->profile_size, PROT_READ, MAP_SHARED, fd, (off_t)header->profile_offset);
    must(area != MAP_FAILED && !memcmp(area, SHEAF_PROFILE_MAGIC, 8));
    close(fd);
    return (const void *)area;
}

__attribute__((unused)) static const struct sheaf_profile_stratum *profile_stratum(const struct sheaf_profile *area,
                                                                                   unsigned i)
{
    return (const struct sheaf_profile_stratum *)(const void *)((const char *)area + area->strata_at) + i;
}

/*
 * Sums over the stacks whose innermost frame lies in [start, end): the plain estimates, and their variances. The
 * weight of a sample of the size class is that of all others if the pace never changed, as with SHEAF_PROFILE_COST=0.
 */
struct site_sums {
    double alloc_count, alloc_bytes, alloc_variance, live_count, live_bytes, live_variance, live_wasted;
};
__attribute__((unused)) static struct site_sums profile_sums(const struct sheaf_profile *area, const char *start,
                                                             const char *end)
{
    struct site_sums sums = {0};
    const char *at = (const char *)area + area->stacks_at, *last = at + area->stacks_used;
    while (at < last) {
        const struct sheaf_profile_stack *stack = (const void *)at;
        at += stack->bytes;
        if (!stack->depth || stack->pcs[0] <= (uintptr_t)start || stack->pcs[0] > (uintptr_t)end)
            continue;
        double bytes = stack->alloc_count ? stack->alloc_bytes / stack->alloc_count : 0;
        double live = stack->live_count ? stack->live_bytes / stack->live_count : 0;
        sums.alloc_count += stack->alloc_count;
        sums.alloc_bytes += stack->alloc_bytes;
        sums.alloc_variance += (stack->alloc_square - stack->alloc_count) * bytes * bytes;
        sums.live_count += stack->live_count;
        sums.live_bytes += stack->live_bytes;
        sums.live_variance += (stack->live_square - stack->live_count) * live * live;
        sums.live_wasted += stack->live_wasted;
    }
    return sums;
}

/* The same over all stacks. */
__attribute__((unused)) static struct site_sums profile_all(const struct sheaf_profile *area)
{
    return profile_sums(area, NULL, (const char *)UINTPTR_MAX);
}

#endif
