#include "preload/profile.h"
#include "preload/record.h"
#include "process/decay.h"
#include "profile/area.h"
#include "profile/profile.h"

void profile_record_start(void)
{
    size_t bytes;
    if (profile_on)
        area_mirror(record_profile_area(&bytes));
}

void profile_record_fork_child(void)
{
    size_t bytes;
    area_fork_child();
    if (area_in_use())
        area_mirror(record_profile_area(&bytes));
}

/* Words that know nothing of samples would hide them until they are folded. */
enum sheaf_status profile_request(uint64_t rate)
{
    size_t bytes;
    void *mirror = rate ? record_profile_area(&bytes) : NULL;
    if (rate && !mirror)
        return SHEAF_NO_ROOM;
    if (!profile_switch(rate))
        return SHEAF_REFUSED;
    if (mirror)
        area_mirror(mirror);
    if (rate)
        cache_fold_all();
    return SHEAF_DONE;
}
