/*
 * How much free memory stays resident. What a program frees and asks for again at once is cheapest kept; what it does
 * not ask for again is better given back. Which it is shows only afterwards: so little is kept at first, and more
 * where memory that was given back is missed soon. Protected by the region's lock.
 */
#ifndef SHEAF_REGION_KEEP_H
#define SHEAF_REGION_KEEP_H

#include "os/clock.h"
#include "os/compiler.h"

/* All in units; times in ms of clock_ms(). */
struct keep {
    uint32_t now;         /* kept whatever is in use; least <= now <= most */
    uint32_t least, most; /* equal: fixed */
    uint32_t given_back;  /* lately, and not missed yet */
    uint32_t given_ms;    /* when the last of it went */
    uint32_t missed;      /* since window_ms */
    uint32_t window_ms;   /* when counting began */
    uint32_t changed_ms;  /* when `now` last changed */
};

/* At most so many units, of the size of unit.h; few of them at first. */
void keep_init(struct keep *keep, uint64_t most);

/* Exactly so many from now on. */
void keep_fix(struct keep *keep, uint64_t units);

/* What may be free and resident while so much is in use. */
static inline uint64_t keep_limit(const struct keep *keep, uint64_t in_use)
{
    return keep->now + in_use / 8;
}

/* `units` went back because there were more than the limit. */
void keep_gave_back(struct keep *keep, uint32_t units, uint32_t now_ms);

/* `units` were taken that were not resident. */
void keep_missed(struct keep *keep, uint32_t units, uint32_t now_ms);
static inline void keep_took(struct keep *keep, uint32_t units)
{
    if (unlikely(keep->given_back && units))
        keep_missed(keep, units, clock_ms());
}

/* Something was freed: what was learned gets old. */
void keep_age(struct keep *keep, uint32_t now_ms);

#endif
