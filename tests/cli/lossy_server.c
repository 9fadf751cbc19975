/*
 * A program that runs until its standard input ends. It loses and keeps blocks of known sizes, keeps threads busy or
 * in system calls, and reports system calls that fail with EINTR.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct node {
    struct node *next;
    char rest[1016];
};
static void *volatile kept, *volatile sink;
static _Atomic int interrupted[8];
static _Atomic unsigned rounds;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int quiet[2];

static void *make(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        abort();
    return p;
}

static void lose(void)
{
    struct node *first = make(sizeof(*first));
    first->next = make(sizeof(*first));
    sink = make(1 << 20);
    sink = make(100);
    sink = first;
}

/* A block that only shared memory refers to, and a tree that only a register or a stack does. */
static void keep(void)
{
    void **shared = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[70000 / 8 * 8] = make(5000);
    struct node *list = NULL;
    for (int i = 0; i < 1000; i++) {
        struct node *node = make(sizeof(*node));
        node->next = list;
        list = node;
    }
    kept = list;
}

static void scrub(void)
{
    char bytes[65536];
    memset(bytes, 0, sizeof(bytes));
    __asm__ volatile("" : : "r"(bytes) : "memory");
    sink = NULL;
}

/* Everything that a thread allocates is only on its stack and in its registers. */
static void *churn(void *unused)
{
    void *held[64] = {0};
    unsigned seed = (unsigned)(size_t)unused;
    for (;;) {
        unsigned i = (unsigned)rand_r(&seed) % 64, size = (unsigned)rand_r(&seed);
        size = size % 50 ? size % 3000 : size % 600000;
        if (size % 3 == 0)
            held[i] = realloc(held[i], size + 1);
        else {
            free(held[i]);
            held[i] = malloc(size);
        }
        if (held[i])
            memset(held[i], 0, size < 64 ? size : 64);
        rounds++;
    }
    return NULL;
}

static void count(int call, long result)
{
    if (result < 0 && errno == EINTR)
        interrupted[call]++;
}

static void *call(void *which)
{
    int number = (int)(size_t)which, epoll = epoll_create1(0);
    char byte;
    void *block = make(777); /* only a register of this thread, or its stack, has the address */
    for (;;) {
        struct timespec hour = {.tv_sec = 3600};
        struct pollfd one = {.fd = quiet[0], .events = POLLIN};
        struct epoll_event event;
        rounds++;
        if (number == 0)
            count(0, read(quiet[0], &byte, 1));
        if (number == 1)
            count(1, nanosleep(&hour, NULL));
        if (number == 2)
            count(2, poll(&one, 1, 3600000));
        if (number == 3)
            count(3, select(0, NULL, NULL, NULL, &(struct timeval){.tv_sec = 3600}));
        if (number == 4)
            count(4, pause());
        if (number == 5) {
            pthread_mutex_lock(&mutex);
            pthread_cond_wait(&never, &mutex);
            pthread_mutex_unlock(&mutex);
        }
        if (number == 6)
            count(6, epoll_wait(epoll, &event, 1, -1));
        __asm__ volatile("" : : "r"(block));
    }
    return NULL;
}

static void start(void *function(void *), int from, int to)
{
    pthread_t thread;
    for (int i = from; i < to; i++)
        if (pthread_create(&thread, NULL, function, (void *)(size_t)i))
            abort();
}

/* Threads that begin and end all the time. */
static void *nothing(void *unused)
{
    free(make(200));
    return unused;
}

static void *spawn(void *unused)
{
    pthread_t thread;
    while (!pthread_create(&thread, NULL, nothing, NULL))
        pthread_join(thread, NULL);
    return unused;
}

/* A thread that cannot be stopped. */
static void *wait_for_child(void *unused)
{
    void *block = make(888);
    pid_t child = vfork();
    if (!child) {
        pause();
        _exit(0);
    }
    free(block);
    return unused;
}

static void answer(void)
{
    int status;
    errno = 0;
    long child = waitpid(-1, &status, WNOHANG);
    printf("rounds %u interrupted", rounds);
    for (int i = 0; i < 8; i++)
        printf(" %d", interrupted[i]);
    printf(" child %ld %s\n", child, errno == ECHILD ? "none" : strerror(errno));
    fflush(stdout);
}

static void *fill(size_t bytes)
{
    struct node *list = NULL;
    for (size_t i = 0; i < bytes / sizeof(*list); i++) {
        struct node *node = make(sizeof(*node));
        node->next = list;
        list = node;
    }
    return list;
}

static void child_ended(int signal)
{
    interrupted[7] += signal == SIGCHLD;
}

int main(int argc, char **argv)
{
    char line[100];
    signal(SIGCHLD, child_ended);
    if (pipe(quiet))
        abort();
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "lose"))
            lose();
        if (!strcmp(argv[i], "keep"))
            keep();
        if (!strcmp(argv[i], "churn"))
            start(churn, 1, 5);
        if (!strcmp(argv[i], "calls"))
            start(call, 0, 7);
        if (!strcmp(argv[i], "vfork"))
            start(wait_for_child, 0, 1);
        if (!strcmp(argv[i], "spawn"))
            start(spawn, 0, 2);
        if (!strcmp(argv[i], "fill") && i + 1 < argc)
            kept = fill(strtoul(argv[i + 1], NULL, 10) << 20);
    }
    for (int i = 0; i < 3000; i++)
        free(make(64 + (size_t)i)); /* slow paths, by one of which the helper thread starts */
    scrub();
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) /* its buffer lives until the end */
        answer();
    return 0;
}
