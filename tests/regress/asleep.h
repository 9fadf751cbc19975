/* For tests in which a thread holds a lock until another thread waits for it. */
#ifndef SHEAF_TESTS_ASLEEP_H
#define SHEAF_TESTS_ASLEEP_H

#include "../proc.h"

/* Returns whether a thread of this process sleeps. Allocates nothing; may be called in signal handlers. */
static int asleep(pid_t thread)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    proc_read(path, text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'S';
}

#endif
