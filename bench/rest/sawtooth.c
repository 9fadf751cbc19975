/*
 * 100 MiB are allocated and freed again and again. The test measures the cost of memory that returns to the system
 * between the peaks, and the resident memory meanwhile. The time is the CPU time of all threads, which includes
 * threads of the allocator.
 */
#include "blocks.h"
#include "../test.h"

enum { SAMPLES = 8 };

struct sawtooth {
    enum kind kind;
    unsigned period_ms;
};

static struct blocks blocks;

static void prepare_sawtooth(const struct test *test)
{
    const struct sawtooth *shape = test->shape;
    blocks = (struct blocks){.kind = shape->kind, .count = blocks_for(shape->kind, (brief ? 1 : 100) << 20)};
    blocks.places = scratch(blocks.count * sizeof(void *));
    note_memory("start");
}

/* An op is one cycle. Memory is recorded in some cycles, with names in the last one. */
static uint64_t run_sawtooth(const struct test *test, uint64_t ops)
{
    const struct sawtooth *shape = test->shape;
    uint64_t bytes = blocks_bytes(&blocks), next_ns = now_ns();
    for (uint64_t cycle = 1; cycle <= ops; cycle++) {
        _Bool last = cycle == ops, noted = last || (cycle - 1) % (ops / SAMPLES + 1) == 0;
        blocks_fill(&blocks);
        bytes_live = bytes;
        if (noted)
            note_memory(last ? "peak" : NULL);
        blocks_empty(&blocks);
        bytes_live = 0;
        if (noted)
            note_memory(last ? "freed" : NULL);
        uint64_t freed_ns = now_ns();
        next_ns += (brief ? 1 : shape->period_ms) * UINT64_C(1000000);
        if (next_ns > freed_ns)
            sleep_ms((next_ns - freed_ns) / 1000000);
        else
            next_ns = freed_ns; /* late: begin the next cycle now */
        if (noted)
            note_memory(last ? "before the next" : NULL);
    }
    return ops;
}

#define SAWTOOTH(label, blocks, text, ms, period, cycles)                                                            \
    {                                                                                                                \
        .name = "sawtooth-" label, .ops = cycles, .repetitions = 1, .cold = 1, .timing = CPU_TIME,                   \
        .what =                                                                                                      \
            "100 MiB in blocks of " text " are allocated and freed every " period "; an op is one cycle (CPU time)", \
        .shape = &(const struct sawtooth){blocks, ms}, .prepare = prepare_sawtooth, .run = run_sawtooth,             \
    }

#define KIND(label, blocks, text)                                                                                    \
    SAWTOOTH(label "-20ms", blocks, text, 20, "20 ms", 60),                                                          \
        SAWTOOTH(label "-200ms", blocks, text, 200, "200 ms", 8),                                                    \
        SAWTOOTH(label "-2s", blocks, text, 2000, "2 s", 3)

static const struct test sawtooth_tests[] = {
    KIND("small", SMALL, "64 to 1563 bytes"),
    KIND("large", LARGE, "64 KiB to 4 MiB"),
    {0},
};
ADD_TESTS(sawtooth_tests)
