#define _GNU_SOURCE
#include "os.h"
#include "../must.h"
#include "platform/os/cpu.h"
#include "platform/os/numa.h"
#include "platform/os/random.h"
#include "platform/os/stack.h"
#include "platform/os/vm.h"

#include <sys/mman.h>
#include <time.h>

#define LOG_ENTRIES 65536

_Atomic uint64_t vm_failures;
bool vm_staged;
struct numa numa = {.count = 1};
unsigned cpu_allowed_count = 4;

size_t os_page;
size_t os_mapped, os_room = SIZE_MAX, os_limit = SIZE_MAX;
uint64_t os_memory = 16ull << 30;
bool os_overcommit_off, os_stages, os_quiet;
uint32_t os_now_ms = 1000000;
unsigned os_cpu, os_cpus = 4, os_llc_cpus = 4;
uintptr_t os_stack[16];
unsigned os_stack_depth;
void (*os_hook)(enum os_call call, void *at, size_t size);

/* ---- the log, and what is refused ---- */

static struct os_entry entries[LOG_ENTRIES];
static _Atomic unsigned logged;

static struct {
    unsigned wait, times;
} refused[OS_CALLS];

void os_refuse(enum os_call call, unsigned nth, unsigned times)
{
    refused[call].wait = nth - 1;
    refused[call].times = times;
}

void os_grant(void)
{
    memset(refused, 0, sizeof(refused));
}

void os_clear(void)
{
    logged = 0;
}

unsigned os_count(enum os_call call)
{
    unsigned n = 0;
    for (unsigned i = 0; i < logged; i++)
        n += entries[i].call == call;
    return n;
}

const struct os_entry *os_entry(enum os_call call, unsigned index)
{
    for (unsigned i = 0; i < logged; i++)
        if (entries[i].call == call && !index--)
            return &entries[i];
    must(!"the call was made");
    return NULL;
}

bool os_covered(enum os_call call, const void *at, size_t size)
{
    uintptr_t from = (uintptr_t)at;
    for (unsigned i = 0; i < logged; i++)
        if (entries[i].call == call && entries[i].at <= from && from + size <= entries[i].at + entries[i].size)
            return true;
    return false;
}

static bool granted(enum os_call call)
{
    if (refused[call].wait) {
        refused[call].wait--;
        return true;
    }
    if (!refused[call].times)
        return true;
    if (refused[call].times != OS_ALWAYS)
        refused[call].times--;
    return false;
}

static bool note(enum os_call call, const void *at, size_t size, bool done)
{
    unsigned i = os_quiet ? 0 : logged++;
    must(i < LOG_ENTRIES);
    entries[i] = (struct os_entry){.call = call, .done = done, .at = (uintptr_t)at, .size = size};
    if (!done)
        atomic_fetch_add(&vm_failures, 1);
    return done;
}

/* ---- other mappings of the program ---- */

static unsigned char pattern(size_t i)
{
    return (unsigned char)(i * 167 + 13);
}

void os_block(void *at, size_t size)
{
    unsigned char *p =
        mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    must(p == at);
    for (size_t i = 0; i < size; i++)
        p[i] = pattern(i);
}

bool os_intact(const void *at, size_t size)
{
    const unsigned char *p = at;
    for (size_t i = 0; i < size; i++)
        if (p[i] != pattern(i))
            return false;
    return true;
}

/* ---- platform/os/vm.h ---- */

/* A larger page than the machine's is larger for the caller alone: what a system with such pages refuses ends the
 * test. */
__attribute__((constructor)) static void choose_page(void)
{
    const char *page = getenv("LAYER_PAGE");
    os_page = page ? strtoul(page, NULL, 10) : (size_t)sysconf(_SC_PAGESIZE);
}

/* The system takes addresses that begin a page, and any size, which it rounds up. */
static size_t whole_pages(const void *at, size_t size)
{
    must((uintptr_t)at % os_page == 0);
    return round_up(size, os_page);
}

static void *map_real(void *at, size_t size, int prot, int flags)
{
    void *p = mmap(at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void account(size_t more)
{
    os_mapped += more;
    if (os_room != SIZE_MAX)
        os_room -= more;
}

size_t vm_page_size(void)
{
    return os_page;
}

uint64_t vm_machine_memory(void)
{
    return os_memory;
}

size_t vm_limit(void)
{
    return os_limit;
}

static enum vm_extent extend(enum os_call call, void *at, size_t size, int prot)
{
    size_t whole = whole_pages(at, size);
    if (os_hook)
        os_hook(call, at, size);
    bool done = granted(call) && size <= os_room;
    if (done && !map_real(at, whole, prot, MAP_FIXED_NOREPLACE)) {
        must(errno == EEXIST);
        note(call, at, size, false);
        return VM_TAKEN;
    }
    if (done)
        account(size);
    return note(call, at, size, done) ? VM_EXTENDED : VM_REFUSED;
}

enum vm_extent vm_extend(void *at, size_t size)
{
    return extend(OS_EXTEND, at, size, PROT_READ | PROT_WRITE);
}

enum vm_extent vm_extend_readable(void *at, size_t size)
{
    return extend(OS_EXTEND_READABLE, at, size, PROT_READ);
}

enum vm_extent vm_extend_staged(void *at, size_t size)
{
    enum vm_extent done = vm_staged ? VM_REFUSED : vm_extend(at, size);
    if (done != VM_REFUSED || (!vm_staged && !os_stages))
        return done;
    done = vm_extend_readable(at, size);
    vm_staged |= done == VM_EXTENDED;
    return done;
}

bool vm_grants(size_t size)
{
    return note(OS_GRANTS, NULL, size, granted(OS_GRANTS) && size <= os_room);
}

bool vm_promises(size_t size)
{
    (void)size;
    return true;
}

bool vm_commit(void *addr, size_t size)
{
    bool done = granted(OS_COMMIT);
    if (done && vm_staged) {
        uintptr_t from = (uintptr_t)addr & ~(os_page - 1);
        must(!mprotect((void *)from, round_up((uintptr_t)addr + size, os_page) - from, PROT_READ | PROT_WRITE));
    }
    return note(OS_COMMIT, addr, size, done);
}

void *vm_map(size_t size, size_t align)
{
    size_t extra = align > os_page ? align : os_page, whole = round_up(size, os_page);
    char *at = NULL;
    if (granted(OS_MAP) && size <= os_room)
        at = map_real(NULL, whole + extra, PROT_READ | PROT_WRITE, 0);
    if (at) {
        char *start = (char *)round_up((uintptr_t)at, extra);
        must(start == at || !munmap(at, (size_t)(start - at)));
        must(!munmap(start + whole, (size_t)(at + extra - start)));
        at = start;
        account(size);
    }
    note(OS_MAP, at, size, at);
    return at;
}

void *vm_map_staged(size_t size, size_t align)
{
    return vm_map(size, align);
}

bool vm_unmap(void *addr, size_t size)
{
    bool done = granted(OS_UNMAP);
    if (done) {
        must(!munmap(addr, whole_pages(addr, size)));
        account(-size);
    }
    return note(OS_UNMAP, addr, size, done);
}

bool vm_resize(void *at, size_t old, size_t size, void *to)
{
    bool done = granted(OS_RESIZE);
    whole_pages(to, 0);
    if (done)
        done = mremap(at, whole_pages(at, old), whole_pages(at, size), to ? MREMAP_MAYMOVE | MREMAP_FIXED : 0, to) !=
               MAP_FAILED;
    if (done)
        account(to ? -old : size - old);
    return note(OS_RESIZE, at, size, done);
}

bool vm_discard(void *addr, size_t size)
{
    if (os_hook)
        os_hook(OS_DISCARD, addr, size);
    bool done = granted(OS_DISCARD);
    must(!done || !madvise(addr, whole_pages(addr, size), MADV_DONTNEED));
    return note(OS_DISCARD, addr, size, done);
}

bool vm_overcommit_off(void)
{
    return os_overcommit_off;
}

/* Memory that is uncommitted can be read, and written only after vm_commit(). */
bool vm_uncommit(void *addr, size_t size)
{
    bool done = vm_discard(addr, size);
    must(!done || !vm_staged || !mprotect(addr, whole_pages(addr, size), PROT_READ));
    return done;
}

bool vm_reopen(void *addr, size_t size)
{
    bool done = vm_open(addr, size);
    must(!done || !vm_staged || !mprotect(addr, whole_pages(addr, size), PROT_READ));
    return done;
}

bool vm_close(void *addr, size_t size)
{
    bool done = granted(OS_CLOSE);
    must(!done || !mprotect(addr, whole_pages(addr, size), PROT_NONE));
    return note(OS_CLOSE, addr, size, done);
}

bool vm_open(void *addr, size_t size)
{
    bool done = granted(OS_OPEN);
    must(!done || !mprotect(addr, whole_pages(addr, size), PROT_READ | PROT_WRITE));
    return note(OS_OPEN, addr, size, done);
}

void vm_advise_huge(void *addr, size_t size, bool huge)
{
    note(huge ? OS_HUGE : OS_PLAIN, addr, size, true);
}

/* ---- clock, CPUs, nodes, random numbers, stacks ---- */

/* All of lib/ reads the time through this. The clock of a thread stands still. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    uint32_t ms = clock == CLOCK_THREAD_CPUTIME_ID ? 0 : os_now_ms;
    now->tv_sec = ms / 1000;
    now->tv_nsec = ms % 1000 * 1000000;
    return 0;
}

void cpu_count(unsigned *possible, unsigned *allowed)
{
    *possible = *allowed = os_cpus;
}

unsigned cpu_current(void)
{
    return os_cpu;
}

unsigned cpu_llc(void)
{
    return os_cpu / os_llc_cpus;
}

unsigned numa_here(unsigned *cpu)
{
    *cpu = os_cpu;
    return os_cpu % numa.count;
}

void numa_place(void *at, size_t size, unsigned index)
{
    note(OS_PLACE, at, size, true);
    entries[logged - 1].node = index;
}

void numa_interleave(void *at, size_t size)
{
    note(OS_INTERLEAVE, at, size, true);
}

/* The same numbers in each span. */
uint64_t random_next(void)
{
    static uint64_t n;
    return random_mix(n++);
}

#ifdef SHEAF_CHECKING
bool stack_in_handler(void)
{
    return false;
}
#endif

unsigned stack_walk(uintptr_t *pcs, unsigned most)
{
    unsigned n = os_stack_depth < most ? os_stack_depth : most;
    memcpy(pcs, os_stack, n * sizeof(*pcs));
    return n;
}
