/*
 * One fault for each process: the program executes itself again for each case, without and with debugging, and
 * checks the report. `--table` prints the results as rows of the tables in docs/debug.md.
 *
 * Cases allocate by give() and free by take() where a report must name the callers.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <stddef.h>

struct fault {
    const char *name;
    const char *what; /* the description of the fault in the table */
    void (*run)(void);
    const char *debugged; /* the report's beginning; NULL: no report; SHOWS: the program reads the fill pattern */
    const char *plain;    /* the same without debugging; if NULL, the process may also crash */
    const char *cache;    /* the cache that the report must name */
    int owned;            /* with debugging the report must name give() and, after a free, take() */
};

#define SHOWS "shows"

/* Passes the pointer that is about to be misused to the parent, which looks for it in the report. Returns it. */
void *tell(void *p);

/* Ends the process after it has read debugging's fill pattern from freed or uninitialized memory. */
void shows_poison(void);

int faults_main(int argc, char **argv, const struct fault *faults, int count, const char *const *debug_env);

#endif
