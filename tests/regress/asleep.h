/* Whether a thread of ours waits for something: for tests that let another one wait for their lock, and then go on.
 */
#ifndef SHEAF_TESTS_ASLEEP_H
#define SHEAF_TESTS_ASLEEP_H

#include "../cases.h"

#include <fcntl.h>

/* Allocates nothing; for signal handlers too. */
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
