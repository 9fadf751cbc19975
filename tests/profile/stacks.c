/*
 * The stacks of samples are the true ones. Every allocation is sampled here, and functions that call each other at
 * random, with frames of random sizes, know the path on which each one was made. Most stacks are recognized without a
 * walk (diagnostics/profile/walked.h), so wrong ones would show.
 */
#define _GNU_SOURCE
#include "area.h"

#include <alloca.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { LEVELS = 5, SITES = 4, PATHS = 1 << (2 * LEVELS), ROUNDS = 3000, SIZE = 64 };

/* Without frame pointers, frames have constant sizes. */
#ifdef CONSTANT
#define FRAME(random) 16
#else
#define FRAME(random) (16 + 16 * (draw(random) % 5))
#endif

/* A path: two bits for the function at each level, the outermost first, and a leading one. */
static unsigned truth[2 * PATHS];

static uint32_t draw(uint32_t *random)
{
    *random = *random * 1664525 + 1013904223;
    return *random >> 16;
}

/* Each function is a section of its own, so that the linker knows where its code begins and ends. */
typedef void function(unsigned path, unsigned level, uint32_t *random);
static function *next_function(uint32_t *random);

static inline __attribute__((always_inline)) void step(unsigned path, unsigned level, uint32_t *random)
{
    volatile char *frame = alloca(FRAME(random));
    frame[0] = 1;
    if (level == LEVELS) {
        void *p = malloc(SIZE);
        must(p);
        __atomic_fetch_add(&truth[path], 1, __ATOMIC_RELAXED);
        __asm__ volatile("" ::"r"(p) : "memory");
    } else {
        function *next = next_function(random);
        next(path, level + 1, random);
    }
    __asm__ volatile("" ::"r"(frame) : "memory"); /* the call above is no tail call */
}

#define FUNCTION(name, id)                                                                                           \
    extern const char __start_code_##name[], __stop_code_##name[];                                                   \
    static __attribute__((noinline, section("code_" #name))) void name(unsigned path, unsigned level,                \
                                                                       uint32_t *random)                             \
    {                                                                                                                \
        step(path << 2 | (id), level, random);                                                                       \
    }
FUNCTION(zero, 0)
FUNCTION(one, 1)
FUNCTION(two, 2)
FUNCTION(three, 3)

/* Functions that were made at run time, as by a JIT compiler, without unwind tables: each calls one of the others. */
static function *made[SITES];
static unsigned char *code, *code_end;

static function *next_function(uint32_t *random)
{
    static function *const all[SITES] = {zero, one, two, three};
    unsigned site = draw(random) % SITES;
    return made[site] && draw(random) % 2 ? made[site] : all[site];
}

static int site_of(uint64_t pc)
{
    static const char *const starts[] = {__start_code_zero, __start_code_one, __start_code_two, __start_code_three};
    static const char *const ends[] = {__stop_code_zero, __stop_code_one, __stop_code_two, __stop_code_three};
    for (int i = 0; i < SITES; i++)
        if (pc > (uintptr_t)starts[i] && pc <= (uintptr_t)ends[i])
            return i;
    return -1;
}

/* The path of a stack; 0 if it is not one of ours. */
static unsigned path_of(const struct sheaf_profile_stack *stack)
{
    unsigned sites[LEVELS], level = 0;
    for (unsigned i = 0; i < stack->depth && level < LEVELS; i++) {
        if (stack->pcs[i] - (uintptr_t)code < (uintptr_t)(code_end - code))
            continue;
        int site = site_of(stack->pcs[i]);
        must(site >= 0 || level == 0);
        if (site < 0)
            return 0;
        sites[level++] = (unsigned)site;
    }
    unsigned path = level == LEVELS;
    while (path && level)
        path = path << 2 | sites[--level];
    return path;
}

static void compare(void)
{
    const struct sheaf_profile *area = profile_area();
    static double found[2 * PATHS];
    memset(found, 0, sizeof(found));
    const char *at = (const char *)area + area->stacks_at, *last = at + area->stacks_used;
    for (const struct sheaf_profile_stack *stack; at < last; at += stack->bytes) {
        stack = (const void *)at;
        if (stack->live_count > 0.5)
            found[path_of(stack)] += stack->live_count;
    }
    must(area->lost_samples == 0 && area->lost_stacks == 0);
    for (unsigned path = PATHS; path < 2 * PATHS; path++)
        must((unsigned)(found[path] + 0.5) == truth[path]);
}

static void run_paths(uint32_t seed)
{
    for (unsigned i = 0; i < ROUNDS; i++)
        next_function (&seed)(1, 1, &seed);
}

CASE(paths)
{
    run_paths(1);
    compare();
}

/* ---- code without unwind tables ---- */

#ifdef __x86_64__

static void put(const void *bytes, size_t n)
{
    memcpy(code_end, bytes, n);
    code_end += n;
}

/* push %rbp; mov %rsp, %rbp or, to lose it, mov $5, %ebp; sub $32, %rsp; mov $to, %rax; call *%rax; add $32, %rsp;
 * pop %rbp; ret */
static function *make(function *to, bool keeps)
{
    union {
        unsigned char *code;
        function *function;
    } start = {code_end};
    put("\x55", 1);
    put(keeps ? "\x48\x89\xe5" : "\xbd\x05\x00\x00\x00", keeps ? 3 : 5);
    put("\x48\x83\xec\x20\x48\xb8", 6);
    put(&to, sizeof(to));
    put("\xff\xd0\x48\x83\xc4\x20\x5d\xc3", 8);
    return start.function;
}

CASE(compiled)
{
    static function *const all[SITES] = {zero, one, two, three};
    code = code_end = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(code != MAP_FAILED);
    for (unsigned i = 0; i < SITES; i++)
        made[i] = make(all[i], true);
    run_paths(11);
    compare();
    unsigned char *last = code_end;
    uint32_t seed = 12;
    for (unsigned i = 0; i < ROUNDS; i++)
        make(next_function(&seed), false)(1, 1, &seed), code_end = last; /* the stack ends there */
    compare();
}

#endif

/* ---- threads, whose stacks are used again ---- */

static void *in_thread(void *seed)
{
    run_paths((uint32_t)(uintptr_t)seed);
    return NULL;
}

CASE(threads)
{
    for (uintptr_t i = 1; i <= 9; i += 3) {
        pthread_t all[3];
        for (uintptr_t k = 0; k < 3; k++)
            must(!pthread_create(&all[k], NULL, in_thread, (void *)(i + k)));
        for (unsigned k = 0; k < 3; k++)
            pthread_join(all[k], NULL);
    }
    compare();
}

/* ---- coroutines, whose stacks end right above the first frame ---- */

enum { STACK = 64 << 10 };
static ucontext_t back;
static uint32_t co_seed;

static void in_coroutine(void)
{
    for (unsigned i = 0; i < 200; i++)
        next_function (&co_seed)(1, 1, &co_seed);
}

CASE(coroutines)
{
    for (unsigned i = 0; i < 20; i++) {
        size_t size = STACK + i % 4 * 4096;
        char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ucontext_t context;
        must(stack != MAP_FAILED && !getcontext(&context));
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = size;
        context.uc_link = &back;
        co_seed = i + 1;
        makecontext(&context, in_coroutine, 0);
        must(!swapcontext(&back, &context));
        munmap(stack, size);
    }
    compare();
}

/* ---- reading ---- */

/* A program without an interpreter or a JIT compiler does not pay for them: it would be killed if it read itself. */
CASE(unread)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(code) / sizeof(*code), .filter = code};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    run_paths(5);
    coroutines();
}

/* ---- signal handlers that allocate, wherever they interrupt ---- */

static void handler(int signal)
{
    (void)signal;
    static uint32_t seed = 7;
    next_function (&seed)(1, 1, &seed);
}

static void *send_signals(void *to)
{
    for (unsigned i = 0; i < 300; i++) {
        pthread_kill(*(pthread_t *)to, SIGUSR1);
        usleep(100);
    }
    return NULL;
}

/* A handler that interrupts a sample may have to go without one, so its own paths are not compared. */
CASE(signals)
{
    pthread_t self = pthread_self(), other;
    signal(SIGUSR1, handler);
    must(!pthread_create(&other, NULL, send_signals, &self));
    run_paths(3);
    pthread_join(other, NULL);
    const struct sheaf_profile *area = profile_area();
    const char *at = (const char *)area + area->stacks_at, *last = at + area->stacks_used;
    double found = 0;
    for (const struct sheaf_profile_stack *stack; at < last; at += stack->bytes) {
        stack = (const void *)at;
        unsigned path = stack->live_count > 0.5 ? path_of(stack) : 0;
        must(!path || stack->live_count < truth[path] + 0.5);
        found += path ? stack->live_count : 0;
    }
    must(found > ROUNDS - 1);
}

BEFORE_CASES(argv)
{
    profile_environment(argv, "1", "0");
}
