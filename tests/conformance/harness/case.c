#include "case.h"

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STATUS_FAIL 1
#define STATUS_SKIP 77

struct test_options test_options = {.seconds = 2, .seed = 0};

extern char **environ;

static const char *case_name;
static pid_t case_pid;
static char program[4096];

/* One write for one line, so that lines of several processes do not mix. */
static void print_line(const char *before, const char *text)
{
    char line[1200];
    int length = snprintf(line, sizeof(line), "%s%s\n", before, text);
    if (length >= (int)sizeof(line))
        length = (int)sizeof(line) - 1;
    if (write(STDOUT_FILENO, line, (size_t)length) < 0)
        _exit(STATUS_FAIL);
}

void case_note(const char *format, ...)
{
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    print_line("# ", text);
}

void case_fail(const char *file, int line, const char *format, ...)
{
    char why[600];
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    const char *base = strrchr(file, '/');
    bool child = getpid() != case_pid;
    snprintf(text, sizeof(text), "%s - %s at %s:%d", case_name ? case_name : "?", why, base ? base + 1 : file, line);
    print_line(child ? "# child of " : "not ok ", text);
    _exit(STATUS_FAIL);
}

void case_skip(const char *why)
{
    char text[300];
    snprintf(text, sizeof(text), "%s # SKIP %s", case_name, why);
    print_line("ok ", text);
    _exit(STATUS_SKIP);
}

pid_t child_start(void (*work)(void))
{
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        work();
        _exit(0);
    }
    return pid;
}

void child_expect(pid_t pid, int status)
{
    int got = 0;
    pid_t ended;
    do
        ended = waitpid(pid, &got, 0);
    while (ended < 0 && errno == EINTR);
    check(ended == pid);
    checkf(!WIFSIGNALED(got), "child killed by signal %d", WTERMSIG(got));
    checkf(WEXITSTATUS(got) == status, "child ended with %d instead of %d", WEXITSTATUS(got), status);
}

static void own_path(void)
{
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[length > 0 ? length : 0] = 0;
}

const char *allocator_path(void)
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    return address && dladdr(address, &info) ? info.dli_fname : "";
}

bool allocator_is_sheaf(void)
{
    return strstr(allocator_path(), "sheaf-preload") != NULL;
}

static bool allocator_is_preloaded(void)
{
    const char *wanted = getenv("LD_PRELOAD");
    if (!wanted || !*wanted)
        return true;
    char first[4096];
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(wanted, ": "), wanted);
    struct stat a, b;
    return stat(first, &a) == 0 && stat(allocator_path(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

struct arguments {
    char seconds[32], seed[32];
    char *vector[8];
};

static void fill_arguments(struct arguments *a, const char *name)
{
    snprintf(a->seconds, sizeof(a->seconds), "%g", test_options.seconds);
    snprintf(a->seed, sizeof(a->seed), "%llu", (unsigned long long)test_options.seed);
    char *vector[] = {program, "--seconds", a->seconds, "--seed", a->seed, "--one", (char *)name, NULL};
    memcpy(a->vector, vector, sizeof(vector));
}

void case_exec(const char *name)
{
    struct arguments a;
    fill_arguments(&a, name);
    execv(program, a.vector);
    case_fail(__FILE__, __LINE__, "cannot execute %s", program);
}

/* The case gets a process group, so that a hung one is killed together with its children. */
static pid_t start_process(const char *name, const sigset_t *mask)
{
    struct arguments a;
    fill_arguments(&a, name);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, mask);
    pid_t pid = -1;
    int failed = posix_spawn(&pid, program, NULL, &attributes, a.vector, environ);
    posix_spawnattr_destroy(&attributes);
    return failed ? -1 : pid;
}

/* True when the process ended in time; else it is killed. */
static bool wait_process(pid_t pid, const sigset_t *child_signal, double timeout, int *status)
{
    struct timespec step = {.tv_sec = 1};
    for (double waited = 0; waited < timeout; waited++) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
        sigtimedwait(child_signal, NULL, &step);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, status, 0);
    return false;
}

static bool run_one_apart(const char *name, double timeout)
{
    sigset_t child_signal, before;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal, &before);
    char text[300];
    int status = 0;
    pid_t pid = start_process(name, &before);
    bool passed = false;
    if (pid < 0) {
        snprintf(text, sizeof(text), "%s - cannot start %s", name, program);
        print_line("not ok ", text);
    } else if (!wait_process(pid, &child_signal, timeout, &status)) {
        snprintf(text, sizeof(text), "%s - hung: still running after %g s", name, timeout);
        print_line("not ok ", text);
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof(text), "%s - killed by signal %d (%s)", name, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
        print_line("not ok ", text);
    } else if (WEXITSTATUS(status) > STATUS_FAIL && WEXITSTATUS(status) != STATUS_SKIP) {
        snprintf(text, sizeof(text), "%s - ended with status %d", name, WEXITSTATUS(status));
        print_line("not ok ", text);
    } else {
        passed = WEXITSTATUS(status) != STATUS_FAIL;
    }
    if (pid > 0)
        kill(-pid, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return passed;
}

static const struct test_case *find_case(const struct test_case *cases, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    return NULL;
}

static int run_one_here(const struct test_case *one)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    case_name = one->name;
    case_pid = getpid();
    one->run();
    print_line("ok ", one->name);
    return 0;
}

static int list_cases(const struct test_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cases[i].name[0] != '-')
            print_line("", cases[i].name);
    return 0;
}

static int usage(const char *problem)
{
    fprintf(stderr, "%s; usage: %s [--list] [--seconds S] [--seed N] [--timeout S] [CASE...]\n", problem,
            program_invocation_short_name);
    return 2;
}

static int run_all(const struct test_case *cases, size_t count, double timeout)
{
    size_t total = 0;
    bool passed = true;
    for (size_t i = 0; i < count; i++)
        total += cases[i].name[0] != '-';
    char plan[40];
    snprintf(plan, sizeof(plan), "1..%zu", total);
    print_line("", plan);
    case_note("%s, allocator %s, seed %llu", program_invocation_short_name, allocator_path(),
              (unsigned long long)test_options.seed);
    for (size_t i = 0; i < count; i++)
        if (cases[i].name[0] != '-')
            passed &= run_one_apart(cases[i].name, timeout);
    return passed ? 0 : 1;
}

/* SOAK_SECONDS in the environment lengthens every stress case: for a long run of a built tree. */
static void default_options(void)
{
    const char *soak = getenv("SOAK_SECONDS");
    if (soak && atof(soak) > 0)
        test_options.seconds = atof(soak);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    test_options.seed = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int run_cases(int argc, char **argv, const struct test_case *cases, size_t count)
{
    double timeout = 0;
    own_path();
    default_options();
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] == '-'; at++) {
        if (strcmp(argv[at], "--list") == 0)
            return list_cases(cases, count);
        if (at + 1 >= argc)
            return usage("option without value");
        if (strcmp(argv[at], "--seconds") == 0)
            test_options.seconds = atof(argv[++at]);
        else if (strcmp(argv[at], "--seed") == 0)
            test_options.seed = strtoull(argv[++at], NULL, 0);
        else if (strcmp(argv[at], "--timeout") == 0)
            timeout = atof(argv[++at]);
        else if (strcmp(argv[at], "--one") == 0) {
            const struct test_case *one = find_case(cases, count, argv[at + 1]);
            return one ? run_one_here(one) : usage("no such case");
        } else
            return usage("unknown option");
    }
    if (timeout <= 0)
        timeout = 90 + 3 * test_options.seconds;
    if (!allocator_is_preloaded()) {
        print_line("Bail out! ", "malloc does not come from the object in LD_PRELOAD");
        return 2;
    }
    if (at == argc)
        return run_all(cases, count, timeout);
    bool passed = true;
    for (; at < argc; at++) {
        if (!find_case(cases, count, argv[at]))
            return usage("no such case");
        passed &= run_one_apart(argv[at], timeout);
    }
    return passed ? 0 : 1;
}
