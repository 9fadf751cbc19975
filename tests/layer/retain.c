/* What the region learns to keep resident, by the accounts alone; the test tells the time. */
#include "layer.h"
#include "memory/region/retain.h"

#define SLICES_OF_MIB 16u
#define LEAST_MIB     2

static struct retain keep;
static uint32_t now = 1000000;
static uint32_t given;

static uint64_t limit_mib(uint32_t in_use)
{
    return retain_limit(&keep, in_use, false) / SLICES_OF_MIB;
}

static void start(uint32_t share)
{
    memset(&keep, 0, sizeof(keep));
    retain_init(&keep, 64 * SLICES_OF_MIB, share);
}

/* A load that takes `most` slices and frees all: what is over the limit goes back, and is missed `pause` ms later. */
static void swing(uint32_t most, uint32_t pause)
{
    retain_age(&keep, most, 0, now);
    keep_warm(&keep, 0);
    uint32_t limit = (uint32_t)retain_limit(&keep, 0, false), stays = limit < most ? limit : most;
    keep_warm(&keep, stays);
    retain_age(&keep, 0, stays, now);
    if (most > stays)
        retain_purged(&keep, most - stays, now);
    given += most - stays;
    now += pause;
    for (uint32_t missed = stays; missed < most; missed += SLICES_OF_MIB)
        retain_missed(&keep, SLICES_OF_MIB, now);
}

CASE(little_stays_at_first)
{
    start(8);
    must_be(limit_mib(0), LEAST_MIB);
    must_be(limit_mib(160 * SLICES_OF_MIB), LEAST_MIB + 10); /* and a sixteenth of what is in use */
    must_be(retain_limit(&keep, 160 * SLICES_OF_MIB, true), LEAST_MIB * SLICES_OF_MIB + 40); /* less after a burst */
}

CASE(a_swing_that_comes_again_soon_is_learned)
{
    static const uint32_t pauses[] = {20, 200, 450};
    for (size_t i = 0; i < array_size(pauses); i++) {
        start(8);
        swing(100 * SLICES_OF_MIB, pauses[i]);
        swing(100 * SLICES_OF_MIB, pauses[i]);
        must(limit_mib(0) >= 100);
    }
}

CASE(a_swing_that_comes_seldom_is_not)
{
    start(8);
    for (int i = 0; i < 5; i++)
        swing(100 * SLICES_OF_MIB, 2000);
    must_be(limit_mib(0), LEAST_MIB);
}

CASE(few_misses_are_tolerated)
{
    start(8);
    for (int i = 0; i < 100; i++) { /* a MiB each 64 ms */
        retain_purged(&keep, SLICES_OF_MIB, now);
        now += 64;
        retain_missed(&keep, SLICES_OF_MIB, now);
    }
    must_be(limit_mib(0), LEAST_MIB);
}

/* What never went back cannot be missed. */
CASE(new_memory_is_not_missed)
{
    start(8);
    retain_purged(&keep, 8, now);
    for (int i = 0; i < 100; i++)
        retain_took(&keep, 100);
    must_be(limit_mib(0), LEAST_MIB);
    must_be(keep.given_back, 0);
}

CASE(never_more_than_the_most)
{
    start(0);
    for (int i = 0; i < 100; i++)
        swing(400 * SLICES_OF_MIB, 20);
    must_be(limit_mib(0), 64);
    retain_init(&keep, 8, 8);
    must_be(retain_limit(&keep, 0, false), 8);
}

CASE(large_blocks_keep_a_smaller_share_of_the_peak)
{
    start(3);
    for (int i = 0; i < 5; i++)
        swing(400 * SLICES_OF_MIB, 20);
    must(limit_mib(0) <= 64 + 400 * 3 / 8);
    must(limit_mib(0) > 64 + 100);
}

CASE(what_is_used_is_not_forgotten)
{
    start(8);
    for (int i = 0; i < 10; i++)
        swing(100 * SLICES_OF_MIB, 200);
    given = 0;
    for (int i = 0; i < 50; i++)
        swing(100 * SLICES_OF_MIB, 200);
    must_be(given, 0);
}

CASE(the_peak_is_that_of_the_last_half_second)
{
    start(8);
    for (int i = 0; i < 5; i++)
        swing(100 * SLICES_OF_MIB, 20);
    for (int i = 0; i < 2; i++) {
        now += 300;
        retain_age(&keep, 2 * SLICES_OF_MIB, 0, now);
    }
    must(limit_mib(0) >= 64 && limit_mib(0) <= 66);
}

CASE(what_is_not_used_any_more_is_forgotten)
{
    start(8);
    for (int i = 0; i < 5; i++)
        swing(100 * SLICES_OF_MIB, 20);
    must(limit_mib(0) >= 100);
    for (int i = 0; i < 4; i++) /* without misses */
        swing(2 * SLICES_OF_MIB, 500);
    must(limit_mib(0) <= 70); /* of 164 */
    for (int i = 0; i < 40; i++)
        swing(2 * SLICES_OF_MIB, 500);
    must(limit_mib(0) <= 5);
}

CASE(a_long_pause_forgets_all)
{
    start(8);
    for (int i = 0; i < 5; i++)
        swing(100 * SLICES_OF_MIB, 20);
    now += 60000;
    retain_age(&keep, 0, 0, now);
    must_be(limit_mib(0), LEAST_MIB);
}

CASE(the_clock_may_wrap)
{
    start(8);
    now = UINT32_MAX - 100;
    retain_age(&keep, 0, 0, now);
    for (int i = 0; i < 3; i++)
        swing(100 * SLICES_OF_MIB, 200);
    must(limit_mib(0) >= 100);
}
