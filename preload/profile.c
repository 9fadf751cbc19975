#include "preload/profile.h"
#include "preload/record.h"
#include "diagnostics/feature/harden.h"
#include "process/decay.h"
#include "diagnostics/profile/area.h"
#include "diagnostics/profile/profile.h"

void profile_record_start(void)
{
    size_t bytes;
    if (profile_on)
        area_mirror(record_profile_area(&bytes));
}

void profile_record_fork_child(void)
{
    size_t bytes;
    if (!area_in_use())
        return;
    profile_fork_child();
    area_mirror(record_profile_area(&bytes));
}

void profile_count(void)
{
    if (area_in_use())
        area_count();
}

/* Whether something else handles each object of every class that is in use. */
static bool all_debugged(void)
{
    bool any = false;
    for (unsigned i = CACHE_FIRST; i < CACHE_GAP; i++) {
        if (cache_in_use(cache_at(i)) && !cache_at(i)->instruments)
            return false;
        any |= cache_in_use(cache_at(i));
    }
    return any;
}

/* Words that know nothing of samples would hide them until they are folded. */
enum sheaf_status profile_request(uint64_t rate, enum sheaf_refusal *why)
{
    size_t bytes;
    *why = SHEAF_IS_DEBUGGED;
    if (rate && (harden_objects() || all_debugged()))
        return SHEAF_REFUSED;
    void *mirror = rate ? record_profile_area(&bytes) : NULL;
    if (rate && !mirror)
        return SHEAF_NO_ROOM;
    *why = SHEAF_NO_MEMORY;
    if (!profile_switch(rate))
        return SHEAF_REFUSED;
    if (mirror)
        area_mirror(mirror);
    if (rate)
        cache_fold_all();
    return SHEAF_DONE;
}
