/*
 * How much free memory of one kind, of slabs or of large blocks, stays resident. What a program frees and asks for
 * again soon is cheapest kept; what it does not ask for again is better given back. Which of the two it is shows only
 * afterwards: so little is kept at first, more where memory that was given back is missed soon, and less again where
 * what is kept is not used. Protected by the region's lock.
 */
#ifndef SHEAF_REGION_KEEP_H
#define SHEAF_REGION_KEEP_H

#include "os/clock.h"
#include "os/compiler.h"

/* All amounts in units; times in ms of clock_ms(). */
struct keep {
    uint32_t now;         /* kept whatever is in use; least <= now <= most */
    uint32_t least, most; /* equal: nothing is learned */
    uint32_t share;       /* eighths of the peak that are kept where `now` is `most` */
    uint32_t peak;        /* the most that was in use during this epoch and the one before */
    uint32_t peak_recent; /* during this epoch */
    uint32_t epoch_ms;    /* when this epoch began */
    uint32_t given_back;  /* within the last window, and not missed yet */
    uint32_t given_ms;    /* when the last of it went back */
    uint32_t missed;      /* a bucket that leaks what is tolerated */
    uint32_t missed_ms;   /* when it last leaked */
    uint32_t low, high;   /* the least and the most that was free and resident since changed_ms */
    uint32_t changed_ms;  /* when `now` last changed, or was found to be needed */
};

/* At most so many units, of the size of unit.h, and `share` eighths of the peak; few units at first. */
void keep_init(struct keep *keep, uint64_t most, uint32_t share);

/*
 * What is kept beyond the least because it was missed: of the fixed amount, and of the peak, up to the share of it.
 * The peak rather than what is in use, because blocks that come and go in random order leave gaps of half their sum,
 * the more the less is in use; because a load that frees all it has and begins again needs all of that; and because
 * the end of a burst is bounded by the peak without waiting for a later call.
 */
static inline uint64_t keep_learned(const struct keep *keep)
{
    uint32_t learned = keep->now - keep->least;
    return likely(!learned) ? 0
                            : learned + (uint64_t)keep->peak * keep->share / 8 * learned / (keep->most - keep->least);
}

/*
 * What may be free and resident while `in_use` units are in use, of slabs and large blocks together: a sixteenth of
 * them, or where use has fallen since a burst ended, a sixty-fourth.
 */
static inline uint64_t keep_limit(const struct keep *keep, uint64_t in_use, bool fallen)
{
    return keep->least + in_use / (fallen ? 64 : 16) + keep_learned(keep);
}

/* `units` of this kind are in use now. */
static inline void keep_peak(struct keep *keep, uint64_t units)
{
    if (unlikely(units > keep->peak_recent)) {
        keep->peak_recent = (uint32_t)units;
        if (units > keep->peak)
            keep->peak = (uint32_t)units;
    }
}

/* `units` of this kind are free and resident now. */
static inline void keep_warm(struct keep *keep, uint32_t units)
{
    if (units < keep->low)
        keep->low = units;
    if (units > keep->high)
        keep->high = units;
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

/* Something was freed; `units` of this kind are in use now, and `warm` free and resident. What was learned gets old.
 */
void keep_age(struct keep *keep, uint64_t units, uint32_t warm, uint32_t now_ms);

#endif
