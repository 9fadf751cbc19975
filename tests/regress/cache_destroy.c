/*
 * kmem_cache_destroy() while another thread, which empties the cache's barn, has just taken a sheaf from it: the
 * objects in that sheaf are not in use. To stop the thread exactly there, a page that the thread must read is made
 * unreadable; its fault starts single-stepping until the barn has changed. Includes internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "platform/config/config.h"
#include "cache/kmem_cache.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { OBJECTS = 5000, CAPACITY = 509, PAGE = 4096 };

/* Without decay, memory is only returned when the test trims. */
void sheaf_configure(struct sheaf_config *config)
{
    config->decay_ms = 0;
}

#if defined(__x86_64__)
#include "asleep.h"

static struct kmem_cache *cache;
static struct barn *barn;
static uint64_t before;
static char *page;
static volatile int taken, destroyed;
static pid_t destroyer;

static void single_step(void *context, bool on)
{
    enum { TRAP_FLAG = 0x100 };
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    *flags = on ? *flags | TRAP_FLAG : *flags & ~TRAP_FLAG;
}

static void at_page(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    must((char *)info->si_addr >= page && (char *)info->si_addr < page + PAGE);
    must(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
    single_step(context, true);
}

static void at_step(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (atomic_load(&barn->full.head) == before)
        return;
    taken = 1;
    while (!destroyed && !asleep(destroyer)) /* if the other thread waits for this one, this one must continue */
        sched_yield();
    single_step(context, false);
}

static void *empty_barn(void *unused)
{
    kmem_cache_shrink(cache);
    return unused;
}

/* Fills the barn with sheaves, each of which starts a page of its own. */
static void fill_barn(void)
{
    static void *objects[OBJECTS];
    struct kmem_cache_args args = {.sheaf_capacity = CAPACITY};
    cache = kmem_cache_create("short", 64, &args, 0);
    must(cache);
    for (int i = 0; i < OBJECTS; i++)
        must((objects[i] = kmem_cache_alloc(cache, 0)));
    for (int i = 0; i < OBJECTS; i++)
        kmem_cache_free(cache, objects[i]);
    unsigned domain = 0;
    while (!sheaf_stack_holds(&cache_barn(cache, domain)->full))
        must(++domain < DOMAINS);
    barn = cache_barn(cache, domain);
    before = atomic_load(&barn->full.head);
    page = (char *)sheaf_at((uint32_t)before);
    must((uintptr_t)page % PAGE == 0);
}

CASE(kmem_cache_destroy_while_a_barn_is_emptied)
{
    if (sysconf(_SC_PAGESIZE) != PAGE)
        _exit(CASE_SKIPPED);
    fill_barn();
    destroyer = getpid();
    struct sigaction action = {.sa_sigaction = at_page, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL) == 0);
    action.sa_sigaction = at_step;
    must(sigaction(SIGTRAP, &action, NULL) == 0);
    pthread_t thread;
    must(mprotect(page, PAGE, PROT_NONE) == 0);
    must(pthread_create(&thread, NULL, empty_barn, NULL) == 0);
    while (!taken)
        sched_yield();
    must(kmem_cache_destroy(cache) == 0);
    destroyed = 1;
    must(pthread_join(thread, NULL) == 0);
}

#else

CASE(kmem_cache_destroy_while_a_barn_is_emptied)
{
    _exit(CASE_SKIPPED);
}

#endif
