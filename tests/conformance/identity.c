/*
 * Threads of control that reach malloc with another thread's thread-local storage, or with one that libc did not
 * make: children of clone() in all combinations that matter, of vfork(), coroutines, handlers on stacks of their own.
 * Each allocates while threads of the program do, and all check that nobody else gets their blocks.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { HELD = 64, THREADS = 3, STACK = 256 << 10 };
/* Slow modes and builds set less by IDENTITY_CHILDREN and IDENTITY_ROUNDS. */
static unsigned children = 60; /* of each kind */
static int rounds = 5000;      /* blocks that each allocates */
static _Atomic bool stop;
extern char **environ;

/* While a thread holds its blocks, no other thread may get and overwrite them. Uses no thread-local data. */
static bool hold_blocks(uintptr_t tag, int count)
{
    uintptr_t *blocks[HELD] = {NULL};
    bool right = true;
    for (int i = 0; i < count && !stop; i++) {
        uintptr_t **block = &blocks[i % HELD];
        if (*block)
            right &= (*block)[0] == tag && (*block)[1] == (uintptr_t)block;
        free(*block);
        *block = malloc(i % 512 ? 64 : 5000);
        if (!*block)
            return false;
        (*block)[0] = tag;
        (*block)[1] = (uintptr_t)block;
    }
    for (int i = 0; i < HELD; i++)
        free(blocks[i]);
    return right;
}

static pthread_t threads[THREADS];

static void *hold_on(void *tag)
{
    must(hold_blocks((uintptr_t)tag, INT32_MAX));
    return NULL;
}

static void start_threads(void)
{
    for (uintptr_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, hold_on, (void *)(i + 1)) == 0);
}

static void end_threads(void)
{
    stop = true;
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

/* ---- clone() ---- */

/* What children of clone() do and set. A child with CLONE_VM must not use what libc has in thread-local data. */
static _Atomic uint32_t ended;
static _Atomic bool wrong;

static int child_works(void *tag)
{
    if (!hold_blocks((uintptr_t)tag, rounds))
        wrong = true;
    ended = 1;
    syscall(SYS_futex, &ended, FUTEX_WAKE, 1, NULL, NULL, 0);
    return wrong;
}

static char *new_stack(void)
{
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(stack != MAP_FAILED);
    return stack + STACK;
}

/* A thread-local storage that libc did not make, of zeros but for the pointers to itself and the stack guard. */
static void *new_tls(void)
{
    enum { BYTES = 128 << 10 };
    char *start = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(start != MAP_FAILED);
    void **pointer = (void **)(start + BYTES / 2), **ours = __builtin_thread_pointer();
#if defined(__x86_64__)
    pointer[0] = pointer[2] = pointer;
    pointer[5] = ours[5];
#else
    (void)ours;
#endif
    return pointer;
}

static void clone_many(int flags, bool parent_works)
{
    start_threads();
    char *stack = new_stack();
    for (uintptr_t i = 0; i < children; i++) {
        void *tls = flags & CLONE_SETTLS ? new_tls() : NULL;
        ended = 0;
        pid_t pid = clone(child_works, stack, flags, (void *)(100 + i), NULL, tls, NULL);
        must(pid > 0);
        if (flags & CLONE_VFORK && flags & CLONE_VM)
            must(ended);
        if (parent_works)
            must(hold_blocks(50, rounds));
        while (flags & CLONE_VM && !ended)
            syscall(SYS_futex, &ended, FUTEX_WAIT, 0, NULL, NULL, 0);
        if (!(flags & CLONE_THREAD))
            must_succeed(pid);
        else /* its stack must not be used again before it has ended */
            while (!syscall(SYS_tgkill, getpid(), pid, 0))
                sched_yield();
    }
    must(!wrong);
    end_threads();
}

#define THREAD_FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

CASE(clone_stands_in_for_its_parent)
{
    clone_many(CLONE_VM | CLONE_VFORK | SIGCHLD, true);
}

CASE(clone_stands_in_with_tls)
{
    clone_many(CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, true);
}

CASE(clone_beside_its_parent)
{
    clone_many(CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, true);
}

CASE(clone_with_tls)
{
    clone_many(CLONE_VM | CLONE_SETTLS | SIGCHLD, true);
}

CASE(clone_thread)
{
    clone_many(THREAD_FLAGS, true);
}

CASE(clone_thread_with_tls)
{
    clone_many(THREAD_FLAGS | CLONE_SETTLS, true);
}

CASE(clone_thread_stands_in)
{
    clone_many(THREAD_FLAGS | CLONE_VFORK, true);
}

CASE(clone_process)
{
    clone_many(SIGCHLD, true);
}

CASE(clone_process_with_tls)
{
    clone_many(CLONE_SETTLS | SIGCHLD, true);
}

/* More than there is room for at once, all alive: some are refused, none goes wrong. */
static _Atomic uint32_t may_end, alive;

static int child_waits(void *unused)
{
    (void)unused;
    if (!hold_blocks(7, HELD))
        wrong = true;
    alive++;
    while (!may_end)
        syscall(SYS_futex, &may_end, FUTEX_WAIT, 0, NULL, NULL, 0);
    return !hold_blocks(8, HELD);
}

CASE(clone_many_at_once)
{
    enum { MANY = 700 };
    static pid_t children[MANY];
    uint32_t n = 0;
    for (; n < MANY; n++) {
        children[n] = clone(child_waits, new_stack(), CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
        if (children[n] < 0) {
            must(errno == EAGAIN && n > 100);
            break;
        }
    }
    while (alive < n)
        sched_yield();
    may_end = 1;
    syscall(SYS_futex, &may_end, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    for (uint32_t i = 0; i < n; i++)
        must_succeed(children[i]);
    must(!wrong);
    pid_t again = clone(child_works, new_stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)9);
    must_succeed(again);
    again = clone(child_works, new_stack(), CLONE_VM | SIGCHLD, (void *)9);
    must_succeed(again);
}

/* A child whose word of CLONE_CHILD_CLEARTID is the program's, as thread libraries have it. */
CASE(clone_clears_a_word_of_the_program)
{
    start_threads();
    char *stack = new_stack();
    for (unsigned i = 0; i < children; i++) {
        static _Atomic uint32_t number;
        number = 1;
        pid_t pid = clone(child_works, stack, THREAD_FLAGS | CLONE_CHILD_CLEARTID, (void *)60, NULL, NULL, &number);
        must(pid > 0 && hold_blocks(50, rounds));
        for (uint32_t seen; (seen = number) != 0;)
            syscall(SYS_futex, &number, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
    must(!wrong);
    end_threads();
}

/* Children that make children: by fork, by vfork, and by clone() again. */
static int child_has_children(void *how)
{
    pid_t pid = -1;
    switch ((uintptr_t)how % 3) {
    case 0:
        pid = fork();
        break;
    case 1:
        pid = vfork();
        break;
    default:
        pid = clone(child_works, new_stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)11);
        break;
    }
    if (pid == 0)
        _exit(!hold_blocks(12, rounds));
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status || !hold_blocks(13, rounds))
        wrong = true;
    return wrong;
}

static void children_of_children(int flags)
{
    start_threads();
    char *stack = new_stack();
    for (uintptr_t i = 0; i < children; i++)
        must_succeed(clone(child_has_children, stack, flags | CLONE_VM | SIGCHLD, (void *)i));
    must(!wrong);
    end_threads();
}

CASE(clone_stands_in_and_has_children)
{
    children_of_children(CLONE_VFORK);
}

CASE(clone_beside_its_parent_and_has_children)
{
    children_of_children(0);
}

/* clone() in the child of a fork that a foreign thread's program made, and forks beside foreign threads. */
CASE(fork_beside_foreign_threads)
{
    start_threads();
    pid_t waiting = clone(child_waits, new_stack(), CLONE_VM | SIGCHLD, NULL);
    must(waiting > 0);
    for (unsigned i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            stop = false;
            must(hold_blocks(70, rounds));
            must_succeed(clone(child_works, new_stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)71));
            _exit(wrong);
        }
        must_succeed(pid);
    }
    may_end = 1;
    syscall(SYS_futex, &may_end, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    must_succeed(waiting);
    end_threads();
}

/* The bare system call, which cannot be recognised: without rseq it is safe nevertheless. */
CASE(bare_clone_without_rseq)
{
#if defined(__x86_64__)
    const char *rseq = getenv("SHEAF_RSEQ");
    if (!rseq || strcmp(rseq, "off") != 0 || getenv("SHEAF_HARDEN")) /* not with sampled allocations */
        _exit(CASE_SKIPPED);
    start_threads();
    void **stack = (void **)new_stack();
    for (uintptr_t i = 0; i < children; i++) {
        stack[-1] = (void *)(100 + i);
        *(int (**)(void *)) & stack[-2] = child_works;
        long pid;
        register long r10 __asm__("r10") = 0;
        register long r8 __asm__("r8") = 0;
        __asm__ volatile("syscall\n\t"
                         "testq %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "popq %%rax\n\t"
                         "popq %%rdi\n\t"
                         "callq *%%rax\n\t"
                         "movl %%eax, %%edi\n\t"
                         "movl $60, %%eax\n\t" /* exit */
                         "syscall\n"
                         "1:"
                         : "=a"(pid)
                         : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(stack - 2), "d"(0), "r"(r10),
                           "r"(r8)
                         : "rcx", "r11", "memory");
        must(pid > 0 && hold_blocks(50, rounds));
        must_succeed((pid_t)pid);
    }
    must(!wrong);
    end_threads();
#else
    _exit(CASE_SKIPPED);
#endif
}

/* ---- vfork() and signals ---- */

static _Atomic uint32_t handled;

static void handler_works(int signal)
{
    (void)signal;
    if (!hold_blocks(90, HELD))
        wrong = true;
    handled++;
}

/* Signals that arrive while the child runs are handled in the parent as soon as it goes on. */
CASE(vfork_among_signals)
{
    struct sigaction action = {.sa_handler = handler_works};
    sigaction(SIGUSR1, &action, NULL);
    start_threads();
    for (unsigned i = 0; i < 5 * children; i++) {
        pid_t parent = (pid_t)syscall(SYS_gettid);
        pid_t pid = vfork();
        if (pid == 0) {
            kill(getpid(), SIGUSR1);
            syscall(SYS_tgkill, getppid(), parent, SIGUSR1);
            _exit(!hold_blocks(91, HELD));
        }
        must(hold_blocks(92, HELD));
        must_succeed(pid);
    }
    sigset_t mask;
    must(!sigprocmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGTERM));
    must(!wrong && handled >= 5 * children);
    end_threads();
}

/* The signal mask is the caller's in the parent and in the child. */
CASE(vfork_keeps_the_signal_mask)
{
    sigset_t mask, seen;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    must(!sigprocmask(SIG_SETMASK, &mask, NULL));
    pid_t pid = vfork();
    if (pid == 0) {
        sigprocmask(SIG_BLOCK, NULL, &seen);
        _exit(memcmp(&seen, &mask, 8) != 0);
    }
    must_succeed(pid);
    must(!sigprocmask(SIG_BLOCK, NULL, &seen) && memcmp(&seen, &mask, 8) == 0);
}

/* ---- stacks ---- */

#ifdef __GLIBC__

static ucontext_t main_context, coroutines[4];
static _Atomic uint32_t switches;

static void coroutine(void)
{
    for (;;) {
        if (!hold_blocks(80 + switches % 4, HELD * 2))
            wrong = true;
        uint32_t n = switches++;
        swapcontext(&coroutines[n % 4], n > 400 ? &main_context : &coroutines[(n + 1) % 4]);
    }
}

CASE(coroutines_allocate)
{
    start_threads();
    for (int i = 0; i < 4; i++) {
        must(!getcontext(&coroutines[i]));
        coroutines[i].uc_stack.ss_sp = new_stack() - STACK;
        coroutines[i].uc_stack.ss_size = STACK;
        makecontext(&coroutines[i], coroutine, 0);
    }
    must(!swapcontext(&main_context, &coroutines[0]) && !wrong && switches > 400);
    end_threads();
}

#else
NEEDS_GLIBC(coroutines_allocate)
#endif

CASE(handlers_on_alternate_stacks)
{
    stack_t stack = {.ss_sp = new_stack() - STACK, .ss_size = STACK};
    struct sigaction action = {.sa_handler = handler_works, .sa_flags = SA_ONSTACK};
    must(!sigaltstack(&stack, NULL) && !sigaction(SIGUSR1, &action, NULL));
    start_threads();
    for (unsigned i = 0; i < children; i++) {
        must(hold_blocks(93, HELD) && !raise(SIGUSR1));
    }
    must(!wrong && handled == children);
    end_threads();
}

CASE(spawn_with_attributes)
{
    start_threads();
    for (unsigned i = 0; i < children; i++) {
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        char *const argv[] = {"true", NULL};
        pid_t pid;
        must(!posix_spawn_file_actions_init(&actions) && !posix_spawnattr_init(&attributes));
        must(!posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", 0, 0));
        must(!posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
        must(!posix_spawnp(&pid, "true", &actions, &attributes, argv, environ) && hold_blocks(94, HELD));
        must_succeed(pid);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    end_threads();
}

BEFORE_CASES(argv)
{
    const char *given = getenv("IDENTITY_CHILDREN"), *few = getenv("IDENTITY_ROUNDS");
    children = given ? (unsigned)atoi(given) : children;
    rounds = few ? atoi(few) : rounds;
}
