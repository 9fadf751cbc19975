/* Taking one sample. */
#ifndef SHEAF_PROFILE_TAKE_H
#define SHEAF_PROFILE_TAKE_H

#include "os/compiler.h"

/*
 * Add a sample of the block at p, with the stack of malloc's caller, and account for its cost. `n` bytes were
 * requested and `room` are taken up; it was drawn with this probability by the mean with this index (chance.h).
 * Returns false if it could not be added. Any context without a lock.
 */
bool take_sample(void *p, size_t n, size_t room, double probability, unsigned mean);

#endif
