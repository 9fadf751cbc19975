/* Memory at rest: how much remains after a burst, and what the program can notice of the helper thread. */
#define _GNU_SOURCE
#include "../cases.h"
#include "../helped.h"
#include "../proc.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

enum { THREADS = 4, OBJECTS = 40000, SIZE = 1000, MIB = 1 << 20 };

BEFORE_CASES(argv)
{
    if (helper_by_default())
        return;
    printf("1..0 # SKIP before glibc 2.32 the helper thread runs only with SHEAF_HELPER=1\n");
    exit(0);
}

/* Returns how many threads the process has, and in *other the id of one that is not the caller. Does not call malloc,
 * which may start the helper thread. */
static int threads_now(int *other)
{
    _Alignas(struct dirent64) char entries[4096]; /* a few entries of 24 bytes */
    int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY), n = 0;
    must(dir >= 0);
    long bytes = syscall(SYS_getdents64, dir, entries, sizeof(entries));
    must(bytes > 0);
    for (long at = 0; at < bytes; at += ((struct dirent64 *)(entries + at))->d_reclen) {
        int id = atoi(((struct dirent64 *)(entries + at))->d_name);
        n += id > 0;
        if (id > 0 && id != (int)syscall(SYS_gettid))
            *other = id;
    }
    close(dir);
    return n;
}

/* Returns the id of the process's second thread, or 0 if the calling thread is the only one. A thread that was joined
 * may still be ending. */
static int other_thread(void)
{
    int other = 0;
    while (threads_now(&other) > 2)
        other = 0;
    return other;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static pthread_barrier_t full, empty;
static pthread_mutex_t stays = PTHREAD_MUTEX_INITIALIZER;

static void allocate_and_free(void)
{
    void **objects = calloc(OBJECTS, sizeof(void *));
    for (int i = 0; i < OBJECTS; i++)
        must((objects[i] = memset(malloc(SIZE), 1, SIZE)));
    for (int i = 0; i < OBJECTS; i++)
        free(objects[i]);
    free(objects);
}

static void *burst(void *stay)
{
    void *objects[OBJECTS / 10];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < OBJECTS / 10; i++)
            must((objects[i] = memset(malloc(SIZE), 1, SIZE)));
        if (!round)
            pthread_barrier_wait(&full);
        for (int i = 0; i < OBJECTS / 10; i++)
            free(objects[i]);
    }
    allocate_and_free();
    if (stay) {
        pthread_barrier_wait(&empty);
        pthread_mutex_lock(&stays); /* sleeps until the case ends */
    }
    return NULL;
}

/* Afterwards Sheaf treats the process as multithreaded. With `stay` the threads sleep instead of ending. */
static void bursts(void *stay)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&full, NULL, THREADS);
    pthread_barrier_init(&empty, NULL, THREADS + 1);
    if (stay)
        pthread_mutex_lock(&stays);
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, burst, stay) == 0);
    if (stay)
        pthread_barrier_wait(&empty);
    for (int i = 0; i < THREADS && !stay; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

/* The test is that all memory is returned, however long that takes; the time limit of the case ends the wait. */
static void wait_for_rest(void)
{
    while (resident_bytes() > 16 * MIB)
        nap();
}

CASE(no_helper_thread_starts_in_a_program_with_one_thread)
{
    allocate_and_free();
    must(resident_bytes() <= 16 * MIB); /* the last free returned it */
    for (int i = 0; i < 3; i++) {
        allocate_and_free();
        must(!other_thread());
    }
}

CASE(memory_of_ended_threads_is_returned_and_the_helper_thread_ends)
{
    bursts(NULL);
    wait_for_rest();
    while (other_thread())
        nap();
}

CASE(memory_of_sleeping_threads_is_returned)
{
    bursts("stay");
    wait_for_rest();
}

CASE(the_helper_thread_starts_again_for_each_burst)
{
    for (int i = 0; i < 3; i++)
        memory_of_ended_threads_is_returned_and_the_helper_thread_ends();
}

CASE(fork_while_the_helper_thread_runs)
{
    bursts(NULL); /* starts the helper thread, most likely */
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        must(!other_thread());
        memory_of_ended_threads_is_returned_and_the_helper_thread_ends();
        _exit(0);
    }
    must_succeed(pid);
}

/* Repeats the burst until the helper thread is running, and returns its id. */
static int helper_thread(void)
{
    for (;;) {
        bursts(NULL);
        int id = other_thread();
        if (id)
            return id;
    }
}

static int status_line(int thread, const char *name, char *line)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0; /* the thread has ended */
    text[n] = 0;
    const char *at = strstr(text, name);
    must(at);
    snprintf(line, 128, "%.*s", (int)strcspn(at, "\n"), at);
    return 1;
}

CASE(the_helper_thread_blocks_all_signals)
{
    char line[128];
    while (!status_line(helper_thread(), "SigBlk:", line)) {
    }
    unsigned long long blocked = strtoull(line + 7, NULL, 16);
    for (int signal = 1; signal < 32; signal++)
        must(signal == SIGKILL || signal == SIGSTOP || (blocked >> (signal - 1) & 1));
}

CASE(setresuid_applies_to_the_helper_thread)
{
    char mine[128], its[128];
    if (getuid() != 0)
        _exit(CASE_SKIPPED);
    int thread = helper_thread();
    must(setresuid(1234, 1234, 1234) == 0);
    must(status_line((int)syscall(SYS_gettid), "Uid:", mine));
    must(!status_line(thread, "Uid:", its) || !strcmp(mine, its));
}

CASE(unshare_of_a_user_namespace_fails_only_while_the_helper_thread_runs)
{
    pid_t pid = fork(); /* may a process with one thread do this here? */
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
    int status;
    must(waitpid(pid, &status, 0) == pid);
    if (status)
        _exit(CASE_SKIPPED);
    helper_thread();
    while (unshare(CLONE_NEWUSER) != 0) { /* fails until the helper thread has ended */
        must(errno == EINVAL);
        nap();
    }
}

CASE(exit_pthread_exit_of_main_and_exec_while_the_helper_thread_runs)
{
    for (int i = 0; i < 3; i++) {
#ifndef __GLIBC__
        if (i == 1) /* with musl such a child of fork() sleeps for ever, also without Sheaf, if another thread ends
                       later */
            continue;
#endif
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0) {
            helper_thread();
            if (i == 0)
                exit(7);
            if (i == 1)
                pthread_exit(NULL); /* the process ends with 0 when its last thread ends */
            execl("/bin/true", "true", (char *)NULL);
        }
        int status;
        must(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        must(WEXITSTATUS(status) == (i == 0 ? 7 : 0));
    }
}

static volatile sig_atomic_t started_in_handler;

static void handler(int signal)
{
    (void)signal;
    for (int i = 0; i < 3; i++)
        allocate_and_free();
    started_in_handler = other_thread() != 0;
}

/* pthread_create() is not async-signal-safe: the handler may have interrupted another call of it. */
CASE(no_helper_thread_starts_in_a_signal_handler)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGUSR1, &action, NULL) == 0);
    must(pthread_create(&thread, NULL, (void *(*)(void *))nap, NULL) == 0 && pthread_join(thread, NULL) == 0);
    raise(SIGUSR1);
    must(!started_in_handler);
    helper_thread(); /* outside the handler the thread starts */
}

/*
 * The allocator calls libc's pthread_create() wherever another one is defined, but these definitions precede libc's.
 * No thread can have a stack of that size.
 */
enum { STACK_BITS = 60 };
static _Atomic int refuse, refused;

int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
    int (*real)(pthread_attr_t *, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_attr_setstacksize");
    return real(attributes, refuse ? (size_t)1 << STACK_BITS : size);
}

int pthread_attr_setdetachstate(pthread_attr_t *attributes, int state)
{
    int (*real)(pthread_attr_t *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_attr_setdetachstate");
    refused += refuse;
    if (refuse)
        pthread_attr_setstacksize(attributes, 0);
    return real(attributes, state);
}

static void *be_seen(void *unused)
{
    allocate_and_free();
    return unused;
}

static void use_memory_a_while(void)
{
    pthread_t thread;
    refuse = 1;
    must(pthread_create(&thread, NULL, be_seen, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        allocate_and_free();
        nap();
    }
    must(!other_thread());
}

/* Sheaf gives up after a few attempts, each of which tries two stack sizes. */
CASE(pthread_create_fails)
{
    use_memory_a_while();
    must(refused > 0 && refused <= 8 * 2);
}

/*
 * A handler for SIGSYS indicates a sandbox that forbids system calls. libc blocks all signals while it creates a
 * thread, so a forbidden call would then kill the process: no thread may be started.
 */
CASE(no_helper_thread_starts_when_SIGSYS_has_a_handler)
{
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGSYS, &action, NULL) == 0);
    use_memory_a_while();
    must(!refused);
}

static void *little(void *unused)
{
    free(malloc(100));
    return unused;
}

/*
 * libc unmaps the stacks of ended threads under a lock that pthread_create() takes. Each round requests a helper
 * thread while threads with large stacks end.
 */
CASE(helper_threads_start_while_threads_with_large_stacks_end)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    must(pthread_attr_setstacksize(&attributes, 48ul * MIB) == 0);
    for (int round = 0; round < 20; round++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            must(pthread_create(&threads[i], &attributes, little, NULL) == 0);
        allocate_and_free();
        for (int i = 0; i < 8; i++)
            must(pthread_join(threads[i], NULL) == 0);
    }
}
