/* Taking one sample. */
#ifndef SHEAF_PROFILE_TAKE_H
#define SHEAF_PROFILE_TAKE_H

#include "diagnostics/profile/area.h"

/*
 * A sample that was drawn, with the probability 1/weight. take_begin() finds the stack of malloc's caller. It returns
 * false if the sample is not to be taken: the stack has many samples, or the table is out of reach. take_end() then
 * adds the block at p, for which `n` bytes were requested and which takes up `room`, and accounts for the cost; it
 * returns false if the block could not be added. Any context without a lock.
 */
struct take {
    uint32_t stack, walk_ns, now;
    unsigned slot, stratum;
    double weight;
    bool slowed;
};
bool take_begin(struct take *take, unsigned slot, unsigned stratum, double weight, bool slowed);
bool take_end(const struct take *take, void *p, size_t n, size_t room);

#endif
