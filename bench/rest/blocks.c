#include "blocks.h"
#include "../measure.h"

enum { TOUCH_EVERY = 4096 };

/* A size from `least` to `least << doublings`; all doublings are equally likely. */
static size_t by_doublings(uint64_t random, size_t least, unsigned doublings)
{
    size_t floor = least << (random % doublings);
    return floor + (random >> 16) % floor;
}

static size_t size_of(enum kind kind, size_t number)
{
    uint64_t state = (number + 1) * 0x9E3779B97F4A7C15U;
    random_next(&state);
    uint64_t random = random_next(&state) >> 16;
    switch (kind) {
    case SMALL:
        return 64 + random % 1500;
    case MIXED:
        return by_doublings(random, 16, 12);
    default:
        return by_doublings(random, 64 << 10, 6);
    }
}

size_t blocks_for(enum kind kind, uint64_t bytes)
{
    size_t count = 0;
    for (uint64_t sum = 0; sum < bytes; count++)
        sum += size_of(kind, count);
    return count;
}

uint64_t blocks_bytes(const struct blocks *blocks)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < blocks->count; i++)
        sum += size_of(blocks->kind, blocks->first + i);
    return sum;
}

static void *touched(size_t size)
{
    char *p = take(size);
    for (size_t at = TOUCH_EVERY; at < size; at += TOUCH_EVERY)
        ((volatile char *)p)[at] = 1;
    ((volatile char *)p)[size - 1] = 1;
    return p;
}

void blocks_fill(const struct blocks *blocks)
{
    for (size_t i = 0; i < blocks->count; i++)
        blocks->places[i] = touched(size_of(blocks->kind, blocks->first + i));
}

void blocks_empty(const struct blocks *blocks)
{
    for (size_t i = 0; i < blocks->count; i++)
        give(blocks->places[i]);
}

void blocks_shuffle(const struct blocks *blocks)
{
    uint64_t seed = 1 + blocks->first;
    for (size_t i = blocks->count; i > 1; i--) {
        size_t other = (random_next(&seed) >> 16) % i;
        void *held = blocks->places[i - 1];
        blocks->places[i - 1] = blocks->places[other];
        blocks->places[other] = held;
    }
}
