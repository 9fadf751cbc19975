/* fork() with memory that becomes writable in steps, with a record, and inside another fork; and vfork(). */
#define _GNU_SOURCE
#include "again.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#define DATA_LIMIT (64ul << 20)

/* A forked child can allocate. */
static void fork_works(void)
{
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        void *volatile p = malloc(200);
        _exit(p ? 7 : 8);
    }
    int status = 0;
    must(waitpid(pid, &status, 0) == pid);
    must(status == 7 << 8);
}

/* ---- staged: only the memory of slots that have been used is writable ---- */

PART(part_staged)
{
    void *volatile p = malloc(100);
    must(p);
    fork_works();
    malloc_trim(0);
    fork_works();
    free(p);
}

CASE(fork_with_a_staged_reservation)
{
    execute_limited("part_staged", DATA_LIMIT);
}

/* ---- staged and recorded: the child resets its counters, also those of unused slots ---- */

static volatile int allocated;

static void *allocate_much(void *unused)
{
    for (size_t i = 0; i < 100000; i++) {
        void *volatile p = malloc(i % 3000);
        free(p);
    }
    allocated = 1;
    return unused;
}

PART(part_recorded)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, allocate_much, NULL) == 0);
    while (!allocated) {
        void *volatile p = malloc(100);
        free(p);
    }
    must(pthread_join(thread, NULL) == 0);
    fork_works();
}

/* Returns how many records were in it. */
static int remove_directory(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    must(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            n += unlinkat(dirfd(dir), entry->d_name, 0) == 0;
    closedir(dir);
    must(rmdir(path) == 0);
    return n;
}

CASE(fork_with_a_staged_reservation_and_a_record)
{
    char records[] = "/tmp/sheaf-regress-XXXXXX";
    must(mkdtemp(records));
    pid_t pid = fork();
    if (pid == 0) {
        must(setenv("SHEAF_RECORD", records, 1) == 0);
        execute_limited("part_recorded", DATA_LIMIT);
    }
    int status = -1;
    must(waitpid(pid, &status, 0) == pid);
    must(remove_directory(records) > 0);
    must(status == 0);
}

/* ---- _Fork in a signal handler that runs between fork's handlers, when all locks are held ---- */

static volatile sig_atomic_t nested;

static void fork_within(int signal)
{
    (void)signal;
    pid_t pid = _Fork();
    if (pid == 0)
        _exit(0);
    int status = -1;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        nested++;
}

static int interrupted;
static void interrupt_once(void)
{
    if (!interrupted++)
        raise(SIGUSR1);
}

static void *allocate_slowly(void *unused)
{
    for (int i = 0; i < 3000; i++)
        must(malloc(5000));
    return unused;
}

/*
 * Registers a prepare handler that runs after the allocator's, as handlers do that were registered before them: by
 * libc's own function, because the allocator's passes handlers on behind its own. The version of the symbol leads
 * there.
 */
static void register_in_libc(void (*prepare)(void))
{
#ifdef __GLIBC__
    typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
    union {
        void *symbol;
        register_function *call;
    } libc = {.symbol = dlvsym(RTLD_DEFAULT, "__register_atfork", "GLIBC_2.3.2")};
    if (!libc.symbol)
        libc.symbol = dlvsym(RTLD_DEFAULT, "__register_atfork", "GLIBC_2.17");
    must(libc.symbol);
    must(libc.call(prepare, NULL, NULL, NULL) == 0);
#else
    union {
        void *symbol;
        __typeof__(pthread_atfork) *call;
    } libc = {.symbol = dlsym(dlopen("libc.so", RTLD_NOW), "pthread_atfork")};
    must(libc.symbol && libc.call(prepare, NULL, NULL) == 0);
#endif
}

PART(part_nest)
{
    register_in_libc(interrupt_once);
    signal(SIGUSR1, fork_within);
    must(malloc(10));
    fork_works();
    must(nested == 1);
    pthread_t thread;
    must(pthread_create(&thread, NULL, allocate_slowly, NULL) == 0);
    must(pthread_join(thread, NULL) == 0);
    fork_works();
}

CASE(Fork_in_a_signal_handler_inside_fork)
{
    execute_part("part_nest");
}

/* ---- vfork: the child allocates in the memory of a program with threads ---- */

enum { HELD = 64, VFORKS = 300, THREADS = 3 };
static volatile int stop;

/* While a thread holds its blocks, no other thread may get and overwrite them. */
static void hold_blocks(uintptr_t tag, int rounds)
{
    uintptr_t *blocks[HELD] = {NULL};
    for (int i = 0; i < rounds && !stop; i++) {
        uintptr_t **block = &blocks[i % HELD];
        must(!*block || **block == tag);
        free(*block);
        *block = malloc(64);
        must(*block);
        **block = tag;
    }
    for (int i = 0; i < HELD; i++)
        free(blocks[i]);
}

static void *hold_on(void *tag)
{
    hold_blocks((uintptr_t)tag, INT32_MAX);
    return NULL;
}

CASE(children_of_vfork_allocate_among_threads)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, hold_on, (void *)(i + 1)) == 0);
    for (int i = 0; i < VFORKS; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            hold_blocks(99, 20000);
            _exit(0);
        }
        must_succeed(pid);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}
