/*
 * A burst of allocations, then idle time. The test records resident memory at the peak, after the last free, and
 * later, while the allocator is not called. A barrier between allocation and free keeps all blocks live at the same
 * time, so that the peak does not depend on scheduling. Nothing here allocates between the first free and the last
 * record.
 */
#include "../sleepers.h"
#include "blocks.h"
#include "../test.h"

enum { MOST_THREADS = 32, SMALL_BLOCKS = 240000, MIXED_BLOCKS = 20000, LARGE_BLOCKS = 160 };
enum after { ENDED, ASLEEP };

struct burst {
    enum kind kind;
    unsigned threads; /* 0 if the main thread does the work, in a process without other threads */
    enum after after;
    uint64_t live; /* bytes allocated before the burst, which stay live */
    unsigned points;
};

static const struct point {
    unsigned ms; /* since the last free */
    const char *name;
} points[] = {{20, NULL}, {100, "0.1 s"}, {300, "0.3 s"}, {600, NULL}, {1000, "1 s"}, {2000, NULL}, {3000, "3 s"}};
enum { TO_1_S = 5, TO_3_S = 7 };

static struct blocks live, parts[MOST_THREADS];
static pthread_t threads[MOST_THREADS];
static pthread_barrier_t peak, seen;
static enum after after;
static enum order order;

static void fill(const struct blocks *part)
{
    blocks_fill(part);
    if (order == SHUFFLED)
        blocks_shuffle(part);
}

static void *one_thread(void *argument)
{
    const struct blocks *part = argument;
    fill(part);
    pthread_barrier_wait(&peak);
    pthread_barrier_wait(&seen);
    blocks_empty(part);
    if (after == ASLEEP)
        sleep_until_woken();
    return NULL;
}

static void wait_for_threads(unsigned count)
{
    if (after == ENDED) {
        for (unsigned i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
        return;
    }
    wait_for_sleepers(count);
}

static void prepare_burst(const struct test *test)
{
    const struct burst *shape = test->shape;
    uint64_t kept = brief ? shape->live >> 8 : shape->live;
    live = (struct blocks){.kind = shape->kind, .count = blocks_for(shape->kind, kept)};
    parts[0].places = scratch((test->ops + live.count + 1) * sizeof(void *));
    live.places = parts[0].places + test->ops;
    note_memory("start");
    blocks_fill(&live);
    bytes_live = blocks_bytes(&live);
}

/* An op is one block. */
static uint64_t run_burst(const struct test *test, uint64_t ops)
{
    const struct burst *shape = test->shape;
    unsigned count = shape->threads ? shape->threads : 1;
    size_t each = (size_t)ops / count + (ops < count);
    uint64_t kept = bytes_live, used = 0;
    after = shape->after;
    order = test->order;
    for (unsigned i = 0; i < count; i++) {
        parts[i] = (struct blocks){shape->kind, i * each, each, parts[0].places + i * each};
        used += blocks_bytes(&parts[i]);
    }
    if (shape->threads) {
        pthread_barrier_init(&peak, NULL, count + 1);
        pthread_barrier_init(&seen, NULL, count + 1);
        for (unsigned i = 0; i < count; i++)
            threads[i] = start_thread(i, one_thread, &parts[i]);
        pthread_barrier_wait(&peak);
    } else {
        fill(&parts[0]);
    }
    bytes_live = kept + used;
    note_memory("peak");
    bytes_live = kept;
    if (shape->threads) {
        pthread_barrier_wait(&seen);
        wait_for_threads(count);
    } else {
        blocks_empty(&parts[0]);
    }
    note_memory("freed");
    return each * count;
}

static void idle(const struct test *test)
{
    const struct burst *shape = test->shape;
    uint64_t freed_ms = now_ns() / 1000000;
    for (unsigned i = 0; i < shape->points; i++) {
        uint64_t now_ms = now_ns() / 1000000, until_ms = freed_ms + points[i].ms;
        if (now_ms < until_ms)
            sleep_ms(brief ? 1 : until_ms - now_ms);
        note_memory(points[i].name);
    }
}

static void finish_burst(const struct test *test)
{
    const struct burst *shape = test->shape;
    if (shape->threads && after == ASLEEP) {
        wake_sleepers();
        for (unsigned i = 0; i < shape->threads; i++)
            pthread_join(threads[i], NULL);
    }
    blocks_empty(&live);
}

#define BURST(label, blocks, text, how_many, how, free_order, kept, to)                                              \
    {                                                                                                                \
        .name = "burst-" label, .what = text "; an op is one block", .ops = blocks##_BLOCKS, .repetitions = 1,       \
        .cold = 1, .timing = NO_TIME, .order = free_order,                                                           \
        .shape = &(const struct burst){blocks, how_many, how, kept, to}, .prepare = prepare_burst, .run = run_burst, \
        .linger = idle, .finish = finish_burst,                                                                      \
    }
#define LIVE ((uint64_t)100 << 20)

/* The tests for one kind of blocks: without threads, and with 1, 4 and 32 threads. */
#define KIND(label, blocks, text)                                                                                    \
    BURST(label "-alone", blocks, text " in a process without threads", 0, ENDED, FIFO, 0, TO_1_S),                  \
        BURST(label "-1-ended", blocks, text " by 1 thread, which ends", 1, ENDED, FIFO, 0, TO_1_S),                 \
        BURST(label "-4-ended", blocks, text " by 4 threads, which end", 4, ENDED, FIFO, 0, TO_3_S),                 \
        BURST(label "-4-asleep", blocks, text " by 4 threads, which then sleep", 4, ASLEEP, FIFO, 0, TO_1_S),        \
        BURST(label "-32-ended", blocks, text " by 32 threads, which end", 32, ENDED, FIFO, 0, TO_1_S),              \
        BURST(label "-32-asleep", blocks, text " by 32 threads, which then sleep", 32, ASLEEP, FIFO, 0, TO_1_S)

#define SMALL_TEXT "240000 blocks of 64 to 1563 bytes"
#define MIXED_TEXT "20000 blocks of 16 bytes to 64 KiB"
#define LARGE_TEXT "160 blocks of 64 KiB to 4 MiB"
#define RANDOM     ", freed in random order, by 4 threads, which end"
#define KEPT       " beside 100 MiB of live blocks, "

static const struct test burst_tests[] = {
    KIND("small", SMALL, SMALL_TEXT),
    BURST("small-1-asleep", SMALL, SMALL_TEXT " by 1 thread, which then sleeps", 1, ASLEEP, FIFO, 0, TO_1_S),
    BURST("small-4-random", SMALL, SMALL_TEXT RANDOM, 4, ENDED, SHUFFLED, 0, TO_1_S),
    BURST("small-alone-live", SMALL, SMALL_TEXT KEPT "in a process without threads", 0, ENDED, FIFO, LIVE, TO_1_S),
    BURST("small-4-live", SMALL, SMALL_TEXT KEPT "by 4 threads, which end", 4, ENDED, FIFO, LIVE, TO_1_S),
    BURST("small-4-live-random", SMALL, SMALL_TEXT KEPT "freed in random order, by 4 threads, which end", 4, ENDED,
          SHUFFLED, LIVE, TO_1_S),
    KIND("mixed", MIXED, MIXED_TEXT),
    BURST("mixed-4-random", MIXED, MIXED_TEXT RANDOM, 4, ENDED, SHUFFLED, 0, TO_1_S),
    BURST("mixed-4-live", MIXED, MIXED_TEXT KEPT "by 4 threads, which end", 4, ENDED, FIFO, LIVE, TO_1_S),
    KIND("large", LARGE, LARGE_TEXT),
    BURST("large-4-random", LARGE, LARGE_TEXT RANDOM, 4, ENDED, SHUFFLED, 0, TO_1_S),
    BURST("large-4-live", LARGE, LARGE_TEXT KEPT "by 4 threads, which end", 4, ENDED, FIFO, LIVE, TO_1_S),
    {0},
};
ADD_TESTS(burst_tests)
