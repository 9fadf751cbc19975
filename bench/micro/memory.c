/* Tests whose cost is mostly page faults and copying: fresh memory, large blocks, growth. */
#include "../test.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, KIB = 1024, MIB = 1024 * 1024 };

/* Writes one byte in each page, the least that a program does with its memory. */
static void touch_pages(char *start, char *end)
{
    for (char *p = start; p < end; p += PAGE)
        *(volatile char *)p = 1;
}

/* The objects form a list, because an array of pointers would add page faults of its own. */
static void *chain;

static void chain_up(size_t size)
{
    void **object = take(size);
    *object = chain;
    chain = object;
}

static uint64_t run_fresh(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++)
        chain_up(test->size);
    return ops;
}

static uint64_t run_fresh_mixed(const struct test *test, uint64_t ops)
{
    uint64_t seed = 1;
    (void)test;
    for (uint64_t i = 0; i < ops; i++)
        chain_up(16 + (random_next(&seed) >> 32) % 497);
    return ops;
}

/* Large blocks: each op replaces the block in a random place by one of random size. */
static char **blocks;
static uint64_t block_seed = 1;

static void prepare_large(const struct test *test)
{
    blocks = scratch(test->count * sizeof(*blocks));
}

static void finish_large(const struct test *test)
{
    for (size_t i = 0; i < test->count; i++)
        free(blocks[i]);
    munmap(blocks, test->count * sizeof(*blocks));
}

/* A size from 64 KiB to 8 MiB; its seven doublings are equally likely. */
static size_t random_large_size(uint64_t *seed)
{
    uint64_t r = random_next(seed) >> 16;
    size_t base = (size_t)(64 * KIB) << r % 7;
    return base + (r >> 8) % base;
}

static uint64_t run_large(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++) {
        char **place = &blocks[(random_next(&block_seed) >> 32) % test->count];
        size_t size = random_large_size(&block_seed);
        give(*place);
        *place = take(size);
        touch_pages(*place, *place + size);
    }
    return ops;
}

/* The blocks are larger than those that most allocators keep for reuse, and are written in full. */
static uint64_t run_churn(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++) {
        char **place = &blocks[(random_next(&block_seed) >> 32) % test->count];
        size_t size = 5 * MIB + (random_next(&block_seed) >> 16) % (20 * MIB);
        give(*place);
        *place = take(size);
        memset(*place, (int)i, size);
    }
    return ops;
}

/* Grows a block from one byte by an eighth at a time, like a buffer whose final size is unknown. */
static uint64_t run_growth(const struct test *test, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++) {
        size_t size = 1;
        char *buffer = opaque(malloc(size));
        while (buffer != NULL && size < test->size) {
            size_t larger = size + size / 8 + 16;
            buffer = opaque(realloc(buffer, larger));
            if (buffer != NULL)
                touch_pages(buffer + size, buffer + larger);
            size = larger;
        }
        if (buffer == NULL)
            fail("no memory for a block of %zu bytes; use a larger machine", size);
        give(buffer);
    }
    return ops;
}

/* `count` vectors, which random pushes fill. A full vector is doubled by realloc. */
static struct vector {
    uint64_t *items;
    size_t length, capacity;
} * vectors;

static void prepare_vectors(const struct test *test)
{
    vectors = scratch(test->count * sizeof(*vectors));
}

static void push(struct vector *v, uint64_t item)
{
    if (v->length == v->capacity) {
        v->capacity = v->capacity != 0 ? 2 * v->capacity : 1;
        v->items = opaque(realloc(v->items, v->capacity * sizeof(*v->items)));
        if (v->items == NULL)
            fail("no memory for a vector of %zu items; use a smaller --ops", v->capacity);
    }
    v->items[v->length++] = item;
}

static uint64_t run_vectors(const struct test *test, uint64_t ops)
{
    uint64_t seed = 1;
    for (uint64_t i = 0; i < ops; i++)
        push(&vectors[(random_next(&seed) >> 32) % test->count], i);
    for (size_t i = 0; i < test->count; i++) {
        give(vectors[i].items);
        vectors[i] = (struct vector){0};
    }
    return ops;
}

static void finish_vectors(const struct test *test)
{
    munmap(vectors, test->count * sizeof(*vectors));
}

#define FRESH(bytes, many)                                                                                           \
    {                                                                                                                \
        .name = "fresh-" #bytes, .what = "256 MiB of objects of " #bytes " bytes, never freed; an op is one malloc", \
        .ops = many, .repetitions = 1, .cold = 1, .size = bytes, .run = run_fresh,                                   \
    }

static const struct test memory_tests[] = {
    FRESH(16, 16777216),
    FRESH(64, 4194304),
    FRESH(512, 524288),
    {.name = "fresh-mixed",
     .what = "256 MiB of objects of 16 to 512 bytes, never freed; an op is one malloc",
     .ops = 1016801,
     .repetitions = 1,
     .cold = 1,
     .run = run_fresh_mixed},
    {.name = "vectors-growth",
     .what = "10000 vectors are filled at random, doubled by realloc, then freed; an op is one push",
     .ops = 10000000,
     .repetitions = 5,
     .count = 10000,
     .prepare = prepare_vectors,
     .run = run_vectors,
     .finish = finish_vectors},
    {.name = "large-replace",
     .what = "blocks of 64 KiB to 8 MiB in 32 places are replaced at random, each page touched; an op is one block",
     .ops = 500,
     .repetitions = 5,
     .count = 32,
     .prepare = prepare_large,
     .run = run_large,
     .finish = finish_large},
    {.name = "large-churn",
     .what = "blocks of 5 to 25 MiB in 20 places are replaced at random and written in full; an op is one block",
     .ops = 100,
     .repetitions = 5,
     .count = 20,
     .prepare = prepare_large,
     .run = run_churn,
     .finish = finish_large},
    {.name = "realloc-growth",
     .what = "a block grows from 1 byte to 100 MB by an eighth at a time, new pages touched; an op is one growth",
     .ops = 2,
     .repetitions = 5,
     .size = 100000000,
     .run = run_growth},
    {0},
};
ADD_TESTS(memory_tests)
