#include "diagnostics/profile/profile.h"
#include "platform/os/clock.h"
#include "diagnostics/profile/area.h"
#include "diagnostics/profile/sampler.h"
#include "diagnostics/profile/object.h"
#include "diagnostics/profile/pace.h"
#include "diagnostics/profile/script.h"
#include "diagnostics/profile/take.h"
#include "diagnostics/profile/walked.h"
#include "memory/space/mapped.h"

bool profile_on;
_Atomic uint32_t profile_mapped;

bool profile_switch(uint64_t rate)
{
    if (rate && !(area_start() && profile_objects_start() && pace_start() && sampler_start(rate)))
        return false;
    if (rate) {
        walked_start();
        profile_objects_forget();
    }
    area_switched(rate);
    __atomic_store_n(&profile_on, rate != 0, __ATOMIC_RELEASE);
    if (rate)
        for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
            if (cache_in_use(cache_at(i)) && cache_is_class(cache_at(i)))
                profile_attach_objects(cache_at(i));
    return true;
}

void profile_fork_child(void)
{
    area_fork_child();
    walked_fork_child();
    script_fork_child();
    sampler_forget();
    profile_objects_forget();
}

/* ---- large blocks ---- */

static size_t room_of(const void *p, size_t n)
{
    size_t room = in_region(p) ? (size_t)slice_at(slice_of(p))->length << SLICE_SHIFT : round_up(n, space.page_size);
    return room > n ? room : n;
}

/* Draws for the next block below the rate. Returns the exponent with which this one was drawn. */
static unsigned draw_next(unsigned slot)
{
    struct pace *pace = profile_pace_of_large(slot);
    struct pace_slot all = pace_of_slot(slot);
    unsigned drawn = sampler_slower(slot);
    pace_note(pace, clock_ms(), PACE_DRAWN >> all.pressure);
    sampler_draw(slot, pace_slower(pace, all));
    return drawn;
}

/* What was drawn in a hurry is drawn again once there is none: the distribution is memoryless. */
static void relax(unsigned slot)
{
    struct pace *pace = profile_pace_of_large(slot);
    struct pace_slot all = pace_of_slot(slot);
    if (pace_relax(pace, clock_ms(), PACE_DRAWN >> all.pressure))
        sampler_draw(slot, pace_slower(pace, all));
}

void profile_large(void *p, size_t n)
{
    struct take take;
    unsigned slot = slot_current(), slower = 0;
    bool always = sampler_always(n);
    if (!always && unlikely(sampler_slower(slot)) && unlikely(sampler_tick(slot, n)))
        relax(slot);
    if (!always && !sampler_hit(slot, n))
        return;
    if (!always)
        slower = draw_next(slot);
    double weight = always ? 1 : 1 / sampler_probability(n, slower);
    if (!take_begin(&take, slot, always ? STRATUM_ALWAYS : STRATUM_LARGE, weight, slower != 0) ||
        !take_end(&take, p, n, room_of(p, n)))
        return;
    if (in_region(p))
        write_once(slice_at(slice_of(p))->sampled, 1);
    else
        atomic_fetch_add(&profile_mapped, 1);
}

void profile_large_freed(void *p)
{
    write_once(slice_at(slice_of(p))->sampled, 0);
    area_remove(p);
}

/* profile_mapped counts down with those that were samples, which area_remove() tells. */
void profile_mapped_freed(void *p)
{
    if (area_remove(p))
        atomic_fetch_sub(&profile_mapped, 1);
}
