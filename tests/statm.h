/* How much the process has mapped and how much is resident, from /proc/self/statm. Allocates nothing. */
#ifndef SHEAF_TESTS_STATM_H
#define SHEAF_TESTS_STATM_H

#include "must.h"

#include <fcntl.h>

static inline void statm_read(size_t *mapped, size_t *resident)
{
    char text[128] = "", *second;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = open("/proc/self/statm", O_RDONLY);
    must(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    *mapped = strtoul(text, &second, 10) * page;
    *resident = strtoul(second, NULL, 10) * page;
}

static inline size_t address_space_bytes(void)
{
    size_t mapped, resident;
    statm_read(&mapped, &resident);
    return mapped;
}

static inline size_t resident_bytes(void)
{
    size_t mapped, resident;
    statm_read(&mapped, &resident);
    return resident;
}

#endif
