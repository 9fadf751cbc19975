/*
 * One fault a process: the program runs itself again for each case, with debugging on and as it is by default, and
 * looks at what is said. `--table` prints what it finds as rows of docs/debug.md.
 *
 * Allocations to be named in reports are made by give(), frees by take().
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <stddef.h>

struct fault {
    const char *name;
    const char *what; /* for the table */
    void (*run)(void);
    const char *debugged; /* how the report begins; NULL: nothing is said; SHOWS: the program itself sees poison */
    const char *plain;    /* the same without debugging; what else happens then is undefined */
    const char *cache;    /* that the report names */
    int owned;            /* the report must name give() */
};

#define SHOWS "shows"

/* In the child: which pointer is about to be misused. */
void *tell(void *p);

/* The program saw the fill of debugging where there should be none of its data. */
void shows_poison(void);

int faults_main(int argc, char **argv, const struct fault *faults, int count, const char *const *debug_env);

#endif
