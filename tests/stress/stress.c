/*
 * Threads allocate, exchange, check and free blocks while other threads disturb them by signals whose handlers
 * allocate, by moving them between CPUs, by forking and by trimming. Every block is filled with a stamp of its
 * address and size, which is checked before the block is freed or resized: two owners of one block, or a lost
 * write, change it.
 *
 * Usage: stress MODE... [--seconds S] [--seed N]
 * Modes: threads, signals, migrate, fork, trim, all. With `large` all blocks have sizes that slots keep in their
 * span caches, and few of their bytes are touched, which makes more operations possible.
 * Prints "ok" and exits with 0, or reports the fault and aborts. SIGALRM ends it if it hangs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 12, BLOCKS = 256, MAILBOXES = 512 };

struct block {
    unsigned char *at;
    size_t size;
};

static struct {
    bool signals, migrate, fork, trim, large;
    unsigned seconds;
    unsigned long seed;
} option = {.seconds = 2};

static _Atomic bool stop;
static _Atomic(struct block *) mailbox[MAILBOXES];
static pthread_t threads[THREADS];
static _Atomic unsigned long operations, handled;

static unsigned long next(unsigned long *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fail(const char *what, const void *at, size_t size)
{
    fprintf(stderr, "stress: %s at %p, %zu bytes, seed %lu\n", what, at, size, option.seed);
    abort();
}

/* Stamps are in the first and last 16 bytes and, except in mode `large`, in one byte of each page between them. */
static unsigned char stamp(const struct block *b, size_t i)
{
    return (unsigned char)((uintptr_t)b->at * 31 >> 4 ^ b->size ^ i);
}

static void each_stamp(struct block *b, bool check)
{
    size_t step = option.large ? SIZE_MAX / 2 : 4096;
    for (size_t i = 0; i < b->size; i += i < 16 || i + 16 >= b->size ? 1
                                         : b->size - i > step + 16   ? step
                                                                     : b->size - i - 16) {
        if (!check)
            b->at[i] = stamp(b, i);
        else if (b->at[i] != stamp(b, i))
            fail("wrong contents", b->at, b->size);
    }
}

static size_t random_size(unsigned long *state)
{
    unsigned long r = next(state);
    if (option.large)
        return 33000 + r % 220000;
    unsigned kind = r % 64;
    r >>= 8;
    if (kind < 40)
        return r % 256;
    if (kind < 58)
        return r % 4096;
    if (kind < 63)
        return r % 65536;
    return r % (1 << 20);
}

static void take(struct block *b, unsigned long *state)
{
    b->size = random_size(state);
    unsigned how = option.large ? 2 : next(state) % 16;
    size_t align = how == 0 ? (size_t)16 << next(state) % 9 : 1;
    b->at = how == 0 ? aligned_alloc(align, b->size) : how == 1 ? calloc(1, b->size) : malloc(b->size);
    if (!b->at)
        fail("no memory", NULL, b->size);
    if ((uintptr_t)b->at % align)
        fail("wrong alignment", b->at, b->size);
    if (how == 1)
        for (size_t i = 0; i < b->size; i++)
            if (b->at[i])
                fail("calloc returned memory that is not zero", b->at, b->size);
    if (malloc_usable_size(b->at) < b->size)
        fail("usable size too small", b->at, b->size);
    each_stamp(b, false);
}

static void drop(struct block *b)
{
    each_stamp(b, true);
    memset(b->at, 0xee, b->size < 64 ? b->size : 64);
    free(b->at);
    b->at = NULL;
}

static void resize(struct block *b, unsigned long *state)
{
    size_t size = random_size(state) + 1;
    unsigned char first = b->size ? b->at[0] : 0;
    each_stamp(b, true);
    size_t old = b->size;
    b->at = realloc(b->at, size);
    if (!b->at)
        fail("no memory", NULL, size);
    if (old && b->at[0] != first)
        fail("realloc lost contents", b->at, size);
    b->size = size;
    each_stamp(b, false);
}

/* Puts a block into a mailbox for another thread, and takes the block that was there. */
static void hand_over(struct block *b, unsigned long *state)
{
    struct block *parcel = malloc(sizeof(*parcel));
    if (!parcel)
        fail("no memory", NULL, sizeof(*parcel));
    *parcel = *b;
    struct block *got = atomic_exchange(&mailbox[next(state) % MAILBOXES], parcel);
    b->at = NULL;
    if (got) {
        *b = *got;
        free(got);
        each_stamp(b, true);
    }
}

static void one_step(struct block *blocks, unsigned count, unsigned long *state)
{
    struct block *b = &blocks[next(state) % count];
    unsigned what = next(state) % 8;
    if (!b->at)
        take(b, state);
    else if (what == 0)
        hand_over(b, state);
    else if (what == 1)
        resize(b, state);
    else
        drop(b);
}

static void *worker(void *argument)
{
    unsigned long state = option.seed + (unsigned long)(uintptr_t)argument * 7919 + 1;
    struct block blocks[BLOCKS] = {{0}};
    unsigned long done = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        one_step(blocks, option.large ? 8 : BLOCKS, &state);
        done++;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].at)
            drop(&blocks[i]);
    atomic_fetch_add(&operations, done);
    return NULL;
}

/* The handler may interrupt malloc anywhere: it must get memory, and must not disturb the interrupted call. */
static void handler(int signal)
{
    (void)signal;
    static _Atomic unsigned long calls;
    unsigned long state = option.seed ^ (atomic_fetch_add(&calls, 1) * 0x9e3779b97f4a7c15ul + 1);
    int saved = errno;
    struct block blocks[4];
    for (int i = 0; i < 4; i++)
        take(&blocks[i], &state);
    for (int i = 0; i < 4; i++)
        drop(&blocks[i]);
    atomic_fetch_add(&handled, 1);
    errno = saved;
}

static void *storm(void *unused)
{
    (void)unused;
    unsigned long state = option.seed + 99;
    while (!atomic_load(&stop)) {
        pthread_kill(threads[next(&state) % THREADS], SIGUSR1);
        for (volatile unsigned i = 0; i < 2000 + next(&state) % 4000; i++) {
        }
    }
    return NULL;
}

static void *migrator(void *unused)
{
    (void)unused;
    unsigned long state = option.seed + 5;
    cpu_set_t all;
    sched_getaffinity(0, sizeof(all), &all);
    while (!atomic_load(&stop)) {
        cpu_set_t one;
        int cpu = (int)(next(&state) % CPU_SETSIZE);
        for (int i = 0; i < CPU_SETSIZE && !CPU_ISSET(cpu, &all); i++)
            cpu = (cpu + 1) % CPU_SETSIZE;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(threads[next(&state) % THREADS], sizeof(one), next(&state) % 4 ? &one : &all);
        usleep(50);
    }
    return NULL;
}

static void child(unsigned long seed)
{
    struct block blocks[32] = {{0}};
    alarm(200);
    for (int i = 0; i < 2000; i++)
        one_step(blocks, 32, &seed);
    malloc_trim(0);
    for (int i = 0; i < 500; i++)
        one_step(blocks, 32, &seed);
    _exit(0);
}

static void *forker(void *unused)
{
    (void)unused;
    unsigned long state = option.seed + 17;
    while (!atomic_load(&stop)) {
        unsigned long seed = next(&state);
        pid_t pid = fork();
        if (pid == 0)
            child(seed);
        int status = 0;
        if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0))
            fail("a child failed", NULL, (size_t)status);
    }
    return NULL;
}

static void *trimmer(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        malloc_trim(0);
        (void)mallinfo2();
        usleep(500);
    }
    return NULL;
}

static void run(void)
{
    pthread_t extra[8];
    unsigned extras = 0;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    if (option.signals)
        pthread_create(&extra[extras++], NULL, storm, NULL);
    if (option.migrate)
        pthread_create(&extra[extras++], NULL, migrator, NULL);
    for (int i = 0; option.fork && i < 2; i++)
        pthread_create(&extra[extras++], NULL, forker, NULL);
    if (option.trim)
        pthread_create(&extra[extras++], NULL, trimmer, NULL);
    struct timespec pause = {.tv_sec = option.seconds};
    while (nanosleep(&pause, &pause) && errno == EINTR) {
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < extras; i++)
        pthread_join(extra[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < MAILBOXES; i++) {
        struct block *got = atomic_exchange(&mailbox[i], NULL);
        if (got) {
            drop(got);
            free(got);
        }
    }
}

static void parse(int argc, char **argv)
{
    option.seed = (unsigned long)time(NULL) * 2654435761u | 1;
    for (int i = 1; i < argc; i++) {
        bool all = !strcmp(argv[i], "all");
        option.signals |= all || !strcmp(argv[i], "signals");
        option.migrate |= all || !strcmp(argv[i], "migrate");
        option.fork |= all || !strcmp(argv[i], "fork");
        option.trim |= all || !strcmp(argv[i], "trim");
        option.large |= !strcmp(argv[i], "large");
        if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            option.seconds = (unsigned)atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            option.seed = strtoul(argv[++i], NULL, 10) | 1;
    }
    if (getenv("SHEAF_SOAK"))
        option.seconds = (unsigned)atoi(getenv("SHEAF_SOAK"));
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    alarm(option.seconds * 4 + 300);
    fprintf(stderr, "stress: seed %lu\n", option.seed);
    size_t before = mallinfo2().uordblks;
    run();
    malloc_trim(0);
    size_t after = mallinfo2().uordblks;
    /* libc keeps memory for thread stacks and streams; a leak of blocks would be far larger. */
    if (after > before + (64 << 10))
        fail("memory in use has grown", (void *)before, after);
    printf("ok %lu operations, %lu handlers\n", atomic_load(&operations), atomic_load(&handled));
    return 0;
}
