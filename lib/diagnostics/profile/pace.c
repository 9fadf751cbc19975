#include "diagnostics/profile/pace.h"
#include "platform/os/clock.h"
#include "platform/os/vm.h"
#include "memory/space/space.h"

/* Two threads may update an entry at once: a change of the level is then late. */
struct slot_pace {
    _Atomic uint32_t since_ms, spent_ns;
    _Atomic uint32_t level; /* the pressure and, beyond PACE_PRESSURE, the exponent */
} cache_aligned;
static struct slot_pace *slots;
#define MOST_NS 1000000000u /* of one sample: `spent_ns` does not wrap around within a window */

bool pace_start(void)
{
    return vm_map_once((void **)&slots, space.slots * sizeof(*slots));
}

static void begin_window(unsigned slot, uint32_t now, unsigned level)
{
    atomic_store_explicit(&slots[slot].level, level, memory_order_relaxed);
    atomic_store_explicit(&slots[slot].spent_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slots[slot].since_ms, now, memory_order_relaxed);
}

/* The next lower level takes at most twice as many samples, so it is chosen when these would still be cheap enough.
 */
static void reconsider(unsigned slot, uint32_t now)
{
    uint32_t elapsed = now - atomic_load_explicit(&slots[slot].since_ms, memory_order_relaxed);
    unsigned level = atomic_load_explicit(&slots[slot].level, memory_order_relaxed);
    uint64_t spent = atomic_load_explicit(&slots[slot].spent_ns, memory_order_relaxed);
    uint64_t window = elapsed > PACE_WINDOW_MS ? elapsed : PACE_WINDOW_MS;
    uint64_t allowed = 1000 * sheaf_config.profile_cost * window; /* nanoseconds: per mille of milliseconds */
    if (spent > allowed && level < PACE_PRESSURE + PACE_SLOWEST)
        begin_window(slot, now, level + 1);
    else if (elapsed >= PACE_WINDOW_MS)
        begin_window(slot, now, level && 3 * spent < allowed ? level - 1 : level);
}

struct pace_slot pace_of_slot(unsigned slot)
{
    unsigned level = atomic_load_explicit(&slots[slot].level, memory_order_relaxed);
    if (likely(!level) || !sheaf_config.profile_cost)
        return (struct pace_slot){0, 0};
    reconsider(slot, clock_ms());
    level = atomic_load_explicit(&slots[slot].level, memory_order_relaxed);
    return (struct pace_slot){.pressure = level < PACE_PRESSURE ? level : PACE_PRESSURE,
                              .exponent = level < PACE_PRESSURE ? 0 : level - PACE_PRESSURE};
}

void pace_spent(unsigned slot, uint32_t now, uint64_t ns)
{
    if (!sheaf_config.profile_cost)
        return;
    atomic_fetch_add_explicit(&slots[slot].spent_ns, (uint32_t)(ns < MOST_NS ? ns : MOST_NS), memory_order_relaxed);
    reconsider(slot, now);
}
