/*
 * What samples may cost. Where too many events come in a window of time, the next ones are taken half as often, again
 * and again; where few come, twice as often. A choice depends on the past alone, so weights stay right.
 *
 * Two things have a pace: a class on a slot, whose events are the requests that were drawn, and a stack on a slot,
 * whose events are its samples. So a loop that allocates and frees makes its own samples rare, and hides nothing of
 * what other stacks and classes keep. How many events are too many depends on the *pressure* on the slot: it rises
 * while samples take more of the slot's time than SHEAF_PROFILE_COST allows. Only where the highest pressure does not
 * suffice are all samples of a slot taken less often. Without a bound (0) everything that is drawn is taken.
 *
 * No locks; two threads on a slot may lose an update of each other, which delays a change.
 */
#ifndef SHEAF_PROFILE_PACE_H
#define SHEAF_PROFILE_PACE_H

#include "platform/config/config.h"
#include "platform/os/compiler.h"

#define PACE_WINDOW_MS 16
#define PACE_SLOWEST   20  /* exponents of two */
#define PACE_DRAWN     256 /* requests of a class, or for large blocks, that may be drawn on a slot in a window */

struct pace {
    uint32_t since_ms;
    uint16_t events;
    uint8_t exponent; /* one of 2^exponent events is taken */
};

/*
 * Begin a new window if the time of the last one has passed: events are taken twice as often for each window in which
 * few came, also for those in which nobody looked. Returns whether the exponent has changed. `most` as below.
 */
static inline bool pace_relax(struct pace *pace, uint32_t now, unsigned most)
{
    uint32_t windows = (now - pace->since_ms) / PACE_WINDOW_MS, few = windows;
    if (likely(!windows))
        return false;
    if (pace->events && 4u * pace->events >= most)
        few--;
    uint8_t before = pace->exponent;
    pace->exponent = (uint8_t)(before > few ? before - few : 0);
    pace->events = 0;
    pace->since_ms = now;
    return pace->exponent != before;
}

/* Note an event at `now` (clock_ms()), of which `most` may come in a window; at least 1. */
static inline void pace_note(struct pace *pace, uint32_t now, unsigned most)
{
    pace_relax(pace, now, most);
    if (likely(++pace->events <= most) || !sheaf_config.profile_cost)
        return;
    if (pace->exponent < PACE_SLOWEST)
        pace->exponent++;
    pace->events = 0;
    pace->since_ms = now;
}

/* Set up what slots need, unless that is done. Returns false if there is no memory. */
bool pace_start(void);

/* What the time that samples took on the slot lately asks for. */
struct pace_slot {
    unsigned pressure; /* halves of the events that are too many, at most PACE_PRESSURE */
    unsigned exponent; /* of all samples */
};
#define PACE_PRESSURE 5
struct pace_slot pace_of_slot(unsigned slot);

/* The exponent for what has that pace, on the slot. */
static inline unsigned pace_slower(const struct pace *pace, struct pace_slot all)
{
    unsigned sum = pace->exponent + all.exponent;
    return sum < PACE_SLOWEST ? sum : PACE_SLOWEST;
}

/* Account for a sample that took so many nanoseconds on the slot. */
void pace_spent(unsigned slot, uint32_t now, uint64_t ns);

#endif
