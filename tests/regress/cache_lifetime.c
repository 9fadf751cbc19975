/* Caches are created and destroyed while other threads fork and trim. */
#define _GNU_SOURCE
#include "../cases.h"
#include "asleep.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sheaf/kmem_cache.h>
#include <sheaf/malloc.h>
#include <sys/mman.h>

enum { OBJECTS = 1000 };

static struct kmem_cache *create(const char *name)
{
    struct kmem_cache *cache = kmem_cache_create(name, 64, NULL, 0);
    must(cache);
    return cache;
}

/* The child can create caches even if a thread of the parent was creating one. */
static void child_creates(void)
{
    alarm(CASE_SECONDS / 2);
    struct kmem_cache *cache = create("child");
    void *p = kmem_cache_alloc(cache, 0);
    must(p);
    kmem_cache_free(cache, p);
    must(kmem_cache_destroy(cache) == 0);
    _exit(0);
}

/* ---- fork while a fault in reading the name holds another thread inside kmem_cache_create() ---- */

static char *name_page;
static volatile int inside, forked;
static pid_t forker;

static void stay_inside(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    must(info->si_addr == name_page);
    inside = 1;
    while (!forked && !asleep(forker)) /* if the fork waits for this thread, this thread must continue */
        sched_yield();
    must(mprotect(name_page, 4096, PROT_READ | PROT_WRITE) == 0);
}

static void *create_slowly(void *unused)
{
    create(name_page);
    return unused;
}

CASE(fork_inside_kmem_cache_create)
{
    forker = getpid();
    create("first");
    name_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(name_page != MAP_FAILED);
    struct sigaction action = {.sa_sigaction = stay_inside, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    pthread_t thread;
    must(pthread_create(&thread, NULL, create_slowly, NULL) == 0);
    while (!inside)
        sched_yield();
    pid_t pid = fork();
    if (pid == 0)
        child_creates();
    forked = 1;
    must_succeed(pid);
    must(pthread_join(thread, NULL) == 0);
}

/* ---- fork at any moment of kmem_cache_create() and kmem_cache_destroy() ---- */

static volatile int stop;

static void *create_and_destroy(void *unused)
{
    while (!stop) {
        struct kmem_cache *cache = create("short");
        void *p = kmem_cache_alloc(cache, 0);
        must(p);
        kmem_cache_free(cache, p);
        must(kmem_cache_destroy(cache) == 0);
    }
    return unused;
}

CASE(fork_while_caches_are_created_and_destroyed)
{
    create("first");
    pthread_t thread;
    must(pthread_create(&thread, NULL, create_and_destroy, NULL) == 0);
    for (int i = 0; i < 500; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child_creates();
        must_succeed(pid);
    }
    stop = 1;
    must(pthread_join(thread, NULL) == 0);
}

/* ---- objects that another thread's trim is moving are not in use ---- */

static void *trim(void *unused)
{
    while (!stop)
        sheaf_malloc_trim();
    return unused;
}

CASE(kmem_cache_destroy_during_trims)
{
    create("first");
    pthread_t thread;
    must(pthread_create(&thread, NULL, trim, NULL) == 0);
    for (int i = 0; i < 20000; i++) {
        struct kmem_cache *cache = create("short");
        void *objects[OBJECTS];
        for (int k = 0; k < OBJECTS; k++)
            must((objects[k] = kmem_cache_alloc(cache, 0)));
        for (int k = 0; k < OBJECTS; k++)
            kmem_cache_free(cache, objects[k]);
        must(kmem_cache_destroy(cache) == 0);
    }
    stop = 1;
    must(pthread_join(thread, NULL) == 0);
}

/* ---- kmem_cache_destroy() prints to a full pipe and must not hold a lock that the pipe's reader needs ---- */

static volatile pid_t destroyer;
static volatile int refused;

static void *destroy_in_use(void *cache)
{
    destroyer = gettid();
    refused = kmem_cache_destroy(cache);
    return NULL;
}

/* Makes standard error a pipe that is full, and returns the pipe's read end. */
static int full_pipe(void)
{
    int ends[2];
    must(pipe2(ends, O_NONBLOCK) == 0);
    static const char some[4096];
    while (write(ends[1], some, sizeof(some)) > 0) {
    }
    must(fcntl(ends[1], F_SETFL, 0) == 0);
    must(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    return ends[0];
}

CASE(kmem_cache_destroy_reports_to_a_full_pipe)
{
    struct kmem_cache *cache = create("in use");
    must(kmem_cache_alloc(cache, 0));
    int from = full_pipe();
    pthread_t thread;
    must(pthread_create(&thread, NULL, destroy_in_use, cache) == 0);
    while (!destroyer || !asleep(destroyer))
        sched_yield();
    create("by the reader");
    sheaf_malloc_trim();
    static char text[65536];
    while (!refused)
        if (read(from, text, sizeof(text)) < 0)
            sched_yield();
    must(pthread_join(thread, NULL) == 0);
    must(refused == -EBUSY);
}
