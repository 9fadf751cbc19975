/*
 * Room in which a sample reads an interpreter, for each slot that samples. Slots share it, and a thread that finds it
 * in use goes without. Any context without a lock.
 */
#ifndef SHEAF_PROFILE_READERS_H
#define SHEAF_PROFILE_READERS_H

#include "platform/os/compiler.h"

#include <stdatomic.h>
#include <stddef.h>

/* Room of a slot begins with this. */
struct reader {
    _Atomic bool busy;
};

/* `bytes` for each of them. They are mapped when the first one is claimed. */
struct readers {
    void *all;
    size_t bytes;
};

/* Returns NULL if another thread uses the slot's, or if there is no memory. */
struct reader *readers_claim(struct readers *readers, unsigned slot);

static inline void readers_release(struct reader *reader)
{
    atomic_store_explicit(&reader->busy, false, memory_order_release);
}

/* In the child of a fork: threads that use them do not exist here. */
void readers_fork_child(struct readers *readers);

#endif
