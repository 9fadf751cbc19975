#include "memory/slab/shuffle.h"
#include "platform/os/random.h"
#include "platform/os/vm.h"

static size_t bytes(uint32_t objects)
{
    return sizeof(struct shuffle) + 2ul * objects * sizeof(uint16_t);
}

/* A number below n, which is at most 8192, so the bias is negligible. */
static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((random_mix((*state)++) >> 32) * n) >> 32);
}

struct shuffle *shuffle_create(uint32_t objects, uint32_t size)
{
    struct shuffle *shuffle = vm_map(round_up(bytes(objects), vm_page_size()), 1);
    if (!shuffle)
        return NULL;
    shuffle->objects = objects;
    uint16_t *offsets = shuffle->table, *places = shuffle->table + objects;
    uint64_t state = random_next();
    for (uint32_t i = 0; i < objects; i++) { /* the inside-out shuffle of Fisher and Yates */
        uint32_t j = below(&state, i + 1);
        offsets[i] = offsets[j];
        offsets[j] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < objects; i++) {
        uint32_t index = offsets[i];
        places[index] = (uint16_t)i;
        offsets[i] = (uint16_t)((size_t)index * size >> 3);
    }
    return shuffle;
}

void shuffle_destroy(struct shuffle *shuffle)
{
    vm_unmap(shuffle, round_up(bytes(shuffle->objects), vm_page_size()));
}

uint32_t shuffle_start(const struct shuffle *shuffle)
{
    return (uint32_t)(((random_next() >> 32) * shuffle->objects) >> 32);
}
