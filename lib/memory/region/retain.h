/*
 * How much free memory of one kind, of slabs or of large blocks, stays resident. Memory that a program frees and
 * soon requests again is best kept; memory that it does not request again is best returned to the system. Which of
 * the two it is shows only afterwards. So little is kept at first, more if returned memory is soon missed, and
 * less again if kept memory is not used. Protected by the region's lock.
 */
#ifndef SHEAF_REGION_RETAIN_H
#define SHEAF_REGION_RETAIN_H

#include "platform/os/clock.h"
#include "platform/os/compiler.h"

/* All amounts are slices, all times are ms of clock_ms(). */
struct retain {
    uint32_t now;         /* kept regardless of what is in use; least <= now <= most */
    uint32_t least, most; /* if equal, nothing is learned */
    uint32_t share;       /* eighths of the peak that are kept when `now` equals `most` */
    uint32_t peak;        /* the most that was in use during this epoch and the previous one */
    uint32_t peak_recent; /* during this epoch */
    uint32_t epoch_ms;    /* when this epoch began */
    uint32_t given_back;  /* returned within WINDOW_MS, and not missed yet */
    uint32_t given_ms;    /* when memory was last returned */
    uint32_t missed;      /* a leaky bucket: the tolerated amount drains over time */
    uint32_t missed_ms;   /* when it last leaked */
    uint32_t low, high;   /* the least and the most that was free and resident since changed_ms */
    uint32_t changed_ms;  /* when `now` last changed or was found to be needed */
};

/* Set the upper bound to `most` slices and the share of the peak to `share` eighths. Little is kept at first. */
void retain_init(struct retain *keep, uint64_t most, uint32_t share);

/* Forget what was learned, and learn nothing from now on. */
void retain_little(struct retain *keep);

/*
 * The part that is kept because it was missed: that of `now` beyond the least, and as large a part of the share of
 * the peak. The peak rather than the amount in use, because blocks that come and go in random order leave gaps of
 * half their sum; because a load that frees everything and starts again needs all of it; and because the end of a
 * burst is then bounded without a later call.
 */
static inline uint64_t retain_learned(const struct retain *keep)
{
    uint32_t learned = keep->now - keep->least;
    return likely(!learned) ? 0
                            : learned + (uint64_t)keep->peak * keep->share / 8 * learned / (keep->most - keep->least);
}

/*
 * The limit of free and resident memory while slabs and large blocks together use `in_use` slices: besides the
 * fixed and the learned part a sixteenth of them or, if use has not grown since a burst ended (`fallen`), a
 * sixty-fourth.
 */
static inline uint64_t retain_limit(const struct retain *keep, uint64_t in_use, bool fallen)
{
    return keep->least + in_use / (fallen ? 64 : 16) + retain_learned(keep);
}

/* This kind now has `slices` in use. */
static inline void retain_peak(struct retain *keep, uint64_t slices)
{
    if (unlikely(slices > keep->peak_recent)) {
        keep->peak_recent = (uint32_t)slices;
        if (slices > keep->peak)
            keep->peak = (uint32_t)slices;
    }
}

/* This kind now has `slices` free and resident. */
static inline void keep_warm(struct retain *keep, uint32_t slices)
{
    if (slices < keep->low)
        keep->low = slices;
    if (slices > keep->high)
        keep->high = slices;
}

/* `slices` were returned to the system, as surplus or payment. */
void retain_purged(struct retain *keep, uint32_t slices, uint32_t now_ms);

/* `slices` were allocated that had been resident before and no longer were. */
void retain_missed(struct retain *keep, uint32_t slices, uint32_t now_ms);
static inline void retain_took(struct retain *keep, uint32_t slices)
{
    if (unlikely(keep->given_back && slices))
        retain_missed(keep, slices, clock_ms());
}

/*
 * Must be called when memory is freed. This kind now has `slices` in use and `warm` slices free and resident.
 * Forgets part of what was learned as time passes.
 */
void retain_age(struct retain *keep, uint64_t slices, uint32_t warm, uint32_t now_ms);

#endif
