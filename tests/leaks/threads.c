/*
 * SHEAF_LEAKS=1 in programs with threads: what only a thread's stack, registers or thread-local data refer to is not
 * lost, whatever the thread does at the moment.
 */
#define _GNU_SOURCE
#include "leaks.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define UNSTOPPED "1 thread could not be stopped"

static _Atomic int ready;

static void start_with(void *(*run)(void *), pthread_attr_t *attributes)
{
    pthread_t thread;
    must(pthread_create(&thread, attributes, run, NULL) == 0);
    while (!ready)
        sched_yield();
    ready = 0;
    scrub();
}

static void start(void *(*run)(void *))
{
    start_with(run, NULL);
}

/* ---- what the thread does ---- */

static int pipe_ends[2];

static void *reads(void *unused)
{
    void *volatile local = block(1024);
    char byte;
    ready = 1;
    while (read(pipe_ends[0], &byte, 1) <= 0) {
    }
    sink = local;
    return unused;
}

LEAK_CASE(a_thread_in_read, "nothing lost")
{
    must(pipe(pipe_ends) == 0);
    start(reads);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *unused)
{
    void *volatile local = block(1024);
    ready = 1;
    pthread_mutex_lock(&mutex);
    sink = local;
    return unused;
}

LEAK_CASE(a_thread_in_futex, "nothing lost")
{
    pthread_mutex_lock(&mutex);
    start(waits);
}

static void *sleeps(void *unused)
{
    void *volatile local = block(1024);
    struct timespec time = {1000000, 0};
    ready = 1;
    for (;;)
        nanosleep(&time, NULL);
    sink = local;
    return unused;
}

LEAK_CASE(a_thread_that_sleeps, "nothing lost")
{
    start(sleeps);
}

static void *works(void *unused)
{
    void *volatile local = block(1024);
    volatile long n = 0;
    ready = 1;
    for (;;)
        n++;
    sink = local;
    return unused;
}

LEAK_CASE(a_busy_thread, "nothing lost")
{
    start(works);
}

static void *allocates(void *unused)
{
    void *volatile local = block(1024), *volatile other;
    for (unsigned i = 0;; i++) {
        other = malloc(32 + i % 4096);
        free(other);
        ready = 1;
    }
    sink = local;
    return unused;
}

/* Threads that are stopped in the allocator's slow and fast paths, with its locks held or not. */
LEAK_CASE(threads_in_malloc_and_free, "nothing lost")
{
    for (int i = 0; i < 4; i++)
        start(allocates);
}

static void *blocks_signals(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    return reads(unused);
}

LEAK_CASE_WITH(a_thread_that_blocks_all_signals, "nothing lost", UNSTOPPED, 0)
{
    must(pipe(pipe_ends) == 0);
    start(blocks_signals);
}

#if defined(__x86_64__)
/* The only copy of the address is in a register, while the thread runs and while it is in a system call. */
static void *has_register(void *unused)
{
    void *p = block(1024);
    __asm__ volatile("mov %0, %%r12\n\t"
                     "xor %0, %0\n\t"
                     "movl $1, %1\n"
                     "1: mov $34, %%eax\n\t" /* pause */
                     "syscall\n\t"
                     "jmp 1b"
                     : "+b"(p), "=m"(ready)
                     :
                     : "r12", "rax", "rcx", "r11", "memory");
    return unused;
}

static void *spins_with_register(void *unused)
{
    void *p = block(1024);
    __asm__ volatile("mov %0, %%r12\n\t"
                     "xor %0, %0\n\t"
                     "movl $1, %1\n"
                     "1: pause\n\t"
                     "jmp 1b"
                     : "+b"(p), "=m"(ready)
                     :
                     : "r12", "memory");
    return unused;
}

LEAK_CASE(registers, "nothing lost")
{
    start(has_register);
    start(spins_with_register);
}
#endif

/* ---- where the reference is ---- */

static __thread void *volatile local_data;

static void *has_local_data(void *unused)
{
    local_data = block(1024);
    scrub();
    ready = 1;
    for (;;)
        pause();
    return unused;
}

LEAK_CASE(thread_local_data, "nothing lost")
{
    local_data = block(1024);
    start(has_local_data);
}

static pthread_key_t keys[100];

static void *has_specific(void *unused)
{
    for (int i = 0; i < 100; i++)
        pthread_setspecific(keys[i], block(64));
    scrub();
    ready = 1;
    for (;;)
        pause();
    return unused;
}

LEAK_CASE(data_by_keys, "nothing lost")
{
    for (int i = 0; i < 100; i++)
        must(pthread_key_create(&keys[i], NULL) == 0);
    start(has_specific);
}

/* A stack that is a block itself, which nothing else refers to. */
LEAK_CASE(a_stack_in_a_block, "nothing lost")
{
    pthread_attr_t attributes;
    must(pthread_attr_init(&attributes) == 0);
    void *stack = aligned_alloc(4096, 1 << 18);
    must(stack && pthread_attr_setstack(&attributes, stack, 1 << 18) == 0);
    must(pipe(pipe_ends) == 0);
    start_with(reads, &attributes);
    pthread_attr_destroy(&attributes);
}

static void handler(int signal)
{
    void *volatile local = block(1024);
    (void)signal;
    ready = 1;
    for (;;)
        pause();
    sink = local;
}

static void *on_alternate_stack(void *unused)
{
    void *volatile local = block(1024);
    stack_t stack = {.ss_sp = block(1 << 16), .ss_size = 1 << 16};
    must(sigaltstack(&stack, NULL) == 0);
    stack.ss_sp = NULL;
    raise(SIGUSR1);
    sink = local;
    return unused;
}

/* Both stacks of the thread are in use. */
LEAK_CASE(a_handler_on_an_alternate_stack, "nothing lost")
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    must(sigaction(SIGUSR1, &action, NULL) == 0);
    start(on_alternate_stack);
}

static void *has_alternate_stack(void *unused)
{
    stack_t stack = {.ss_sp = block(1 << 16), .ss_size = 1 << 16};
    must(sigaltstack(&stack, NULL) == 0);
    stack.ss_sp = NULL;
    return reads(unused);
}

LEAK_CASE(an_alternate_stack_that_is_not_in_use, "nothing lost")
{
    must(pipe(pipe_ends) == 0);
    start(has_alternate_stack);
}

static ucontext_t main_context, coroutine;

static void coroutine_runs(void)
{
    void *volatile local = block(1024);
    swapcontext(&coroutine, &main_context);
    sink = local;
}

/* A coroutine that is not running, on a mapping of the program. */
LEAK_CASE(a_coroutine_that_is_not_running, "nothing lost")
{
    void *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(stack != MAP_FAILED && getcontext(&coroutine) == 0);
    coroutine.uc_stack = (stack_t){.ss_sp = stack, .ss_size = 1 << 18};
    makecontext(&coroutine, coroutine_runs, 0);
    must(swapcontext(&main_context, &coroutine) == 0);
    scrub();
}

static void coroutine_exits(void)
{
    void *volatile local = block(1024);
    scrub();
    exit(local == NULL);
}

LEAK_CASE(a_coroutine_that_exits, "nothing lost")
{
    void *stack = block(1 << 20);
    must(getcontext(&coroutine) == 0);
    coroutine.uc_stack = (stack_t){.ss_sp = stack, .ss_size = 1 << 20};
    makecontext(&coroutine, coroutine_exits, 0);
    must(swapcontext(&main_context, &coroutine) == 0);
}

/* ---- threads that end, and exits elsewhere ---- */

static void *ends(void *unused)
{
    void *volatile local = block(1024);
    void *volatile other = block(1024);
    sink = local;
    sink = other;
    return unused;
}

/* libc keeps the thread's stack, where the addresses still are. */
LEAK_CASE(a_thread_that_has_ended, "lost 2 KiB in 2 blocks")
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
    scrub();
}

static void *gives_result(void *unused)
{
    (void)unused;
    return block(1024);
}

static pthread_t never_joined;

/* Waits until the calling thread is the only one that the system lists. */
static void wait_until_alone(void)
{
    for (int n = 0; n != 1;) {
        DIR *tasks = opendir("/proc/self/task");
        struct dirent *entry;
        must(tasks);
        for (n = 0; (entry = readdir(tasks)) != NULL;)
            n += entry->d_name[0] != '.';
        closedir(tasks);
        sched_yield();
    }
}

LEAK_CASE(the_result_of_a_thread_that_is_not_joined, "nothing lost")
{
    must(pthread_create(&never_joined, NULL, gives_result, NULL) == 0);
    wait_until_alone();
    scrub();
}

static void *exits(void *unused)
{
    scrub();
    exit(0);
    return unused;
}

/* The main thread is one of those that are stopped. */
LEAK_CASE(another_thread_exits, "nothing lost")
{
    pthread_t thread;
    void *volatile local = block(1024);
    must(pthread_create(&thread, NULL, exits, NULL) == 0);
    pthread_join(thread, NULL);
    sink = local;
}

static void *exits_after_main(void *unused)
{
    char text[256] = "";
    while (!strstr(text, ") Z ")) {
        FILE *file = fopen("/proc/self/stat", "r");
        must(file && fgets(text, sizeof(text), file));
        fclose(file);
        sched_yield();
    }
    return exits(unused);
}

/* A process whose main thread has ended but still is in the list of threads. */
LEAK_CASE(the_main_thread_has_ended, "nothing lost")
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, exits_after_main, NULL) == 0);
    pthread_exit(NULL);
}

static void *returns(void *unused)
{
    return unused;
}

static void *creates(void *unused)
{
    pthread_attr_t attributes;
    must(pthread_attr_init(&attributes) == 0);
    must(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, returns, NULL) != 0)
            sched_yield();
        ready = 1;
    }
    return unused;
}

/* Threads come and go while the others are being stopped. */
LEAK_CASE(threads_that_come_and_go, "nothing lost")
{
    start(creates);
    start(creates);
}

/* Each real-time signal has a handler of the program or is ignored. */
LEAK_CASE_WITH(no_signal_is_left, "nothing lost", UNSTOPPED, 0)
{
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        signal(i, i % 2 ? handler : SIG_IGN);
    a_thread_in_read();
}

/* Runs after the report, because it was registered before the first allocation. */
static void last(void)
{
    sigset_t mask;
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++) {
        struct sigaction action;
        must(sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    }
    must(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
    must(write(pipe_ends[1], "x", 1) == 1);
    while (!ready)
        sched_yield();
    must(dprintf(2, "the thread goes on\n") > 0);
}

__attribute__((constructor)) static void first(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[2], "afterwards_all_is_as_before"))
        atexit(last);
}

static void *reads_once(void *unused)
{
    reads(unused);
    ready = 1;
    return unused;
}

LEAK_CASE_WITH(afterwards_all_is_as_before, "nothing lost", "again)\nthe thread goes on\n", 0)
{
    must(pipe(pipe_ends) == 0);
    start(reads_once);
}
