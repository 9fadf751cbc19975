#include "diagnostics/profile/take.h"
#include "platform/os/clock.h"
#include "diagnostics/profile/pace.h"
#include "diagnostics/profile/script.h"
#include "diagnostics/profile/walked.h"

/* What a sample costs where its stack is known, and what one that is left out does: estimates of what a slot spends,
 * its free included (docs/design-notes.md, "Samples"). */
#define SAMPLE_NS 800
#define LEFT_NS   300

/* Blocks that are always sampled have no part in the budget: they cannot be left out, so they would use up what other
 * blocks are sampled from. */
static void spend(unsigned slot, unsigned stratum, uint32_t now, uint64_t ns)
{
    if (stratum != STRATUM_ALWAYS)
        pace_spent(slot, now, ns);
}

bool take_begin(struct take *take, unsigned slot, unsigned stratum, double weight, bool slowed)
{
    uint32_t now = clock_ms();
    struct walked_frames frames = {.n = 0};
    bool always = stratum == STRATUM_ALWAYS;
    struct walked_stack found = walked_find(slot, always, now, script_compiled() ? &frames : NULL);
    if (!found.taken) {
        spend(slot, stratum, now, LEFT_NS);
        return false;
    }
    if (script_running())
        script_put(slot, &found, &frames);
    *take = (struct take){.stack = found.stack,
                          .walk_ns = found.walk_ns,
                          .now = now,
                          .slot = slot,
                          .stratum = stratum,
                          .weight = weight * (double)(1u << found.thinned),
                          .slowed = slowed || found.thinned};
    return found.stack != AREA_NO_STACK;
}

bool take_end(const struct take *take, void *p, size_t n, size_t room)
{
    struct sample sample = {.address = p,
                            .size = n,
                            .room = room,
                            .weight = take->weight,
                            .stack = take->stack,
                            .stratum = take->stratum,
                            .slowed = take->slowed};
    spend(take->slot, take->stratum, take->now, SAMPLE_NS + take->walk_ns);
    return area_add(&sample);
}
