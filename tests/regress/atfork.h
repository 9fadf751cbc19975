/* What the program tests/regress/atfork.c and the libraries that it loads share. */
#ifndef SHEAF_TESTS_ATFORK_H
#define SHEAF_TESTS_ATFORK_H

#include <pthread.h>

/* Defined by atfork_library.c. Its constructor registers handlers that take and release the mutex. */
struct atfork_library {
    pthread_mutex_t *mutex;
    int prepared, released; /* calls of the handlers */
};

extern struct atfork_library atfork_library;

/* The name of the struct, and of the variable that makes the constructor register. */
#define ATFORK_LIBRARY "atfork_library"

#endif
