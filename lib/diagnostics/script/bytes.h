/* Words in bytes that were copied from an interpreter's memory, where they may be unaligned. */
#ifndef SHEAF_SCRIPT_BYTES_H
#define SHEAF_SCRIPT_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uintptr_t word_in(const unsigned char *bytes, unsigned at)
{
    uintptr_t word;
    memcpy(&word, bytes + at, sizeof(word));
    return word;
}

static inline uint32_t number_in(const unsigned char *bytes, unsigned at)
{
    uint32_t number;
    memcpy(&number, bytes + at, sizeof(number));
    return number;
}

#endif
