#include "process/start.h"
#include "diagnostics/feature/attach.h"
#include "diagnostics/feature/quarantine.h"
#include "diagnostics/feature/guarded_pool.h"
#include "cache/node/node.h"
#include "platform/os/cgroup.h"
#include "platform/os/cpu.h"
#include "platform/os/vm.h"
#include "process/decay.h"
#include "process/fork.h"
#include "process/limit.h"
#include "diagnostics/profile/profile.h"
#include "memory/region/guard.h"
#include "memory/region/huge.h"
#include "cache/slot/span_cache.h"
#include "platform/os/hooks.h"

#define TINY_KEEP     (1ul << 20)
#define FOLD_SELDOM   4096 /* costs next to nothing (docs/design-notes.md) */
#define FOLD_RECORDED 1024 /* a record lags behind by at most so many operations per slot and cache */

static void budget_init(void)
{
    if (sheaf_config.slot_budget)
        return;
    sheaf_config.slot_budget_by_memory = true;
    size_t share = vm_machine_memory() / 64 / cpu_allowed_count;
    sheaf_config.slot_budget = share < (1ul << 20) ? 1ul << 20 : share > (8ul << 20) ? 8ul << 20 : share;
    if (slot_mode == SHEAF_MODE_LOCK) /* several slots per CPU */
        sheaf_config.slot_budget /= 4;
}

/* Pushes (pops of a LIFO cache) until a word's count overflows into the slow path. Sampling needs small counts. */
static uint32_t fold_interval(void)
{
    uint32_t most = sheaf_config.record ? FOLD_RECORDED : FOLD_SELDOM, sample = sheaf_config.harden.sample;
    return sample && sample < most ? sample + (sample == 1) : most;
}

/* Unless the user chose otherwise, keep little free memory resident, and map nothing in steps of 2 MiB. */
static void tiny_init(void)
{
    if (!sheaf_config.chosen.keep)
        sheaf_config.keep = TINY_KEEP;
    sheaf_config.huge = false;
}

static void attach_features(struct kmem_cache *cache, struct cache_shape *shape)
{
    node_attach(cache, shape);
    feature_attach(cache, shape);
    profile_attach(cache, shape);
}

static bool init_locked(void)
{
    unsigned possible, allowed;
    sheaf_configure(&sheaf_config);
    limit_allowed = sheaf_config.helper != HELPER_OFF;
    if (limit_allowed)
        cgroup_sandbox_at_start = cgroup_sandbox();
    cpu_count(&possible, &allowed);
    if (!space_init(possible, sheaf_config.region))
        return false;
    hooks.may_wait = fork_may_wait;
    hooks.attach_features = attach_features;
    hooks.poll = decay_poll;
    hooks.burst_ended = decay_after_burst;
    /* nodes require that each slot is a CPU and so belongs to one node */
    if (sheaf_config.slots != SLOTS_MM_CID)
        numa_init(sheaf_config.numa, sheaf_config.nodes);
    bool by_cpu = sheaf_config.slots == SLOTS_CPU_ID || numa.count > 1;
    /* a section takes any CPU number as its slot; with fewer slots than that, the fallback chooses among them */
    bool rseq = sheaf_config.rseq != RSEQ_OFF && space.slots >= space.possible;
    slot_init(rseq, sheaf_config.rseq == RSEQ_AUTO, true, by_cpu, fold_interval());
    budget_init();
    if (sheaf_config.tiny)
        tiny_init();
    node_init();
    region_init(sheaf_config.keep, sheaf_config.chosen.keep, sheaf_config.decay_ms);
    span_cache_init(sheaf_config.keep, !sheaf_config.harden.large);
    huge_init(sheaf_config.huge && !sheaf_config.harden.guard);
    guard_on = sheaf_config.harden.guard;
    if (sheaf_config.harden.sample)
        pool_init(sheaf_config.harden.sample, !slot_fast);
    if (sheaf_config.harden.quarantine)
        quarantine_init(sheaf_config.harden.quarantine);
    if (sheaf_config.profile)
        profile_switch(sheaf_config.profile);
    return true;
}

bool cache_layer_init(void)
{
    if (__atomic_load_n(&cache_layer_ready, __ATOMIC_ACQUIRE))
        return true;
    /* Before the lock: a process that never starts has no fork handlers, so its child might find the lock held. */
    if (sheaf_steps_aside())
        return false;
    if (!lock_acquire(lock_of(LOCK_SETUP)))
        return false; /* a signal handler that interrupted the start */
    bool before = cache_layer_ready;
    bool done = before || init_locked();
    if (done)
        __atomic_store_n(&cache_layer_ready, true, __ATOMIC_RELEASE);
    lock_release(lock_of(LOCK_SETUP));
    if (done && !before)
        sheaf_started();
    return done;
}
