#include "memory/region/retain.h"

#define LEAST     32u  /* slices: 2 MiB */
#define WINDOW_MS 512u /* ms; memory that is requested later than this was not worth keeping */
#define TOLERATED 32u  /* slices missed in LEAK_MS: 2 MiB, whose faults take about 1% of that time */
#define LEAK_MS   64u
#define STEEPNESS 4u    /* the factor by which `now` grows when more is missed */
#define AGE_MS    1000u /* in this time, a quarter of what was not needed is forgotten */
#define EPOCH_MS  256u  /* the peak covers one to two epochs */

void retain_init(struct retain *keep, uint64_t most, uint32_t share)
{
    keep->most = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    keep->least = keep->most < LEAST ? keep->most : LEAST;
    keep->now = keep->least;
    keep->share = share;
}

void retain_little(struct retain *keep)
{
    keep->now = keep->most = keep->least;
}

void retain_purged(struct retain *keep, uint32_t slices, uint32_t now_ms)
{
    if (now_ms - keep->given_ms > WINDOW_MS)
        keep->given_back = 0;
    keep->given_back += slices;
    keep->given_ms = now_ms;
}

/* The tolerated amount leaves the bucket as time passes. */
static void leak(struct retain *keep, uint32_t now_ms)
{
    uint32_t tolerated = (uint32_t)((uint64_t)(now_ms - keep->missed_ms) * TOLERATED / LEAK_MS);
    if (!tolerated)
        return;
    keep->missed -= tolerated < keep->missed ? tolerated : keep->missed;
    keep->missed_ms = now_ms;
}

void retain_missed(struct retain *keep, uint32_t slices, uint32_t now_ms)
{
    if (now_ms - keep->given_ms > WINDOW_MS) {
        keep->given_back = 0;
        return;
    }
    leak(keep, now_ms);
    uint32_t missed = slices < keep->given_back ? slices : keep->given_back;
    keep->given_back -= missed;
    keep->missed += missed;
    if (keep->missed <= TOLERATED)
        return;
    uint32_t room = keep->most - keep->now, more = (STEEPNESS - 1) * keep->now;
    keep->now += more < room ? more : room;
    keep->missed = 0;
    keep->low = UINT32_MAX;
    keep->high = 0;
    keep->changed_ms = now_ms;
}

static void age_peak(struct retain *keep, uint32_t slices, uint32_t now_ms)
{
    uint32_t passed = now_ms - keep->epoch_ms;
    if (likely(passed < EPOCH_MS))
        return;
    uint32_t before = passed < 2 * EPOCH_MS ? keep->peak_recent : slices;
    keep->peak = before > slices ? before : slices;
    keep->peak_recent = slices;
    keep->epoch_ms = now_ms;
}

/*
 * The amount that is free and resident has varied by high - low, so that much of it was used. A load that uses
 * most of what may stay needs it, although nothing is missed while it stays.
 */
static bool needed(const struct retain *keep)
{
    return keep->high - keep->low >= (keep->least + retain_learned(keep)) / 4 * 3;
}

void retain_age(struct retain *keep, uint64_t slices, uint32_t warm, uint32_t now_ms)
{
    retain_peak(keep, slices);
    age_peak(keep, (uint32_t)slices, now_ms);
    uint32_t steps = (now_ms - keep->changed_ms) / AGE_MS;
    if (likely(keep->now == keep->least) || likely(!steps))
        return;
    if (needed(keep)) /* it was needed in one of the steps; in the others nothing was freed */
        steps--;
    for (; steps && keep->now > keep->least; steps--)
        keep->now -= (keep->now - keep->least + 3) / 4;
    keep->low = keep->high = warm;
    keep->changed_ms = now_ms;
}
