/* System calls that fail, by seccomp: for this process, its threads and whatever it executes. No privilege needed. */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>
#include <stddef.h>

struct refusal {
    int call;  /* SYS_... */
    int error; /* the errno it fails with */
    long pass; /* calls that still succeed; counted over all threads and processes */
};

/* Returns 0, or -1 with errno when the kernel lets us install no filter. Calls of one `refuse` count separately. */
int refuse(const struct refusal *list, size_t count);

/* The number of a system call that the tests know by name, or -1. */
int refuse_call_by_name(const char *name);
int refuse_error_by_name(const char *name);

#endif
