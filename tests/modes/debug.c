/* SHEAF_DEBUG's options, and debugging where it is hard: threads, fork, signal handlers. */
#define _GNU_SOURCE
#include "told.h"

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

/* Each kind of damage once; the process must be able to go on, and say nothing more. */
static void goes_on(void)
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

/* Red zones would be seen by malloc_usable_size. */
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

/* Whatever is debugged, and though nothing was before. */
static void aligned(void)
{
    for (size_t align = 64; align <= 8192; align *= 2)
        for (size_t n = 1; n <= 5000; n += 13) {
            void *p = NULL;
            must(!posix_memalign(&p, align, n) && !((uintptr_t)p & (align - 1)));
            size_t usable = malloc_usable_size(p);
            must(usable >= n && (align > 2048 || usable <= 32768)); /* no large block for a small request */
            memset(p, 1, usable);
            free(p);
        }
}

/* Memory for the records is not granted. */
static void without_room(void)
{
    const struct rlimit small = {300u << 20, 300u << 20};
    if (getenv("DEBUG_LIMITED")) {
        must(malloc(100));
        return;
    }
    must(!setrlimit(RLIMIT_AS, &small) && !setenv("DEBUG_LIMITED", "1", 1));
    execl("/proc/self/exe", "told", "--inside", "limited", (char *)NULL);
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

/* What one thread's realloc leaves is at once another's block. */
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
 * A report from where slabs go back, while another thread loads a module that waits for that: it must not wait for
 * the dynamic linker.
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
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            churn((void *)7);
            _exit(0);
        }
        must(waitpid(pid, &status, 0) == pid && !status);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

/* One alarm after the other: where a handler takes long, what it interrupts comes on all the same. */
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

/* A report from a handler that interrupted malloc or a report. */
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

/* In quarantine a freed object has no other owner for long, and a write to it is seen when it leaves. */
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

/* The program closes all files, and others get their numbers. */
static void logged(void)
{
    static char text[8192];
    static const char innocent[] = "/proc/self/exe";
    char *p = malloc(60), *q = malloc(60);
    must(truncate(log_name, 0) == 0); /* what a run before left */
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

static const struct told_case cases[] = {
    {"ends",
     "SHEAF_DEBUG=FZPU",
     overflow,
     SIGABRT,
     {"sheaf: overflow", "allocated by thread", "the process ends here"}},
    {"lower-case", "SHEAF_DEBUG=z", overflow, SIGABRT, {"sheaf: overflow", "found by thread", "ends here"}},
    {"sound", "SHEAF_DEBUG=FZPU", sound, 0, {NULL}},
    {"one-cache", "SHEAF_DEBUG=Z,malloc-64", only_one_cache, 0, {NULL}},
    {"one-cache-by-glob", "SHEAF_DEBUG=Z,malloc-?4", only_one_cache, 0, {NULL}},
    {"all-but-one", "SHEAF_DEBUG=Z;-,malloc-64", all_but_one_cache, 0, {NULL}},
    {"several-parts", "SHEAF_DEBUG=-,malloc-64;F,malloc-4?,malloc-80;Z,malloc-*", all_but_one_cache, 0, {NULL}},
    {"none", "SHEAF_DEBUG=-", none_at_all, 0, {NULL}},
    {"none-for-faults-alone", "SHEAF_DEBUG=A", none_at_all, 0, {NULL}},
    {"default-letters", "SHEAF_DEBUG=,malloc-*", all_caches, 0, {NULL}},
    {"aligned", "SHEAF_DEBUG=FZPU", aligned, 0, {NULL}},
    {"aligned-one-cache", "SHEAF_DEBUG=Z,malloc-64", aligned, 0, {NULL}},
    {"aligned-some-caches", "SHEAF_DEBUG=FP,malloc-64,malloc-1*,malloc-2304", aligned, 0, {NULL}},
    {"trace",
     "SHEAF_DEBUG=T,malloc-1280",
     traced,
     0,
     {"sheaf: trace malloc-1280 alloc 0x", "of 1234 bytes, allocation 1", "sheaf: trace malloc-1280 free 0x"}},
    {"threads", "SHEAF_DEBUG=FZPU", threads, 0, {NULL}},
    {"large-moves", "SHEAF_DEBUG=U,malloc-large", large_moves, 0, {NULL}},
    {"fork", "SHEAF_DEBUG=FZPU", forks, 0, {NULL}},
    {"handlers", "SHEAF_DEBUG=FZPU", handlers, 0, {NULL}},
    {"bad-letter",
     "SHEAF_DEBUG=FZX",
     none_at_all,
     0,
     {"sheaf: SHEAF_DEBUG=FZX: no such letter; give letters of F Z P U T A", "default"}},
    {"bad-dash", "SHEAF_DEBUG=F-", none_at_all, 0, {"give '-' alone"}},
    {"bad-name", "SHEAF_DEBUG=F,", none_at_all, 0, {"an empty cache name"}},
    {"bad-part", "SHEAF_DEBUG=F;Q", none_at_all, 0, {"give letters"}},
    {"limited", "SHEAF_DEBUG=FZPU", without_room, 0, {NULL}},
};

/* These run with more in the environment: see meson.build. */
static const struct told_case going_on[] = {
    {"goes-on", "SHEAF_DEBUG=FZPU", goes_on, 0, {"overflow", "double free", "ignored"}},
    {"reports-from-handlers",
     "SHEAF_DEBUG=FZP,malloc-64",
     reports_from_handlers,
     0,
     {"overflow", "overflow", "overflow"}},
    {"quarantined",
     "SHEAF_HARDEN=quarantine=1M",
     write_while_waiting,
     0,
     {"sheaf: write after free", "allocated by thread", "freed by thread"}},
    {"below-the-loader",
     "SHEAF_DEBUG=FZPU,malloc-4096",
     report_below_loader,
     0,
     {"sheaf: write after free", "freed by thread", "its slab goes back"}},
    {"logged", "SHEAF_DEBUG_LOG=sheaf-debug-test.log", logged, 0, {NULL}},
    {"log-refused",
     "SHEAF_DEBUG_LOG=/no/such/directory/log",
     overflow,
     0,
     {"sheaf: SHEAF_DEBUG_LOG=/no/such/directory/log: cannot be opened", "sheaf: overflow"}},
    {"leaks",
     "SHEAF_LEAKS=1",
     leaves,
     0,
     {"sheaf: live at exit: ", "54321 bytes in 1 object allocated by:", "7000 bytes in 10 objects"}},
    {"validated-at-exit", "SHEAF_VALIDATE=1", sound, 0, {NULL}},
};

static int run_table(int argc, char **argv)
{
    if (getenv("DEBUG_GOING_ON"))
        return told_cases(argc, argv, going_on, sizeof(going_on) / sizeof(*going_on));
    return told_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}

int main(int argc, char **argv)
{
    return run_table(argc, argv);
}
