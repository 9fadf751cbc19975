/*
 * A store of constant total size whose entries change in size from phase to phase, as in a cache server: freed
 * entries leave holes that may not fit new ones. The test records resident memory while live memory stays constant.
 * Modelled on the question of "The memory fragmentation problem: solved?", ISMM 1998.
 */
#include "../test.h"

#include <string.h>
#include <sys/mman.h>

enum { MOST_ENTRIES = 1 << 20, PHASES = 5, SAMPLES = 20 };

static const size_t live_bytes = 64 << 20;

/* The sizes of a phase are from `least` to `least + range - 1`. */
static const struct phase {
    const char *name;
    size_t least, range;
} phases[PHASES] = {
    {"150 to 250", 150, 100}, {"500 to 600", 500, 100}, {"1000 to 5000", 1000, 4000},
    {"64 to 128", 64, 64},    {"16 to 2000", 16, 1984},
};

static uint64_t **entries; /* each begins with its size */
static size_t count, bytes;
static uint64_t seed = 1;

static void remove_one(void)
{
    size_t i = (random_next(&seed) >> 32) % count;
    bytes -= entries[i][0];
    give(entries[i]);
    entries[i] = entries[--count];
}

static void insert(const struct phase *phase)
{
    size_t size = phase->least + (random_next(&seed) >> 32) % phase->range;
    while (count > 0 && (bytes + size > live_bytes || count == MOST_ENTRIES))
        remove_one();
    entries[count++] = memset(take(size), 0, size);
    entries[count - 1][0] = size;
    bytes += size;
}

static void prepare_store(const struct test *test)
{
    (void)test;
    entries = scratch(MOST_ENTRIES * sizeof(*entries));
}

/* An op is one insertion. Each phase replaces the whole store several times. */
static uint64_t run_store(const struct test *test, uint64_t ops)
{
    (void)test;
    uint64_t each = ops / (PHASES * SAMPLES) + 1;
    for (unsigned phase = 0; phase < PHASES; phase++)
        for (unsigned sample = 1; sample <= SAMPLES; sample++) {
            for (uint64_t i = 0; i < each; i++)
                insert(&phases[phase]);
            note_memory(sample == SAMPLES ? phases[phase].name : NULL);
        }
    return each * PHASES * SAMPLES;
}

/* Shrinks the store to an eighth, to record how much memory returns to the system. */
static void shrink_store(const struct test *test)
{
    (void)test;
    while (bytes > live_bytes / 8)
        remove_one();
    note_memory("an eighth left");
    sleep_ms(brief ? 1 : 1000);
    note_memory("1 s later");
}

static void finish_store(const struct test *test)
{
    (void)test;
    while (count > 0)
        remove_one();
    munmap(entries, MOST_ENTRIES * sizeof(*entries));
}

static const struct test fragmentation_tests[] = {
    {.name = "phase-change",
     .what = "a store of 64 MiB whose entries change in size five times; an op is one insertion",
     .ops = 5000000,
     .repetitions = 1,
     .cold = 1,
     .prepare = prepare_store,
     .run = run_store,
     .linger = shrink_store,
     .finish = finish_store},
    {0},
};
ADD_TESTS(fragmentation_tests)
