/*
 * Runs each case in a new execution of the program with SHEAF_LEAKS=1, and compares the sum at the end of the report:
 * "lost 2 KiB in 2 blocks, 1 KiB in 1 block through them" or "nothing lost". Prints TAP. An argument selects the case
 * of that name.
 *
 * Sizes of lost blocks are those of size classes, so that the sums are the same whether requested sizes are known
 * (SHEAF_DEBUG, samples) or not.
 */
#ifndef SHEAF_TESTS_LEAKS_H
#define SHEAF_TESTS_LEAKS_H

#include "../cases.h"

#include <stdlib.h>

struct leak_case {
    const char *name;
    void (*run)(void);
    const char *sum;  /* NULL: there is no report */
    const char *also; /* another part of standard error; NULL: none */
    int not_debugged; /* too slow where each allocation is debugged */
};

enum { EXECUTION_SECONDS = 300 };

/* Keeps the compiler from knowing what becomes of a pointer. */
static void *volatile sink;

__attribute__((unused)) static void *block(size_t n)
{
    void *p = malloc(n);
    must(p);
    memset(p, 0, n);
    return p;
}

/* Overwrites the part of the stack that earlier calls have used, so that no stale address is left there. */
__attribute__((unused, noinline)) static void scrub(void)
{
    volatile char bytes[64 << 10];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = 0;
    sink = NULL;
}

/* Calls a function, and leaves none of its addresses on the stack or in registers. */
__attribute__((unused, noinline)) static void away(void (*call)(void))
{
    volatile char gap[1024];
    gap[0] = 0;
    call();
    gap[sizeof(gap) - 1] = 0;
    scrub();
}

static const char *judge(const struct leak_case *c, int status, const char *text)
{
    if (status)
        return "it ended with another status";
    const char *sum = NULL;
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, "sheaf: lost ", 12) || !strncmp(line, "sheaf: nothing lost", 19))
            sum = line + 7;
    if (!c->sum)
        return sum ? "there is a report" : NULL;
    if (!sum)
        return "there is no sum";
    if (strncmp(sum, c->sum, strlen(c->sum)) != 0 || sum[strlen(c->sum)] != ';')
        return "the sum differs";
    return c->also && !strstr(text, c->also) ? "a part is missing" : NULL;
}

/* Reads to the end, whatever does not fit is left out in the middle. */
static size_t read_all(int from, char *text, size_t most)
{
    size_t n = 0;
    ssize_t got;
    while ((got = read(from, text + n, most - 1 - n)) > 0 || (got < 0 && errno == EINTR)) {
        n += got > 0 ? (size_t)got : 0;
        if (n > most - 4096) { /* keep the start and the end */
            memmove(text + most / 4, text + most / 2, n - most / 2);
            n -= most / 4;
        }
    }
    text[n] = 0;
    return n;
}

/* Samples (SHEAF_PROFILE) need a record; each case gets a directory of its own for it. */
static void remove_records(const char *directory)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    must(system(command) == 0);
}

static int run_leak_case(int number, const struct leak_case *c)
{
    static char text[1 << 18];
    char records[] = "/tmp/sheaf-leaks-XXXXXX";
    int err[2], status, sampled = getenv("SHEAF_PROFILE") != NULL;
    must(pipe(err) == 0 && (!sampled || mkdtemp(records)));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(EXECUTION_SECONDS);
        dup2(err[1], 2);
        close(err[1]);
        close(err[0]);
        setenv("SHEAF_LEAKS", "1", 1);
        if (sampled)
            setenv("SHEAF_RECORD", records, 1);
        execl("/proc/self/exe", "leaks", "--inside", c->name, (char *)NULL);
        _exit(126);
    }
    close(err[1]);
    read_all(err[0], text, sizeof(text));
    close(err[0]);
    must(waitpid(pid, &status, 0) == pid);
    if (sampled)
        remove_records(records);
    const char *wrong = judge(c, status, text);
    printf("%s %d %s\n", wrong ? "not ok" : "ok", number, c->name);
    for (char *end = text; (end = strchr(end, '\n'));) /* a TAP comment is one line */
        *end = '|';
    if (wrong)
        printf("# %s; status %x; wanted: %s; standard error: %s\n", wrong, (unsigned)status, c->sum, text);
    return wrong != NULL;
}

static int run_leak_cases(int argc, char **argv, const struct leak_case *cases, size_t count)
{
    int failed = 0, n = 0;
    if (argc == 3 && !strcmp(argv[1], "--inside")) {
        for (size_t i = 0; i < count; i++)
            if (!strcmp(argv[2], cases[i].name)) {
                cases[i].run();
                scrub();
                return 0;
            }
        return 2;
    }
    printf("1..%zu\n", argc > 1 ? 1 : count);
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        if (cases[i].not_debugged && getenv("SHEAF_DEBUG"))
            printf("ok %d %s # SKIP it takes too long with SHEAF_DEBUG\n", ++n, cases[i].name);
        else
            failed += run_leak_case(++n, &cases[i]);
    }
    if (!n)
        printf("Bail out! no case %s\n", argv[1]);
    return failed || !n;
}

#endif
