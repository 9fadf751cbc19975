#include "diagnostics/profile/mirror.h"
#include "platform/os/vm.h"
#include "memory/space/internal.h"

#include <string.h>

#define CHUNK  (64u << 10) /* unit in which memory is asked for */
#define CHUNKS (SHEAF_PROFILE_BYTES / CHUNK)

enum chunk { CHUNK_UNKNOWN, CHUNK_READY, CHUNK_REFUSED };

struct sheaf_profile *mirror_truth;
static char *mirror;
static uint8_t truth_chunks[CHUNKS], mirror_chunks[CHUNKS]; /* enum chunk */

bool mirror_start(void)
{
    mirror_truth = vm_map_staged(SHEAF_PROFILE_BYTES, 4096);
    if (mirror_truth)
        internal_note(mirror_truth, SHEAF_PROFILE_BYTES); /* it has the addresses of samples */
    return mirror_truth;
}

void mirror_to(void *to)
{
    mirror = to;
    memset(mirror_chunks, CHUNK_UNKNOWN, sizeof(mirror_chunks));
}

bool mirror_commit(uint64_t offset, size_t size)
{
    for (uint64_t i = offset / CHUNK; i <= (offset + size - 1) / CHUNK; i++) {
        if (truth_chunks[i] == CHUNK_UNKNOWN)
            truth_chunks[i] = vm_commit(mirror_at(i * CHUNK), CHUNK) ? CHUNK_READY : CHUNK_REFUSED;
        if (truth_chunks[i] != CHUNK_READY)
            return false;
    }
    return true;
}

void mirror_publish(uint64_t offset, size_t size)
{
    if (!mirror)
        return;
    while (size) {
        uint64_t i = offset / CHUNK;
        size_t part = (i + 1) * CHUNK - offset < size ? (i + 1) * CHUNK - offset : size;
        if (unlikely(mirror_chunks[i] == CHUNK_UNKNOWN))
            mirror_chunks[i] = vm_populate(mirror + i * CHUNK, CHUNK) ? CHUNK_READY : CHUNK_REFUSED;
        if (mirror_chunks[i] == CHUNK_READY)
            memcpy(mirror + offset, mirror_at(offset), part);
        offset += part;
        size -= part;
    }
}

void mirror_publish_at(const void *what, size_t size)
{
    mirror_publish((uint64_t)((const char *)what - (char *)mirror_truth), size);
}
