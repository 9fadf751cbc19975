/*
 * Stops a thread at every instruction of the rseq sections while another thread works on its slot.
 *
 * A child process has a worker thread that calls malloc and free for two classes in a loop, and a rival thread
 * that calls operator new and delete, which have their own copies of the sections. Both are bound to one CPU and
 * so share a slot. The tracer sets a breakpoint at each instruction of each section in turn. When the worker hits
 * it, the rival, which is stopped otherwise, runs and changes the slot's words. Then the worker continues: if it
 * was in a section, the kernel must restart the section. Each object carries its owner's mark, so that an object
 * with two owners is detected, and at the end as much memory must be in use as before.
 *
 * Runs on the preloaded object and prints TAP. Usage: step
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD = 6, ROUNDS = 3, PATIENCE = 3000 };
enum { SECTIONS = 7, INSTRUCTIONS = 70 }; /* the least that must be reached */
enum { TRIES = 20 };                      /* to reach an instruction of a section that the worker uses */

static struct shared {
    _Atomic pid_t worker, rival;
    _Atomic bool stop;
    _Atomic unsigned long worker_steps, rival_steps;
    _Atomic bool broken;
    long leaked;
} * shared;

static void mark(unsigned long *object, unsigned long who)
{
    for (int i = 0; i < 8; i++)
        object[i] = who;
}

static void check(const unsigned long *object, unsigned long who)
{
    for (int i = 0; i < 8; i++)
        if (object[i] != who)
            atomic_store(&shared->broken, true);
}

static void work(unsigned long who, _Atomic unsigned long *steps, void *(*take)(size_t), void (*give)(void *))
{
    unsigned long *held[HELD] = {NULL};
    for (unsigned long n = 0; !atomic_load(&shared->stop); n++) {
        unsigned long **slot = &held[n * 7 % HELD];
        if (*slot) {
            check(*slot, who);
            mark(*slot, 0);
            give(*slot);
        }
        *slot = take(n % 3 ? 64 : 2048); /* a cache with two ends, and a LIFO cache */
        mark(*slot, who);
        atomic_fetch_add(steps, 1);
    }
    for (int i = 0; i < HELD; i++)
        give(held[i]);
}

static void *rival(void *unused)
{
    atomic_store(&shared->rival, (pid_t)syscall(SYS_gettid));
    work(0x5151515151515151, &shared->rival_steps, (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm"),
         (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZdlPv"));
    return unused;
}

static void *worker(void *unused)
{
    atomic_store(&shared->worker, (pid_t)syscall(SYS_gettid));
    work(0xaeaeaeaeaeaeaeae, &shared->worker_steps, malloc, free);
    return unused;
}

static void child(void)
{
    cpu_set_t one;
    pthread_t a, b;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    free(malloc(64));
    free(malloc(2048));
    size_t before = mallinfo2().uordblks;
    pthread_create(&a, NULL, worker, NULL);
    pthread_create(&b, NULL, rival, NULL);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    long stacks = 4096; /* libc keeps structures of the threads */
    long grown = (long)mallinfo2().uordblks - (long)before;
    shared->leaked = grown > stacks || grown < -stacks ? grown : 0;
    _exit(0);
}

/* Waits for the worker to stop. Returns its signal, 0 if it made PATIENCE steps first, or -1 if it has ended. */
static int wait_stop(pid_t thread)
{
    unsigned long steps = atomic_load(&shared->worker_steps);
    for (;;) {
        int status;
        pid_t got = waitpid(thread, &status, __WALL | WNOHANG);
        if (got == thread)
            return WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
        if (atomic_load(&shared->worker_steps) > steps + PATIENCE)
            return 0;
        usleep(20);
    }
}

static void halt(pid_t thread)
{
    int status;
    ptrace(PTRACE_INTERRUPT, thread, 0, 0);
    waitpid(thread, &status, __WALL);
}

/* Call it while the worker is stopped and no breakpoint is set: the rival may run the same code. */
static void let_rival_work(void)
{
    unsigned long seen = atomic_load(&shared->rival_steps);
    pid_t thread = atomic_load(&shared->rival);
    ptrace(PTRACE_CONT, thread, 0, 0);
    for (int i = 0; i < 2000 && atomic_load(&shared->rival_steps) < seen + 50; i++)
        usleep(20);
    halt(thread);
}

/*
 * What depends on the CPU: the program counter, the breakpoint, where the counter stands after it, and where the
 * instructions of a section begin.
 */
#ifdef __x86_64__
#define COUNTER          rip
#define BREAKPOINT       0xccl
#define BREAKPOINT_MASK  0xffl
#define AFTER_BREAKPOINT 1
#else
#define COUNTER          pc
#define BREAKPOINT       0xd4200000l /* brk #0 */
#define BREAKPOINT_MASK  0xffffffffl
#define AFTER_BREAKPOINT 0
#define INSTRUCTION      4
#endif

static struct user_regs_struct registers(pid_t thread)
{
    struct user_regs_struct regs = {0};
    struct iovec at = {&regs, sizeof(regs)};
    ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &at);
    return regs;
}

static unsigned long where(pid_t thread)
{
    return registers(thread).COUNTER;
}

static void back_up(pid_t thread, unsigned long address)
{
    struct user_regs_struct regs = registers(thread);
    struct iovec at = {&regs, sizeof(regs)};
    regs.COUNTER = address;
    ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &at);
}

/* Stops the worker at one instruction ROUNDS times. Returns how often it got there, or -1 if it has ended. */
static int stop_at(pid_t thread, unsigned long address)
{
    int hits = 0;
    long word = ptrace(PTRACE_PEEKTEXT, thread, address, 0);
    for (int i = 0; i < ROUNDS; i++) {
        ptrace(PTRACE_POKETEXT, thread, address, (word & ~BREAKPOINT_MASK) | BREAKPOINT);
        ptrace(PTRACE_CONT, thread, 0, 0);
        int signal = wait_stop(thread);
        if (signal < 0)
            return -1;
        if (signal == 0)
            halt(thread);
        bool hit = where(thread) == address + AFTER_BREAKPOINT;
        ptrace(PTRACE_POKETEXT, thread, address, word);
        if (!hit)
            return hits;
        hits++;
        let_rival_work();
        /* In a section, the kernel now sends the thread to the abort handler. */
        back_up(thread, address);
        ptrace(PTRACE_SINGLESTEP, thread, 0, 0);
        if (wait_stop(thread) < 0)
            return -1;
        let_rival_work();
    }
    return hits;
}

/* ---- the sections, found by their descriptors in the preloaded object ---- */

/* The kernel's struct rseq_cs. */
struct descriptor {
    unsigned int version, flags;
    unsigned long start, length, abort;
};

/* Returns the whole file, or NULL. It stays mapped. */
static const char *map_file(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *at =
        fd < 0 || fstat(fd, &status) ? MAP_FAILED : mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Returns the address of the object's ELF section __rseq_cs in memory, and sets the number of its descriptors. */
static const struct descriptor *descriptors(const Dl_info *object, int *count)
{
    const char *file = map_file(object->dli_fname);
    *count = 0;
    if (!file)
        return NULL;
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    const char *names = file + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++)
        if (!strcmp(names + sections[i].sh_name, "__rseq_cs")) {
            *count = (int)(sections[i].sh_size / sizeof(struct descriptor));
            return (const void *)((const char *)object->dli_fbase + sections[i].sh_addr);
        }
    return NULL;
}

/* Stores the addresses of a section's instructions and of the one after its commit. Returns how many they are. */
#ifdef INSTRUCTION
static int instructions(const Dl_info *object, const struct descriptor *section, unsigned long *into, int most)
{
    int n = 0;
    (void)object;
    for (unsigned long at = 0; n < most && at <= section->length; at += INSTRUCTION)
        into[n++] = section->start + at;
    return n;
}
#else
static int instructions(const Dl_info *object, const struct descriptor *section, unsigned long *into, int most)
{
    char command[600], line[256];
    int n = 0;
    unsigned long base = (unsigned long)object->dli_fbase, from = section->start - base;
    snprintf(command, sizeof(command),
             "LD_PRELOAD= objdump -d --no-show-raw-insn --start-address=%#lx --stop-address=%#lx '%s'", from,
             from + section->length + 1, object->dli_fname);
    FILE *f = popen(command, "r");
    while (f && n < most && fgets(line, sizeof(line), f)) {
        char *end;
        unsigned long at = strtoul(line, &end, 16);
        if (*end == ':' && at >= from)
            into[n++] = at + base;
    }
    if (f)
        pclose(f);
    return n;
}
#endif

/* Returns how many of the section's instructions were reached, or -1 if the worker has ended. */
static int stop_everywhere(pid_t thread, const Dl_info *object, const struct descriptor *section, int *count)
{
    unsigned long at[64];
    int reached = 0;
    *count = instructions(object, section, at, 64);
    for (int i = 0; i < *count; i++) {
        int hits = stop_at(thread, at[i]);
        for (int more = 0; !hits && i > 0 && more < TRIES; more++) /* the worker may not have come by */
            hits = stop_at(thread, at[i]);
        if (hits < 0)
            return -1;
        reached += hits > 0;
        if (!hits && i == 0)
            return 0; /* the worker does not use this section */
    }
    return reached;
}

/* Returns whether enough sections and instructions were reached: those that malloc and free of the worker use. */
static bool stop_in_all_sections(pid_t thread)
{
    Dl_info object;
    int sections = 0, total = 0, whole = 0;
    if (!dladdr((void *)malloc, &object))
        return false;
    const struct descriptor *section = descriptors(&object, &sections);
    for (int i = 0; i < sections; i++) {
        int count, reached = stop_everywhere(thread, &object, &section[i], &count);
        if (reached < 0) {
            printf("# the worker ended in section %d at %#lx\n", i,
                   section[i].start - (unsigned long)object.dli_fbase);
            return false;
        }
        printf("# section %d at %#lx: stopped at %d of %d instructions\n", i,
               section[i].start - (unsigned long)object.dli_fbase, reached, count);
        total += reached;
        whole += count > 0 && reached == count;
    }
    printf("# %d of %d sections were reached completely\n", whole, sections);
    return whole >= SECTIONS && total >= INSTRUCTIONS;
}

static int skip(const char *why)
{
    printf("ok 1 stops # SKIP %s\nok 2 owners # SKIP\nok 3 memory in use # SKIP\n", why);
    return 0;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(300);
    printf("1..3\n");
    if (syscall(SYS_rseq, NULL, 0, 0, 0) != 0 && errno == ENOSYS)
        return skip("the kernel has no rseq");
    pid_t pid = fork();
    if (pid == 0)
        child();
    while (!atomic_load(&shared->worker) || atomic_load(&shared->rival_steps) < 100)
        usleep(1000);
    pid_t thread = atomic_load(&shared->worker), other = atomic_load(&shared->rival);
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_SEIZE, other, 0, 0)) {
        kill(pid, SIGKILL);
        return skip("ptrace is not permitted");
    }
    halt(thread);
    halt(other);
    bool stopped = stop_in_all_sections(thread);
    printf("%s 1 the worker stops at each instruction of the sections of pops, pushes and exchanges\n",
           stopped ? "ok" : "not ok");
    bool broken = atomic_load(&shared->broken);
    printf("%s 2 no object has two owners\n", broken ? "not ok" : "ok");
    ptrace(PTRACE_DETACH, thread, 0, 0);
    ptrace(PTRACE_DETACH, other, 0, 0);
    atomic_store(&shared->stop, true);
    int status = -1;
    waitpid(pid, &status, 0);
    bool conserved = status == 0 && shared->leaked == 0;
    printf("%s 3 as much memory is in use as before # %ld bytes\n", conserved ? "ok" : "not ok", shared->leaked);
    return !stopped || broken || !conserved;
}
