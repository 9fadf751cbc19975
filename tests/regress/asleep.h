/* For tests in which a thread holds a lock until another thread waits for it. */
#ifndef SHEAF_TESTS_ASLEEP_H
#define SHEAF_TESTS_ASLEEP_H

#include "../must.h"

#include <fcntl.h>

/* Returns whether a thread of this process sleeps. Allocates nothing; may be called in signal handlers. */
static int asleep(pid_t thread)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    must(n > 0);
    text[n] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'S';
}

#endif
