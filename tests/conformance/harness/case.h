/*
 * Black-box tests as tables of named cases.
 *
 *   prog            runs every case, each in a process of its own, and prints TAP
 *   prog CASE...    runs these cases in the same way
 *   prog --list     prints the names
 *   prog --seconds S --seed N --timeout S
 *
 * A case returns when it passed; check() ends it otherwise. It may be called from any thread and, in a forked child,
 * ends the child with status 1 and a diagnostic line. If LD_PRELOAD is set, nothing runs unless malloc comes from the
 * first object in it: a preload that silently failed must not pass.
 */
#ifndef CASE_H
#define CASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test_case {
    const char *name; /* a leading '-' keeps it out of the list and out of runs of all cases */
    void (*run)(void);
};

struct test_options {
    double seconds; /* how long a stress case works */
    uint64_t seed;
};

extern struct test_options test_options;

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

int run_cases(int argc, char **argv, const struct test_case *cases, size_t count);

__attribute__((noreturn, format(printf, 3, 4))) void case_fail(const char *file, int line, const char *format, ...);
__attribute__((noreturn)) void case_skip(const char *why);
__attribute__((format(printf, 1, 2))) void case_note(const char *format, ...);

#define check(condition)                                                                                             \
    do {                                                                                                             \
        if (__builtin_expect(!(condition), 0))                                                                       \
            case_fail(__FILE__, __LINE__, "%s (errno %d)", #condition, errno);                                       \
    } while (0)

/* With words of its own: checkf(condition, format, ...). */
#define checkf(condition, ...)                                                                                       \
    do {                                                                                                             \
        if (__builtin_expect(!(condition), 0))                                                                       \
            case_fail(__FILE__, __LINE__, __VA_ARGS__);                                                              \
    } while (0)

/* The file that malloc comes from. */
const char *allocator_path(void);
bool allocator_is_sheaf(void);

/* Runs `work` in a forked child; the child ends with status 0 when `work` returns. */
pid_t child_start(void (*work)(void));
/* Waits and checks that the child ended with this status and not by a signal. */
void child_expect(pid_t pid, int status);

/* Replaces the process by this program running the one (perhaps hidden) case. */
__attribute__((noreturn)) void case_exec(const char *name);

#ifdef __cplusplus
}
#endif

#endif
