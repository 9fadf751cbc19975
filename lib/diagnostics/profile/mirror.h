/*
 * The memory of the area (area.h): the private copy, and the mirror to which its changes are copied. Both get memory
 * in chunks as they are used. All functions need LOCK_PROFILE, but for at().
 */
#ifndef SHEAF_PROFILE_MIRROR_H
#define SHEAF_PROFILE_MIRROR_H

#include "platform/os/compiler.h"
#include "sheaf/profile.h"

/* The private copy; NULL until mirror_start(). */
extern hidden struct sheaf_profile *mirror_truth;

static inline char *mirror_at(uint64_t offset)
{
    return (char *)mirror_truth + offset;
}

/* Map the private copy. Returns false if there is no memory. */
bool mirror_start(void);

/* Copy to this memory from now on; NULL: to none. */
void mirror_to(void *mirror);

/* Whether this part of the private copy may be written. */
bool mirror_commit(uint64_t offset, size_t size);

/* Copy a part. The file may have no memory for it: the mirror then lacks that part. */
void mirror_publish(uint64_t offset, size_t size);
void mirror_publish_at(const void *what, size_t size);

#endif
