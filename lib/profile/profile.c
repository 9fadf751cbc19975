#include "profile/profile.h"
#include "profile/area.h"
#include "profile/chance.h"
#include "profile/object.h"
#include "profile/take.h"
#include "space/outside.h"

bool profile_on;
_Atomic uint32_t profile_outside;

bool profile_switch(uint64_t rate)
{
    if (rate && !area_start())
        return false;
    if (rate)
        chance_set(rate);
    __atomic_store_n(&profile_on, rate != 0, __ATOMIC_RELEASE);
    area_switched(rate);
    if (rate)
        for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++)
            if (cache_in_use(cache_at(i)) && cache_is_class(cache_at(i)))
                profile_attach_objects(cache_at(i));
    return true;
}

/* ---- large blocks ---- */

void profile_large(void *p, size_t n)
{
    unsigned slot = slot_current(), mean = chance_mean(slot);
    if (!chance_hit(slot, n, mean))
        return;
    size_t room = in_region(p) ? (size_t)unit_at(unit_of(p))->length << UNIT_SHIFT : round_up(n, space.page_size);
    if (!take_sample(p, n, room > n ? room : n, chance_of(n, mean), mean))
        return;
    if (in_region(p))
        write_once(unit_at(unit_of(p))->sampled, 1);
    else
        atomic_fetch_add(&profile_outside, 1);
}

void profile_large_freed(void *p)
{
    write_once(unit_at(unit_of(p))->sampled, 0);
    area_remove(p);
}

/* profile_outside counts down with those that were samples, which area_remove() tells. */
void profile_outside_freed(void *p)
{
    if (area_remove(p))
        atomic_fetch_sub(&profile_outside, 1);
}
