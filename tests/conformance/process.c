/* Processes start and end: fork in every form, in signal handlers and with threads; exit among threads. */
#define _GNU_SOURCE
#include "../cases.h"
#include "../proc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

extern char **environ;

static _Atomic bool stop;
static _Atomic int done;
static _Atomic int *handled; /* incremented by the handler, read by the process that sends the signals */

/* Allocates, checks and frees blocks of many sizes. Returns whether their contents were intact. */
static bool works(unsigned seed)
{
    unsigned char *p[50];
    bool right = true;
    for (unsigned i = 0; i < 50; i++) {
        size_t n = (seed * 31 + i * 977) % 40000 + 1;
        must(p[i] = malloc(n));
        p[i][0] = p[i][n - 1] = (unsigned char)i;
    }
    for (unsigned i = 0; i < 50; i++) {
        right &= p[i][0] == i;
        free(p[i]);
    }
    return right;
}

static pid_t (*fork_form)(void);

static void fork_and_reap(bool child_works)
{
    int kept = errno;
    pid_t pid = fork_form();
    must(pid >= 0);
    if (pid == 0)
        _exit(!child_works || works(7) ? 0 : 1);
    must_succeed(pid);
    errno = kept;
}

/* A child that is forked in a handler can allocate, even if the signal interrupted malloc. */
static void fork_in_handler(int signal)
{
    (void)signal;
    fork_and_reap(true);
    (*handled)++;
}

static void handler_forks(pid_t (*form)(void))
{
    struct sigaction action = {.sa_handler = fork_in_handler};
    fork_form = form;
    handled = mmap(NULL, sizeof *handled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(handled != MAP_FAILED);
    sigaction(SIGUSR1, &action, NULL);
    pid_t parent = getpid(), sender = fork();
    if (sender == 0) /* waits for each signal's handler: if forks are slow, the parent would only run handlers */
        for (int sent = 0;; sent++) {
            usleep(200 + (unsigned)sent * 277 % 2000);
            if (kill(parent, SIGUSR1))
                _exit(0);
            while (*handled == sent && getppid() == parent)
                usleep(100);
        }
    for (unsigned i = 0; *handled < 60; i++)
        must(works(i));
    kill(sender, SIGKILL);
    signal(SIGUSR1, SIG_IGN);
    waitpid(sender, NULL, 0);
}

CASE(fork_from_handler)
{
    handler_forks(fork);
}

CASE(bare_fork_from_handler)
{
    pid_t (*bare)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    if (!bare)
        _exit(CASE_SKIPPED);
    handler_forks(bare);
}

static void *worker(void *seed)
{
    for (unsigned i = (unsigned)(size_t)seed; !stop; i++)
        must(works(i));
    return NULL;
}

/*
 * Streams allocate, and fflush(NULL) locks them all. fork() must lock stdio and the allocator in the right order.
 */
static void *writer(void *unused)
{
    while (!stop) {
        FILE *f = fopen("/dev/null", "w");
        must(f && fprintf(f, "%0500d", 7) == 500);
        fclose(f);
        fflush(NULL);
    }
    return unused;
}

enum { THREADS = 4 };
static pthread_t threads[THREADS];

static void start(void *(*routine)(void *))
{
    for (size_t i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], NULL, routine, (void *)(i * 1000)));
}

static void finish(void)
{
    stop = true;
    for (size_t i = 0; i < THREADS; i++)
        must(!pthread_join(threads[i], NULL));
}

static void fork_among_threads(pid_t (*form)(void))
{
    for (unsigned i = 0; i < 60; i++) {
        pid_t pid = form();
        must(pid >= 0);
        if (pid == 0)
            _exit(works(i) ? 0 : 1);
        must_succeed(pid);
    }
}

CASE(fork_with_threads)
{
    start(worker);
    fork_among_threads(fork);
    finish();
}

CASE(bare_fork_with_threads)
{
    pid_t (*bare)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    if (!bare)
        _exit(CASE_SKIPPED);
    start(worker);
    fork_among_threads(bare);
    finish();
}

CASE(fork_against_stdio)
{
    start(writer);
    for (unsigned i = 0; i < 60; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            FILE *f = fopen("/dev/null", "w");
            fprintf(f, "child");
            fclose(f);
            _exit(works(i) ? 0 : 1);
        }
        must_succeed(pid);
    }
    finish();
}

/* Each generation frees the blocks that it inherited and forks the next one. */
CASE(fork_60_generations)
{
    void *inherited[100];
    for (int depth = 0; depth < 60; depth++) {
        for (size_t i = 0; i < 100; i++)
            must(inherited[i] = memset(malloc(i * 60 + 1), depth, i * 60 + 1));
        pid_t pid = fork();
        must(pid >= 0);
        for (size_t i = 0; i < 100; i++) {
            must(*(char *)inherited[i] == depth);
            free(inherited[i]);
        }
        if (pid) {
            must(works((unsigned)depth));
            must_succeed(pid);
            _exit(0); /* must_succeed() passes a failure on to the parent */
        }
    }
    must(works(1));
}

/* Forks in a thread other than the main thread; in the child only this thread exists. */
static void *fork_here(void *unused)
{
    pid_t pid = fork();
    if (pid == 0) {
        stop = false; /* starts more threads in the child */
        start(worker);
        usleep(5000);
        finish();
        exit(0);
    }
    must_succeed(pid);
    return unused;
}

/* The child of _Fork only exits: without fork's handlers the state of other threads may be inconsistent in it. */
static void only_fork(int signal)
{
    (void)signal;
    fork_and_reap(false);
    done++;
}

#ifdef __GLIBC__ /* in musl a handler that forks must not interrupt fork() */

static void *forker(void *seed)
{
    for (unsigned i = (unsigned)(size_t)seed; !stop; i++) {
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0)
            _exit(works(i) ? 0 : 1);
        must_succeed(pid);
    }
    return NULL;
}

static void *forks_or_works(void *seed)
{
    return (size_t)seed / 1000 % 2 ? worker(seed) : forker(seed);
}

/* A handler that forks interrupts threads which hold locks, while other threads wait for these locks in fork(). */
CASE(forks_in_forks)
{
    struct sigaction action = {.sa_handler = only_fork};
    fork_form = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    if (!fork_form || !dlvsym(RTLD_DEFAULT, "_Fork",
                              "GLIBC_2.34")) /* Sheaf's own is not enough: libc's fork() is not for handlers */
        _exit(CASE_SKIPPED);
    sigaction(SIGUSR1, &action, NULL);
    start(forks_or_works);
    for (unsigned i = 0; done < 400; i++) {
        must(!pthread_kill(threads[i % THREADS], SIGUSR1));
        usleep(200 + i * 77 % 400);
    }
    finish();
    malloc_trim(0); /* would hang if a lock had stayed held */
    fork_form = fork;
    only_fork(0);
    must(works(1));
}

#else

NEEDS_GLIBC(forks_in_forks)

#endif

static void check_mask(void)
{
    sigset_t mask;
    must(!pthread_sigmask(SIG_SETMASK, NULL, &mask));
    must(sigismember(&mask, SIGUSR2) == 1 && sigismember(&mask, SIGUSR1) == 0 && sigismember(&mask, SIGTERM) == 0);
}

/* In the parent and in the child, the same signals are blocked as before. */
CASE(fork_keeps_signal_mask)
{
    pid_t (*forms[])(void) = {fork, (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork")};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    must(!pthread_sigmask(SIG_SETMASK, &one, NULL) && works(1));
    for (size_t i = 0; i < 2 && forms[i]; i++) {
        pid_t pid = forms[i]();
        must(pid >= 0);
        check_mask();
        if (pid == 0)
            _exit(0);
        must_succeed(pid);
    }
}

CASE(fork_in_a_thread)
{
    pthread_t t;
    start(worker);
    for (int i = 0; i < 20; i++)
        must(!pthread_create(&t, NULL, fork_here, NULL) && !pthread_join(t, NULL));
    finish();
}

CASE(spawn_vfork_system_popen)
{
    char *const argv[] = {"true", NULL};
    start(worker);
    for (int i = 0; i < 30; i++) {
        pid_t pid;
        must(!posix_spawnp(&pid, "true", NULL, NULL, argv, environ));
        must_succeed(pid);
        pid = vfork();
        if (pid == 0) {
            execvp("true", argv);
            _exit(127);
        }
        must(pid > 0);
        must_succeed(pid);
    }
    must(system("exit 3") == 3 << 8);
    FILE *f = popen("echo from a child", "r");
    char line[50];
    must(f && fgets(line, sizeof(line), f) && !strcmp(line, "from a child\n") && pclose(f) == 0);
    finish();
}

/* exit() runs handlers and flushes streams while the other threads keep allocating. */
static void at_end(void)
{
    must(works(3));
}

CASE(exit_among_threads)
{
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            atexit(at_end);
            start(i % 2 ? worker : writer);
            usleep((unsigned)i * 100);
            exit(0);
        }
        must_succeed(pid);
    }
}

static void *ends_now(void *unused)
{
    must(works((unsigned)(size_t)&unused));
    return unused;
}

CASE(threads_end_together)
{
    for (int round = 0; round < 200; round++) {
        start(ends_now);
        for (size_t i = 0; i < THREADS; i++)
            must(!pthread_join(threads[i], NULL));
    }
}

static pthread_barrier_t all_there; /* all threads have started, so no pthread_create() can lack memory */

/* Memory runs out in several threads at once: each gets NULL and ENOMEM, and can free and allocate afterwards. */
static void *until_refused(void *unused)
{
    void *chain = NULL, *p;
    size_t sum = 0;
    pthread_barrier_wait(&all_there);
    errno = 0;
    while ((p = malloc(100000))) {
        *(void **)p = chain;
        chain = p;
        must((sum += 100000) < 1u << 30);
    }
    must(errno == ENOMEM);
    while (chain) {
        void *next = *(void **)chain;
        free(chain);
        chain = next;
    }
    return unused;
}

CASE(refused_in_threads)
{
    if (!getenv("SHEAF_REGION")) { /* RLIMIT_AS does not affect address space that is already reserved */
        setenv("SHEAF_REGION", "64M", 1);
        must(freopen("/dev/null", "w", stdout));
        execl("/proc/self/exe", "process", "refused_in_threads", NULL);
    }
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = address_space_bytes() + (100u << 20);
    must(!setrlimit(RLIMIT_AS, &limit));
    must(!pthread_barrier_init(&all_there, NULL, THREADS));
    for (int round = 0; round < 5; round++) {
        start(until_refused);
        for (size_t i = 0; i < THREADS; i++)
            must(!pthread_join(threads[i], NULL));
    }
    must(works(9));
}
