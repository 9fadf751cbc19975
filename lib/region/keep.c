#include "region/keep.h"

#define LEAST     64u   /* units: 4 MiB */
#define WINDOW_MS 64u   /* what is asked for again later than this was not worth keeping */
#define TOLERATED 32u   /* units missed in a window: 2 MiB, at 1.6 us a page 1% of the time */
#define STEEPNESS 4u    /* how many times as much is kept then */
#define AGE_MS    1000u /* after which a quarter is forgotten */
#define PEAK_MS   128u  /* after which the peak falls by a quarter of what it is above what is in use */

void keep_init(struct keep *keep, uint64_t most)
{
    keep->most = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    keep->least = keep->most < LEAST ? keep->most : LEAST;
    keep->now = keep->least;
}

void keep_gave_back(struct keep *keep, uint32_t units, uint32_t now_ms)
{
    if (now_ms - keep->given_ms > WINDOW_MS)
        keep->given_back = 0;
    keep->given_back += units;
    keep->given_ms = now_ms;
}

void keep_missed(struct keep *keep, uint32_t units, uint32_t now_ms)
{
    if (now_ms - keep->given_ms > WINDOW_MS) {
        keep->given_back = 0;
        return;
    }
    if (now_ms - keep->window_ms > WINDOW_MS) {
        keep->window_ms = now_ms;
        keep->missed = 0;
    }
    uint32_t missed = units < keep->given_back ? units : keep->given_back;
    keep->given_back -= missed;
    keep->missed += missed;
    if (keep->missed <= TOLERATED)
        return;
    uint32_t room = keep->most - keep->now, more = (STEEPNESS - 1) * keep->now;
    keep->now += more < room ? more : room;
    keep->missed = 0;
    keep->changed_ms = now_ms;
}

void keep_age(struct keep *keep, uint64_t units, uint32_t now_ms)
{
    keep_peak(keep, units);
    for (int i = 0; i < 32 && unlikely(now_ms - keep->peak_ms >= PEAK_MS); i++) {
        keep->peak -= (uint32_t)(keep->peak - units + 3) / 4;
        keep->peak_ms += PEAK_MS;
    }
    if (now_ms - keep->peak_ms >= PEAK_MS)
        keep->peak_ms = now_ms;
    if (likely(keep->now == keep->least) || now_ms - keep->changed_ms < AGE_MS)
        return;
    keep->now -= (keep->now - keep->least + 3) / 4;
    keep->changed_ms = now_ms;
}
