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

#define CONTINUING "SHEAF_DEBUG=FZPU\nSHEAF_DEBUG_ACTION=continue\n"

static void *keep[2000];

static char *hidden_from_the_compiler(void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

OPTION_CASE(report_ends_the_process, "SHEAF_DEBUG=FZPU", SIGABRT, "sheaf: overflow", "allocated by thread",
            "the process aborts")
{
    char *p = malloc(60);
    hidden_from_the_compiler(p)[60] = 1;
    free(p);
}

/* Each kind of fault once. With SHEAF_DEBUG_ACTION=continue the process must survive all of them. */
OPTION_CASE(continues_after_each_fault, CONTINUING "SHEAF_DEBUG=FZPU", 0, "overflow", "double free", "ignored")
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

OPTION_CASE(no_fault_no_report, "SHEAF_DEBUG=FZPU", 0, NULL)
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

OPTION_CASE(only_the_named_cache_is_debugged, "SHEAF_DEBUG=Z,malloc-64", 0, NULL)
{
    must(debugged(50) && !debugged(70) && !debugged(40) && !debugged(50000));
}

OPTION_CASE(all_but_one_cache_are_debugged, "SHEAF_DEBUG=Z;-,malloc-64", 0, NULL)
{
    must(!debugged(50) && debugged(70) && debugged(40) && debugged(50000));
}

OPTION_CASE(nothing_is_debugged, "SHEAF_DEBUG=-", 0, NULL)
{
    must(!debugged(50) && !debugged(5000) && !debugged(50000));
}

OPTION_CASE(default_letters_debug_all_caches, "SHEAF_DEBUG=,malloc-*", 0, NULL)
{
    must(debugged(50) && debugged(5000) && debugged(50000));
}

OPTION_CASE(live_objects_are_listed_at_exit, CONTINUING "SHEAF_LEAKS=live", 0,
            "sheaf: live at exit: ", "54321 bytes in 1 object allocated by:", "7000 bytes in 10 objects")
{
    keep[0] = malloc(3210);
    keep[1] = malloc(54321);
    for (int i = 2; i < 12; i++)
        keep[i] = malloc(700);
}

OPTION_CASE(trace_prints_allocations_and_frees, "SHEAF_DEBUG=T,malloc-1280", 0, "sheaf: trace malloc-1280 alloc 0x",
            "of 1234 bytes, allocation 1", "sheaf: trace malloc-1280 free 0x")
{
    free(hidden_from_the_compiler(malloc(1234)));
}

/* Alignment holds whichever caches are debugged, and in a process that has not allocated before. */
OPTION_CASE(alignments, "SHEAF_DEBUG=FZPU", 0, NULL)
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
OPTION_CASE(limited, "SHEAF_DEBUG=FZPU", 0, NULL)
{
    const struct rlimit small = {300u << 20, 300u << 20};
    if (getenv("DEBUG_LIMITED")) {
        must(malloc(100));
        return;
    }
    must(!setrlimit(RLIMIT_AS, &small) && !setenv("DEBUG_LIMITED", "1", 1));
    execute_part("limited");
}

/*
 * The system grants memory for large blocks but none for their records: the table of records grows by as much as the
 * region, and is only readable where that is refused. The freed block stays, because the system would not grant its
 * memory again.
 */
OPTION_CASE(large_blocks_without_records, "SHEAF_DEBUG=FZPU", 0, NULL)
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

OPTION_CASE(threads, "SHEAF_DEBUG=FZPU", 0, NULL)
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

OPTION_CASE(threads_move_large_blocks, "SHEAF_DEBUG=U,malloc-large", 0, NULL)
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

OPTION_CASE(report_while_a_module_is_loaded, CONTINUING "SHEAF_DEBUG=FZPU,malloc-4096", 0, "sheaf: write after free",
            "freed by thread", "its slab is returned")
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

OPTION_CASE(forks, "SHEAF_DEBUG=FZPU", 0, NULL)
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

OPTION_CASE(signal_handlers_allocate, "SHEAF_DEBUG=FZPU", 0, NULL)
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

OPTION_CASE(reports_from_handlers, CONTINUING "SHEAF_DEBUG=FZP,malloc-64", 0, "overflow", "overflow", "overflow")
{
    signal(SIGALRM, harm_in_handler);
    alarm_in(1000);
    churn((void *)1);
    signal(SIGALRM, SIG_IGN);
    for (int i = 0; i < 200; i++)
        harm_in_handler(0);
}

/* A freed object is not reused while it is in quarantine, and a write to it is found when it leaves. */
OPTION_CASE(write_in_quarantine, CONTINUING "SHEAF_HARDEN=quarantine=1M", 0, "sheaf: write after free",
            "allocated by thread", "freed by thread")
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
OPTION_CASE(log_file, CONTINUING "SHEAF_DEBUG_LOG=sheaf-debug-test.log", 0, NULL)
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

OPTION_CASE_OF(report_ends_the_process, lower_case, "SHEAF_DEBUG=z", SIGABRT, "sheaf: overflow", "found by thread",
               "the process aborts")
OPTION_CASE_OF(only_the_named_cache_is_debugged, only_caches_that_match_a_pattern_are_debugged,
               "SHEAF_DEBUG=Z,malloc-?4", 0, NULL)
OPTION_CASE_OF(all_but_one_cache_are_debugged, several_parts,
               "SHEAF_DEBUG=-,malloc-64;F,malloc-4?,malloc-80;Z,malloc-*", 0, NULL)
OPTION_CASE_OF(nothing_is_debugged, A_alone_debugs_nothing, "SHEAF_DEBUG=A", 0, NULL)
OPTION_CASE_OF(alignments, alignments_with_one_debugged_cache, "SHEAF_DEBUG=Z,malloc-64", 0, NULL)
OPTION_CASE_OF(alignments, alignments_with_some_debugged_caches, "SHEAF_DEBUG=FP,malloc-64,malloc-1*,malloc-2304", 0,
               NULL)
OPTION_CASE_OF(nothing_is_debugged, bad_letter, "SHEAF_DEBUG=FZX", 0,
               "sheaf: SHEAF_DEBUG=FZX: no such letter; give letters of F Z P U T A", "default")
OPTION_CASE_OF(nothing_is_debugged, bad_dash, "SHEAF_DEBUG=F-", 0, "give '-' alone")
OPTION_CASE_OF(nothing_is_debugged, bad_name, "SHEAF_DEBUG=F,", 0, "an empty cache name")
OPTION_CASE_OF(nothing_is_debugged, bad_part, "SHEAF_DEBUG=F;Q", 0, "give letters")
OPTION_CASE_OF(report_ends_the_process, log_file_cannot_be_opened,
               CONTINUING "SHEAF_DEBUG_LOG=/no/such/directory/log", 0,
               "sheaf: SHEAF_DEBUG_LOG=/no/such/directory/log: cannot be opened", "sheaf: overflow")
OPTION_CASE_OF(no_fault_no_report, validated_at_exit, CONTINUING "SHEAF_VALIDATE=1", 0, NULL)
