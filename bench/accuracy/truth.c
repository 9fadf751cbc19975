#define _GNU_SOURCE
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* In dump_jemalloc.c and dump_tcmalloc.cpp; Sheaf needs none. */
__attribute__((weak)) void accuracy_dump(void);

void truth_held(const char *name, size_t bytes)
{
    dprintf(STDOUT_FILENO, "held %s %zu\n", name, bytes);
}

void truth_peak(const char *name, size_t bytes)
{
    dprintf(STDOUT_FILENO, "peak %s %zu\n", name, bytes);
}

void truth_grown(const char *name, size_t bytes)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    dprintf(STDOUT_FILENO, "grown %s %lld%09ld %zu\n", name, (long long)now.tv_sec, now.tv_nsec, bytes);
}

void truth_ready(void)
{
    char c = 0;
    if (accuracy_dump)
        accuracy_dump();
    dprintf(STDOUT_FILENO, "ready %d\n", (int)getpid());
    while (c != '\n')
        if (read(STDIN_FILENO, &c, 1) != 1)
            exit(1); /* the script has ended */
}
