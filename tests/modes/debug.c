/* SHEAF_DEBUG and related options, and debugging with threads, fork and signal handlers. */
#define _GNU_SOURCE
#include "option.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/time.h>

static void *keep[2000];

static char *hidden_from_the_compiler(void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

static void no_core(void)
{
    static const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

static void overflow(void)
{
    char *p = malloc(60);
    no_core();
    hidden_from_the_compiler(p)[60] = 1;
    free(p);
}

/* Each kind of fault once. With SHEAF_DEBUG_ACTION=continue the process must survive all of them. */
static void each_fault(void)
{
    char *p = malloc(60), *q = malloc(60);
    hidden_from_the_compiler(p)[60] = 1;
    free(p);
    free(hidden_from_the_compiler(q) + 1);
    free(q);
    free(hidden_from_the_compiler(q));
    hidden_from_the_compiler(q)[3] = 1;
    for (int i = 0; i < 2000; i++)
        must(keep[i] = malloc(60));
    for (int i = 0; i < 2000; i++)
        free(keep[i]);
    char *large = malloc(100000);
    hidden_from_the_compiler(large)[100000] = 1;
    free(large);
    free(hidden_from_the_compiler(large));
    free(hidden_from_the_compiler(keep));
}

static void sound(void)
{
    for (int i = 0; i < 2000; i++)
        must(keep[i] = realloc(calloc(1, (size_t)i), (size_t)i * 30 + 1));
    for (int i = 0; i < 2000; i++)
        free(keep[i]);
}

/* malloc_usable_size() returns the requested size for a debugged object, and the size of its class for others. */
static bool debugged(size_t n)
{
    void *p = malloc(n);
    bool exact = malloc_usable_size(p) == n;
    free(p);
    return exact;
}

static void only_one_cache(void)
{
    must(debugged(50) && !debugged(70) && !debugged(40) && !debugged(50000));
}

static void all_but_one_cache(void)
{
    must(!debugged(50) && debugged(70) && debugged(40) && debugged(50000));
}

static void none_at_all(void)
{
    must(!debugged(50) && !debugged(5000) && !debugged(50000));
}

static void all_caches(void)
{
    must(debugged(50) && debugged(5000) && debugged(50000));
}

static void leaves(void)
{
    keep[0] = malloc(3210);
    keep[1] = malloc(54321);
    for (int i = 2; i < 12; i++)
        keep[i] = malloc(700);
}

static void traced(void)
{
    free(hidden_from_the_compiler(malloc(1234)));
}

/* Alignment holds whichever caches are debugged, and in a process that has not allocated before. */
static void aligned(void)
{
    for (size_t align = 64; align <= 8192; align *= 2)
        for (size_t n = 1; n <= 5000; n += 13) {
            void *p = NULL;
            must(!posix_memalign(&p, align, n) && !((uintptr_t)p & (align - 1)));
            size_t usable = malloc_usable_size(p);
            must(usable >= n && (align > 2048 || usable <= 32768)); /* small requests must not get large blocks */
            memset(p, 1, usable);
            free(p);
        }
}

/* The limit leaves no room for debugging's records of objects, so this process runs without debugging. */
static void without_room(void)
{
    const struct rlimit small = {300u << 20, 300u << 20};
    if (getenv("DEBUG_LIMITED")) {
        must(malloc(100));
        return;
    }
    must(!setrlimit(RLIMIT_AS, &small) && !setenv("DEBUG_LIMITED", "1", 1));
    execl("/proc/self/exe", "modes", "--inside", "limited", (char *)NULL);
}

/*
 * The system grants memory for large blocks but none for their records: the table of records grows by as much as the
 * region, and is only readable where that is refused. The freed block stays, because the system would not grant its
 * memory again.
 */
static void large_without_records(void)
{
    enum { BLOCKS = 100 };
    const struct rlimit little = {90u << 20, RLIM_INFINITY}, none = {1, RLIM_INFINITY};
    char *blocks[BLOCKS], *p;
    must(!setrlimit(RLIMIT_DATA, &little));
    free(malloc(1));
    must(mallopt(M_TRIM_THRESHOLD, 64 << 20));
    must((p = malloc(36u << 20)));
    free(p);
    must(!setrlimit(RLIMIT_DATA, &none));
    for (int i = 0; i < BLOCKS; i++)
        must((blocks[i] = malloc(100000)));
    for (int i = 0; i < BLOCKS; i++) {
        char *more = i % 2 ? realloc(blocks[i], 200000) : NULL;
        free(more ? more : blocks[i]);
    }
}

/* ---- threads, fork, handlers ---- */

static void *churn(void *seed)
{
    void *own[64] = {0};
    unsigned n = (unsigned)(size_t)seed;
    for (int i = 0; i < 20000; i++) {
        n = n * 1103515245 + 12345;
        void **at = &own[n >> 16 & 63];
        free(*at);
        *at = malloc(n >> 8 & 1023);
        if (*at)
            memset(*at, (int)n, malloc_usable_size(*at));
    }
    for (int i = 0; i < 64; i++)
        free(own[i]);
    return NULL;
}

static void threads(void)
{
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++)
        must(!pthread_create(&t[i], NULL, churn, (void *)i));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}

/* The memory that a realloc() leaves may become another thread's block immediately. */
static void *move_large(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        char *p = malloc(70000), *q = malloc(70000);
        must(p && q);
        *p = 7;
        must((p = realloc(p, 200000)) && *p == 7);
        free(p);
        free(q);
    }
    return unused;
}

static void large_moves(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        must(!pthread_create(&t[i], NULL, move_large, NULL));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}

/*
 * A fault is reported while a slab is returned to the region. Meanwhile another thread, which holds the dynamic
 * linker's lock, waits for that in the constructor of a module. The report must not wait for the dynamic linker.
 */
_Atomic int module_stage;

static void *load_module(void *unused)
{
    must(dlopen(getenv("MODES_MODULE"), RTLD_NOW));
    return unused;
}

static void report_below_loader(void)
{
    pthread_t t;
    char *p = malloc(3900);
    free(p);
    hidden_from_the_compiler(p)[3] = 1;
    must(!pthread_create(&t, NULL, load_module, NULL));
    while (!module_stage)
        sched_yield();
    malloc_trim(0);
    pthread_join(t, NULL);
}

static void forks(void)
{
    pthread_t t[2];
    for (size_t i = 0; i < 2; i++)
        must(!pthread_create(&t[i], NULL, churn, (void *)i));
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            churn((void *)7);
            _exit(0);
        }
        must_succeed(pid);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

/* Each handler sets the next alarm. With a periodic timer, slow handlers would leave no time for the program. */
static void alarm_in(suseconds_t microseconds)
{
    const struct itimerval once = {.it_value = {0, microseconds}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void on_alarm(int signal)
{
    (void)signal;
    char *p = malloc(60);
    if (p)
        memset(p, 1, 60);
    free(p);
    alarm_in(200);
}

static void handlers(void)
{
    signal(SIGALRM, on_alarm);
    alarm_in(200);
    for (size_t i = 0; i < 5; i++)
        churn((void *)i);
    signal(SIGALRM, SIG_IGN);
}

/* The fault is reported in a signal handler that interrupted malloc or another report. */
static void harm_in_handler(int signal)
{
    char *p = malloc(60);
    if (p)
        hidden_from_the_compiler(p)[60] = 1;
    free(p);
    if (signal)
        alarm_in(1000);
}

static void reports_from_handlers(void)
{
    signal(SIGALRM, harm_in_handler);
    alarm_in(1000);
    churn((void *)1);
    signal(SIGALRM, SIG_IGN);
    for (int i = 0; i < 200; i++)
        harm_in_handler(0);
}

/* A freed object is not reused while it is in quarantine, and a write to it is found when it leaves. */
static void write_while_waiting(void)
{
    char *p = malloc(60);
    free(p);
    for (int i = 0; i < 100; i++) {
        char *other = malloc(60);
        must(other != p);
        free(other);
    }
    hidden_from_the_compiler(p)[3] = 1;
    for (int i = 0; i < 30000; i++)
        free(hidden_from_the_compiler(malloc(60)));
}

/* ---- where reports go ---- */

static const char log_name[] = "sheaf-debug-test.log";

static void read_log(char *into, size_t most)
{
    int file = open(log_name, O_RDONLY);
    must(file >= 0);
    ssize_t n = read(file, into, most - 1);
    must(n >= 0);
    into[n] = 0;
    close(file);
    unlink(log_name);
}

/* The program closes all files, the log included, and opens others under the same numbers. */
static void logged(void)
{
    static char text[8192];
    static const char innocent[] = "/proc/self/exe";
    char *p = malloc(60), *q = malloc(60);
    must(truncate(log_name, 0) == 0); /* removes the reports of an earlier run */
    hidden_from_the_compiler(p)[60] = 1;
    free(p);
    for (int i = 3; i < 1000; i++)
        close(i);
    for (int i = 3; i < 400; i++)
        must(open(innocent, O_RDONLY) == i);
    hidden_from_the_compiler(q)[60] = 1;
    free(q);
    read_log(text, sizeof(text));
    const char *first = strstr(text, "overflow");
    must(first && strstr(first + 8, "overflow"));
}

static const struct option_case cases[] = {
    {"report-ends-the-process",
     "SHEAF_DEBUG=FZPU",
     overflow,
     SIGABRT,
     {"sheaf: overflow", "allocated by thread", "the process aborts"}},
    {"lower-case", "SHEAF_DEBUG=z", overflow, SIGABRT, {"sheaf: overflow", "found by thread", "the process aborts"}},
    {"no-fault-no-report", "SHEAF_DEBUG=FZPU", sound, 0, {NULL}},
    {"only-the-named-cache-is-debugged", "SHEAF_DEBUG=Z,malloc-64", only_one_cache, 0, {NULL}},
    {"only-caches-that-match-a-pattern-are-debugged", "SHEAF_DEBUG=Z,malloc-?4", only_one_cache, 0, {NULL}},
    {"all-but-one-cache-are-debugged", "SHEAF_DEBUG=Z;-,malloc-64", all_but_one_cache, 0, {NULL}},
    {"several-parts", "SHEAF_DEBUG=-,malloc-64;F,malloc-4?,malloc-80;Z,malloc-*", all_but_one_cache, 0, {NULL}},
    {"nothing-is-debugged", "SHEAF_DEBUG=-", none_at_all, 0, {NULL}},
    {"A-alone-debugs-nothing", "SHEAF_DEBUG=A", none_at_all, 0, {NULL}},
    {"default-letters-debug-all-caches", "SHEAF_DEBUG=,malloc-*", all_caches, 0, {NULL}},
    {"alignments", "SHEAF_DEBUG=FZPU", aligned, 0, {NULL}},
    {"alignments-with-one-debugged-cache", "SHEAF_DEBUG=Z,malloc-64", aligned, 0, {NULL}},
    {"alignments-with-some-debugged-caches", "SHEAF_DEBUG=FP,malloc-64,malloc-1*,malloc-2304", aligned, 0, {NULL}},
    {"trace-prints-allocations-and-frees",
     "SHEAF_DEBUG=T,malloc-1280",
     traced,
     0,
     {"sheaf: trace malloc-1280 alloc 0x", "of 1234 bytes, allocation 1", "sheaf: trace malloc-1280 free 0x"}},
    {"threads", "SHEAF_DEBUG=FZPU", threads, 0, {NULL}},
    {"threads-move-large-blocks", "SHEAF_DEBUG=U,malloc-large", large_moves, 0, {NULL}},
    {"fork", "SHEAF_DEBUG=FZPU", forks, 0, {NULL}},
    {"signal-handlers-allocate", "SHEAF_DEBUG=FZPU", handlers, 0, {NULL}},
    {"bad-letter",
     "SHEAF_DEBUG=FZX",
     none_at_all,
     0,
     {"sheaf: SHEAF_DEBUG=FZX: no such letter; give letters of F Z P U T A", "default"}},
    {"bad-dash", "SHEAF_DEBUG=F-", none_at_all, 0, {"give '-' alone"}},
    {"bad-name", "SHEAF_DEBUG=F,", none_at_all, 0, {"an empty cache name"}},
    {"bad-part", "SHEAF_DEBUG=F;Q", none_at_all, 0, {"give letters"}},
    {"limited", "SHEAF_DEBUG=FZPU", without_room, 0, {NULL}},
    {"large-blocks-without-records", "SHEAF_DEBUG=FZPU", large_without_records, 0, {NULL}},
};

/* These run with SHEAF_DEBUG_ACTION=continue and other settings in the environment: see meson.build. */
static const struct option_case continuing[] = {
    {"continues-after-each-fault", "SHEAF_DEBUG=FZPU", each_fault, 0, {"overflow", "double free", "ignored"}},
    {"reports-from-handlers",
     "SHEAF_DEBUG=FZP,malloc-64",
     reports_from_handlers,
     0,
     {"overflow", "overflow", "overflow"}},
    {"write-in-quarantine",
     "SHEAF_HARDEN=quarantine=1M",
     write_while_waiting,
     0,
     {"sheaf: write after free", "allocated by thread", "freed by thread"}},
    {"report-while-a-module-is-loaded",
     "SHEAF_DEBUG=FZPU,malloc-4096",
     report_below_loader,
     0,
     {"sheaf: write after free", "freed by thread", "its slab is returned"}},
    {"log-file", "SHEAF_DEBUG_LOG=sheaf-debug-test.log", logged, 0, {NULL}},
    {"log-file-cannot-be-opened",
     "SHEAF_DEBUG_LOG=/no/such/directory/log",
     overflow,
     0,
     {"sheaf: SHEAF_DEBUG_LOG=/no/such/directory/log: cannot be opened", "sheaf: overflow"}},
    {"live-objects-are-listed-at-exit",
     "SHEAF_LEAKS=live",
     leaves,
     0,
     {"sheaf: live at exit: ", "54321 bytes in 1 object allocated by:", "7000 bytes in 10 objects"}},
    {"validated-at-exit", "SHEAF_VALIDATE=1", sound, 0, {NULL}},
};

static int run_table(int argc, char **argv)
{
    if (getenv("DEBUG_CONTINUING"))
        return run_option_cases(argc, argv, continuing, sizeof(continuing) / sizeof(*continuing));
    return run_option_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}

int main(int argc, char **argv)
{
    return run_table(argc, argv);
}
