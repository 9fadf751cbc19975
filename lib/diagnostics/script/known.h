/*
 * What an instruction of a function was found to be. Functions are freed and others take their place, so `identity`
 * is a hash of all that the answer follows from, and that is compared at each use.
 */
#ifndef SHEAF_SCRIPT_KNOWN_H
#define SHEAF_SCRIPT_KNOWN_H

#include "platform/os/compiler.h"

#include <stdint.h>
#include <string.h>

struct script_known {
    uintptr_t function, at;
    uint64_t identity;
    uintptr_t address; /* of script_address(); 0: the entry is empty */
};
#define SCRIPT_KNOWN 512 /* entries of a table */

static inline uint64_t script_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (; n; from += 8, n -= n < 8 ? n : 8) {
        uint64_t word = 0;
        memcpy(&word, from, n < 8 ? n : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

/* The entry of an instruction of a function: if the table knows the instruction, it is there. */
static inline struct script_known *script_known_at(struct script_known *table, uintptr_t function, uintptr_t at)
{
    return &table[((function ^ at << 20) * 0x9e3779b97f4a7c15ull) >> 32 & (SCRIPT_KNOWN - 1)];
}

static inline bool script_is_known(const struct script_known *known, uintptr_t function, uintptr_t at,
                                   uint64_t identity)
{
    return known->address && known->function == function && known->at == at && known->identity == identity;
}

#endif
