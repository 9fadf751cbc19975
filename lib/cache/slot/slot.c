#define _GNU_SOURCE
#include "cache/slot/slot.h"
#include "platform/os/cpu.h"
#include "platform/os/numa.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"
#include "platform/rseq/own.h"
#include "memory/space/locks.h"

#include <sched.h>
#include <signal.h>

#define FEW_CPUS 8 /* up to here one domain: several would gain less than cpuid costs */

const uint16_t class_sizes[CACHE_CLASSES] = {
#define CLASS(size) size,
#include "cache/slot/spacing.def"
};

enum sheaf_mode slot_mode;
bool slot_by_cid, slot_fast;
uint32_t slot_fold_start;

static const struct slot_head none = {.lowest = UINTPTR_MAX};
#define NONE (uintptr_t) & none
struct rseq_roots rseq_roots __attribute__((aligned(64))) = {.cid_base = NONE, .cpu_base = NONE, .cxx_base = NONE};

static unsigned lock_slots;                  /* without rseq: threads use slots below this */
static bool lock_slots_of_nodes;             /* whether slot s belongs to node s % numa.count */
static large_table uint8_t cpu_domain[8192]; /* one more than the domain, 0 while unknown */
static unsigned domain_llc[DOMAINS];
static _Atomic unsigned domains;

void slot_init(bool rseq, bool own, bool want_cid, bool cpu_id_only, uint32_t fold_interval)
{
    struct slot_head *head = slot_head(0);
    *sheaf_entry((struct end){0}) = *sheaf_entry((struct end){END_CLAIMED}) = (void *)sheaf_full_mark();
    enum rseq_owner owner = rseq ? rseq_probe(own, want_cid && !cpu_id_only, &head->area, &slot_by_cid) : RSEQ_NONE;
    slot_mode = owner == RSEQ_NONE  ? SHEAF_MODE_LOCK
                : owner == RSEQ_OWN ? SHEAF_MODE_RSEQ_OWN
                : slot_by_cid       ? SHEAF_MODE_RSEQ_MM_CID
                                    : SHEAF_MODE_RSEQ_CPU_ID;
    /* the slot behind the last one is readable, and stays unused */
    slot_fast = owner == RSEQ_LIBC || (owner == RSEQ_OWN && own_reserve(&head->area, space.slots));
    counters_area = slot_fast ? &head->area : NULL;
    rseq_roots.area = head->area;
    slot_fold_start = 0u - fold_interval;
    /* more slots than threads that run at once, so that few meet a preempted holder; each slot keeps objects */
    unsigned enough = 4 * cpu_allowed_count < 8 ? 8 : 4 * cpu_allowed_count > 64 ? 64 : 4 * cpu_allowed_count;
    enough = numa.count > enough ? numa.count : enough;
    lock_slots = space.slots < enough ? space.slots : enough;
    if (slot_mode == SHEAF_MODE_LOCK && !space_open_slots(lock_slots))
        lock_slots = atomic_load(&space.slots_open);
    lock_slots_of_nodes = numa.count > 1 && lock_slots >= numa.count;
}

/* ---- without rseq: the same words behind a lock that is tried, never waited for ---- */

static noinline_cold unsigned hashed_slot_of_node(unsigned hash)
{
    unsigned cpu;
    return (unsigned)(hash % (lock_slots / numa.count) * numa.count + numa_here(&cpu));
}

static unsigned hashed_slot(void)
{
    uint64_t self = (uint64_t)(uintptr_t)__builtin_thread_pointer() >> 6;
    unsigned hash = (unsigned)((self * 0x9e3779b97f4a7c15ull) >> 32);
    return unlikely(lock_slots_of_nodes) ? hashed_slot_of_node(hash) : hash % lock_slots;
}

/*
 * A slot's lock is held for a few instructions. An operation that finds it held, by a preempted thread or by the code
 * that its signal handler interrupted, takes the slow path instead of waiting.
 */
static bool slot_try_lock(unsigned slot)
{
    return !atomic_load_explicit(&slot_head(slot)->lock, memory_order_relaxed) &&
           !atomic_exchange_explicit(&slot_head(slot)->lock, 1, memory_order_acquire);
}

static void slot_unlock(unsigned slot)
{
    atomic_store_explicit(&slot_head(slot)->lock, 0, memory_order_release);
}

#define SHUT_TRIES 50 /* most preempted holders run again before; if not, the slot is skipped this time */
bool slot_shut(unsigned slot)
{
    for (int i = 0; i < SHUT_TRIES; i++) {
        if (slot_try_lock(slot))
            return true;
        sched_yield();
    }
    return false;
}

void slot_open(unsigned slot)
{
    slot_unlock(slot);
}

static void *locked_pop(struct word_id id, bool local, bool lifo)
{
    unsigned slot = hashed_slot();
    if (!slot_try_lock(slot))
        return NULL;
    uint32_t distance = local ? atomic_load_explicit(&slot_head(slot)->local, memory_order_relaxed) : 0;
    uint64_t *top = &slot_words(slot, (struct word_id){id.at + distance})->top;
    void *object = sheaf_entry(top_pop_end(*top))[-1];
    if (object && lifo && top_full_count(*top))
        object = NULL;
    if (object)
        *top += lifo ? (1ull << 32) - 8 : -8ull; /* no borrow: an end that leads to an object is larger than 8 */
    slot_unlock(slot);
    return object;
}

static bool locked_push(struct push_id id, void *object)
{
    unsigned slot = hashed_slot();
    if (!slot_try_lock(slot))
        return false;
    uint32_t *end = slot_push_end(slot, id);
    void **at = sheaf_entry((struct end){*end});
    bool room = (uintptr_t)at[0] != sheaf_full_mark() && at[-1] != object && at[-2] != object;
    if (room) {
        *at = object;
        *end += 8;
    }
    slot_unlock(slot);
    return room;
}

static bool locked_install(unsigned slot, uint64_t *top, uint64_t old, uint64_t new)
{
    if (!slot_try_lock(slot))
        return false;
    bool same = *top == old;
    if (same)
        *top = new;
    slot_unlock(slot);
    return same;
}

static bool locked_exchange(unsigned slot, uint64_t *top, uint64_t old, const struct attached_sheaf *from,
                            struct attached_sheaf *to, unsigned n)
{
    if (!slot_try_lock(slot))
        return false;
    uint32_t pushes; /* the word of `to` must stay if this fails (cache/ends.c) */
    bool same = *top == old && !__builtin_add_overflow(from->pushes, n, &pushes);
    if (same) {
        to->pushes = pushes;
        to->total = from->total; /* the capacities are equal */
        *top = old >> 32 | old << 32;
    }
    slot_unlock(slot);
    return same;
}

/* ---- pausing the fast paths ---- */

bool slot_paused;
static size_t paused_limit;
static bool refused; /* a thread could not register its area: no thread counts by sections any more */

static void set_limits(struct slot_head *head, bool paused)
{
    write_once(slot_paused, paused);
    write_once(head->limit, paused ? 0 : paused_limit);
    space_publish_lowest(paused ? NULL : &head->lowest);
    if (paused)
        write_once(head->lowest, UINTPTR_MAX);
    write_once(counters_area, paused || read_once(refused) ? NULL : &head->area);
}

/*
 * While `limit` is 0 and `lowest` is the highest number, every fast path misses; the addresses that it starts from
 * stay valid, so a thread that has just read an old value goes on. It may: it is not foreign. Counters change from
 * additions on the own slot to atomic ones; of those, a thread that is between its look at counters_area and the
 * addition may lose one.
 *
 * The region's lock keeps resumptions away. A signal handler to which it is refused goes on without: growth of the
 * region looks again (publish_lowest() in memory/space/space.c), and so does a resumption that is under way.
 */
void slot_pause_fast(void)
{
    struct slot_head *head = slot_head(0);
    if (!slot_fast)
        return;
    bool locked = lock_acquire(lock_of(LOCK_REGION));
    if (read_once(head->limit))
        paused_limit = head->limit;
    atomic_thread_fence(memory_order_seq_cst); /* pairs with slot_resume_fast(): tests/litmus/pause.litmus */
    set_limits(head, true);
    if (locked)
        lock_release(lock_of(LOCK_REGION));
}

/*
 * A thread that is about to be foreign is counted before it pauses. So this thread sees the count, before or after it
 * has resumed, or the pause comes later.
 */
void slot_resume_fast(void)
{
    struct slot_head *head = slot_head(0);
    uint64_t all = ~0ull, mask = 0;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, sizeof(mask), 0, 0);
    if (lock_acquire(lock_of(LOCK_REGION))) {
        if (slot_paused && !atomic_load(&foreign_threads)) {
            set_limits(head, false);
            atomic_thread_fence(memory_order_seq_cst);
            if (atomic_load(&foreign_threads))
                set_limits(head, true);
        }
        lock_release(lock_of(LOCK_REGION));
    }
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
}

/* ---- in every mode ---- */

/* At its end, a thread has no registration either, but others need not care. */
static noinline_cold bool note_refused(void)
{
    if (own_refused()) {
        write_once(refused, true);
        write_once(counters_area, NULL);
    }
    return false;
}

/* Whether the calling thread may run sections. */
static bool ready(void)
{
    return likely(!foreign_here()) && (slot_mode != SHEAF_MODE_RSEQ_OWN || own_registered() || note_refused());
}

unsigned slot_current(void)
{
    if (slot_mode == SHEAF_MODE_LOCK)
        return hashed_slot();
    unsigned slot = ready() ? rseq_slot(&slot_head(0)->area) : 0;
    return slot < space.slots ? slot : 0;
}

void *slot_pop(struct word_id id, bool lifo)
{
    if (slot_mode == SHEAF_MODE_LOCK)
        return locked_pop(id, false, lifo);
    if (!ready())
        return NULL;
    return lifo ? rseq_pop_lifo(space.base, id) : rseq_pop(space.base, id);
}

void *slot_pop_local(struct word_id id, bool lifo)
{
    if (slot_mode == SHEAF_MODE_LOCK)
        return locked_pop(id, true, lifo);
    if (!ready())
        return NULL;
    return lifo ? rseq_pop_lifo_local(space.base, id) : rseq_pop_local(space.base, id);
}

bool slot_push(struct push_id id, void *object)
{
    if (slot_mode == SHEAF_MODE_LOCK)
        return locked_push(id, object);
    return ready() && rseq_push(space.base, id, object);
}

bool slot_install(unsigned slot, struct word_id id, uint64_t old, uint64_t new)
{
    uint64_t *top = &slot_words(slot, id)->top;
    if (slot_mode == SHEAF_MODE_LOCK)
        return locked_install(slot, top, old, new);
    return ready() && rseq_install(&slot_head(0)->area, slot, top, old, new);
}

bool slot_exchange(unsigned slot, struct word_id id, uint64_t top, const struct attached_sheaf *from,
                   struct attached_sheaf *to, unsigned n)
{
    uint64_t *word = &slot_words(slot, id)->top;
    if (slot_mode == SHEAF_MODE_LOCK)
        return locked_exchange(slot, word, top, from, to, n);
    return ready() && rseq_exchange(&slot_head(0)->area, slot, word, top, from, to, n);
}

unsigned slot_counting(void)
{
    unsigned slot = slot_current();
    return likely(slot_enter(slot)) ? slot : 0;
}

unsigned slot_reachable(unsigned cpus)
{
    unsigned reached = slot_mode == SHEAF_MODE_LOCK ? lock_slots : cpus; /* there are never more mm_cids than CPUs */
    return reached < space.slots ? reached : space.slots;
}

/* ---- domains ---- */

static unsigned domain_of_llc(unsigned llc)
{
    unsigned n = atomic_load(&domains);
    for (unsigned i = 0; i < n && i < DOMAINS; i++)
        if (domain_llc[i] == llc)
            return i;
    n = atomic_fetch_add(&domains, 1);
    if (n >= DOMAINS) {
        atomic_store(&domains, DOMAINS);
        return llc % DOMAINS;
    }
    domain_llc[n] = llc;
    return n;
}

unsigned slot_domains(void)
{
    unsigned n = atomic_load_explicit(&domains, memory_order_acquire);
    return n > DOMAINS ? DOMAINS : n ? n : 1;
}

/* Barns of malloc's caches for domains beyond the first are only readable until there is a second domain. */
static bool domain_usable(unsigned domain)
{
    return !domain || space_open_caches(0);
}

/* Two CPUs that call this at once may make two domains of one last-level cache, which costs some sharing. */
unsigned slot_domain(void)
{
    if (likely(space.slots <= FEW_CPUS) || cpu_allowed_count <= FEW_CPUS)
        return 0;
    unsigned cpu = cpu_current();
    if (cpu >= array_size(cpu_domain))
        return 0;
    if (!cpu_domain[cpu]) {
        unsigned domain = domain_of_llc(cpu_llc());
        if (!domain_usable(domain))
            return 0;
        cpu_domain[cpu] = (uint8_t)(domain + 1);
    }
    return cpu_domain[cpu] - 1u;
}
