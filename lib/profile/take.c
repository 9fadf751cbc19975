#include "profile/take.h"
#include "os/stack.h"
#include "profile/area.h"
#include "profile/chance.h"
#include "slot/slot.h"

#include <time.h>

/* What a sample costs beside what is measured here: its free, the stop, the exchanges before it, and cache misses
 * (docs/design-notes.md, "Samples"). */
#define REST_NS 2000

/* A preemption within a sample is not its cost. */
#define MOST_NS 50000

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool take_sample(void *p, size_t n, size_t room, double probability, unsigned mean)
{
    uint64_t start = clock_ns();
    struct sample sample = {.address = p, .size = n, .room = room, .probability = probability, .slowed = mean != 0};
    sample.depth = stack_walk(sample.pcs, SAMPLE_DEPTH);
    bool added = area_add(&sample);
    uint64_t took = clock_ns() - start + REST_NS;
    chance_spent(slot_current(), took < MOST_NS ? took : MOST_NS);
    return added;
}
