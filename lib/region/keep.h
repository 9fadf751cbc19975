/*
 * How much free memory of large blocks stays resident. What a program frees and asks for again at once is cheapest
 * kept; what it does not ask for again is better given back. Which it is shows only afterwards: so little is kept at
 * first, and more where memory that was given back is missed soon. Protected by the region's lock.
 */
#ifndef SHEAF_REGION_KEEP_H
#define SHEAF_REGION_KEEP_H

#include "os/clock.h"
#include "os/compiler.h"

/* All in units; times in ms of clock_ms(). */
struct keep {
    uint32_t now;         /* kept whatever is in use; least <= now <= most */
    uint32_t least, most; /* equal: nothing is learned */
    uint32_t peak;        /* the most that large blocks took up of late */
    uint32_t peak_ms;     /* when the peak was last lowered */
    uint32_t given_back;  /* lately, and not missed yet */
    uint32_t given_ms;    /* when the last of it went */
    uint32_t missed;      /* since window_ms */
    uint32_t window_ms;   /* when counting began */
    uint32_t changed_ms;  /* when `now` last changed */
};

/* At most so many units, of the size of unit.h, and a share of the peak; few of them at first. */
void keep_init(struct keep *keep, uint64_t most);

/*
 * What is kept beyond the least because it was missed: of the fixed amount, and of the peak, up to KEEP_SHARE of it.
 * The peak rather than what is in use, because blocks that come and go in random order leave gaps of half their sum,
 * the more the less is in use; and because the end of a burst is bounded by it without waiting for a later call.
 */
#define KEEP_SHARE 3 / 8
static inline uint64_t keep_learned(const struct keep *keep)
{
    uint32_t learned = keep->now - keep->least;
    return likely(!learned) ? 0 : learned + (uint64_t)keep->peak * KEEP_SHARE * learned / (keep->most - keep->least);
}

/* What may be free and resident while so much is in use, slabs included. */
static inline uint64_t keep_limit(const struct keep *keep, uint64_t in_use)
{
    return keep->least + in_use / 8 + keep_learned(keep);
}

/* Large blocks take up `units` now. */
static inline void keep_peak(struct keep *keep, uint64_t units)
{
    if (unlikely(units > keep->peak))
        keep->peak = (uint32_t)units;
}

/* `units` went back because there were more than the limit, or as payment. */
void keep_gave_back(struct keep *keep, uint32_t units, uint32_t now_ms);

/* `units` were taken that had been resident once, and were not any more. */
void keep_missed(struct keep *keep, uint32_t units, uint32_t now_ms);
static inline void keep_took(struct keep *keep, uint32_t units)
{
    if (unlikely(keep->given_back && units))
        keep_missed(keep, units, clock_ms());
}

/* Something was freed, and large blocks take up `units` now: what was learned gets old. */
void keep_age(struct keep *keep, uint64_t units, uint32_t now_ms);

#endif
