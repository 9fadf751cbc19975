#define _GNU_SOURCE
#include "platform/os/foreign.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"

#include <errno.h>
#include <signal.h>

_Atomic uint32_t foreign_threads;

#define MOST     1024
#define STARTING UINT32_MAX /* more than any thread number */

/*
 * An entry belongs to the thread that changes its state from FREE or LIVE to BUSY by compare-and-swap, until it
 * stores FREE or LIVE. It is counted in foreign_threads while it is LIVE, and before. Only the thread itself and the
 * kernel write `thread` of a LIVE entry.
 */
enum { FREE, BUSY, LIVE };

struct entry {
    _Atomic uint32_t thread; /* its number in its own namespace, STARTING, or 0 at its end */
    _Atomic uint32_t state;
    _Atomic uintptr_t pointer; /* its thread pointer */
    _Atomic uint64_t parent;
    _Atomic uint32_t number, of; /* its number for the process `of`; 0: the kernel clears `thread` */
};
static struct entry *_Atomic entries; /* MOST, mapped by the first foreign_add() */
static _Atomic uint32_t entries_end;  /* no entry from here on was ever taken */

static struct entry *entry_of(_Atomic uint32_t *word)
{
    return (struct entry *)(void *)word;
}
_Static_assert(offsetof(struct entry, thread) == 0, "the word of an entry is its start");

/*
 * A system call is needed only where the thread pointer does not tell. Where two threads in different namespaces have
 * the same number and the same thread pointer, each is taken for foreign, with one name.
 */
uint64_t foreign_find(void)
{
    uintptr_t pointer = (uintptr_t)__builtin_thread_pointer();
    uint32_t self = 0, end = atomic_load_explicit(&entries_end, memory_order_relaxed);
    for (uint32_t i = 0; i < end; i++) {
        uintptr_t known = atomic_load_explicit(&entries[i].pointer, memory_order_relaxed);
        if ((known != pointer && known != FOREIGN_ANY_POINTER) ||
            !atomic_load_explicit(&entries[i].thread, memory_order_relaxed))
            continue;
        self = self ? self : (uint32_t)sys_call3(SYS_gettid, 0, 0, 0);
        if (atomic_load_explicit(&entries[i].thread, memory_order_relaxed) == self)
            return 1ull << 63 | (uint64_t)(i + 1) << 4; /* the low bits are those of a lock */
    }
    return 0;
}

/* Two threads, or a thread and its signal handler, may map the entries at once; one of the mappings stays. */
static struct entry *map_entries(void)
{
    struct entry *here = atomic_load(&entries);
    if (here || !(here = vm_map(MOST * sizeof(*here), 1)))
        return here;
    struct entry *before = NULL;
    if (atomic_compare_exchange_strong(&entries, &before, here))
        return here;
    vm_unmap(here, MOST * sizeof(*here));
    return before;
}

static void raise_end(uint32_t end)
{
    uint32_t seen = atomic_load(&entries_end);
    while (seen < end && !atomic_compare_exchange_weak(&entries_end, &seen, end)) {
    }
}

static bool claim(struct entry *entry, uint32_t from)
{
    return atomic_load_explicit(&entry->state, memory_order_relaxed) == from &&
           atomic_compare_exchange_strong(&entry->state, &from, BUSY);
}

static void release(struct entry *entry)
{
    atomic_store(&entry->thread, 0);
    atomic_store(&entry->state, FREE);
    atomic_fetch_sub(&foreign_threads, 1);
}

_Atomic uint32_t *foreign_add(uintptr_t pointer, uint64_t parent, unsigned most)
{
    struct entry *first = map_entries();
    for (int try = 0; first && try < 2; try++) {
        for (unsigned i = 0; i < most && i < MOST; i++) {
            struct entry *entry = &first[i];
            if (!claim(entry, FREE))
                continue;
            raise_end(i + 1);
            atomic_store(&entry->pointer, pointer);
            atomic_store(&entry->parent, parent);
            atomic_store(&entry->number, 0);
            atomic_store(&entry->thread, STARTING);
            atomic_fetch_add(&foreign_threads, 1);
            atomic_store(&entry->state, LIVE);
            return &entry->thread;
        }
        foreign_sweep();
    }
    return NULL;
}

void foreign_begin(_Atomic uint32_t *word)
{
    atomic_store(word, (uint32_t)sys_call3(SYS_gettid, 0, 0, 0));
}

static uint32_t own_process(void)
{
    return (uint32_t)sys_call3(SYS_getpid, 0, 0, 0);
}

void foreign_made(_Atomic uint32_t *word, uint32_t number)
{
    atomic_store(&entry_of(word)->of, own_process());
    atomic_store(&entry_of(word)->number, number);
}

/* If a sweep has claimed the entry, that or a later one releases it. */
void foreign_remove(_Atomic uint32_t *word)
{
    atomic_store(word, 0);
    if (claim(entry_of(word), LIVE))
        release(entry_of(word));
}

/* Nobody else frees these entries, so one that is found here is still the same. */
void foreign_remove_of(uint64_t parent)
{
    for (unsigned i = 0; i < atomic_load(&entries_end); i++)
        if (atomic_load(&entries[i].parent) == parent && atomic_load(&entries[i].state) != FREE)
            foreign_remove(&entries[i].thread);
}

/* Signal 0 only asks whether there is such a thread. Numbers mean something in their own process namespace only. */
static bool has_ended(const struct entry *entry)
{
    uint32_t number = atomic_load(&entry->number);
    if (!atomic_load(&entry->thread))
        return true;
    return number && atomic_load(&entry->of) == own_process() && sys_call3(SYS_tkill, (long)number, 0, 0) == -ESRCH;
}

bool foreign_sweep(void)
{
    for (unsigned i = 0; i < atomic_load(&entries_end); i++) {
        if (!claim(&entries[i], LIVE))
            continue;
        if (has_ended(&entries[i]))
            release(&entries[i]);
        else
            atomic_store(&entries[i].state, LIVE);
    }
    return !atomic_load(&foreign_threads);
}

void foreign_fork_child(bool stays)
{
    for (unsigned i = 0; i < atomic_load(&entries_end); i++)
        if (atomic_load(&entries[i].state) != FREE) { /* a write would copy the page */
            atomic_store(&entries[i].thread, 0);
            atomic_store(&entries[i].state, FREE);
        }
    atomic_store(&foreign_threads, 0);
    _Atomic uint32_t *word = stays ? foreign_add(FOREIGN_ANY_POINTER, 0, MOST) : NULL;
    if (word)
        foreign_begin(word);
}
