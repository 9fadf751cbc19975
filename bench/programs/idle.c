/*
 * A burst of work on several threads, then idle time. The test records how soon memory returns to the system if the
 * threads end, if they sleep, and if they leave a few objects scattered over the memory that they used. Modelled on
 * the idle-heap measurements in "Beyond malloc efficiency to fleet efficiency: a hugepage-aware memory allocator",
 * OSDI 2021.
 */
#include "../sleepers.h"
#include "../test.h"

#include <sys/mman.h>

enum { THREADS = 4, OBJECTS = 250000, EVERY = 500 };
enum after { ENDED, ASLEEP, SPARSE };

static struct bursting {
    void **objects; /* OBJECTS places */
    uint64_t seed;
    uint64_t bursts;
    enum after after;
} threads_state[THREADS];

static pthread_t threads[THREADS];

static void *burst(void *argument)
{
    struct bursting *me = argument;
    for (uint64_t n = 0; n < me->bursts; n++) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            if (me->objects[i] == NULL)
                me->objects[i] = take(random_small_size(&me->seed));
        }
        for (unsigned i = 0; i < OBJECTS; i++) {
            if (me->after == SPARSE && n == me->bursts - 1 && i % EVERY == 0)
                continue;
            give(me->objects[i]);
            me->objects[i] = NULL;
        }
    }
    if (me->after == ASLEEP)
        sleep_until_woken();
    return NULL;
}

static void prepare_burst(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < THREADS; i++)
        threads_state[i].objects = scratch(OBJECTS * sizeof(void *));
    note_memory("start");
}

static uint64_t run_burst(const struct test *test, uint64_t ops)
{
    enum after after = (enum after)test->count;
    uint64_t bursts = ops / ((uint64_t)THREADS * OBJECTS) + 1;
    for (unsigned i = 0; i < THREADS; i++) {
        threads_state[i].seed = i + 1;
        threads_state[i].bursts = bursts;
        threads_state[i].after = after;
        threads[i] = start_thread(i, burst, &threads_state[i]);
    }
    if (after == ASLEEP) {
        wait_for_sleepers(THREADS);
    } else {
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    note_memory("burst over");
    return bursts * THREADS * OBJECTS;
}

static void idle(const struct test *test)
{
    static const struct {
        unsigned until_ms;
        const char *name;
    } moments[] = {{100, "0.1 s"}, {250, "0.25 s"}, {500, "0.5 s"}, {1000, "1 s"},
                   {1500, NULL},   {2000, "2 s"},   {3000, NULL},   {5000, "5 s"}};
    (void)test;
    unsigned ms = 0;
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        sleep_ms(brief ? 1 : moments[i].until_ms - ms);
        ms = moments[i].until_ms;
        note_memory(moments[i].name);
    }
}

static void finish_burst(const struct test *test)
{
    if (test->count == ASLEEP) {
        wake_sleepers();
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned o = 0; o < OBJECTS; o++)
            give(threads_state[i].objects[o]);
        munmap(threads_state[i].objects, OBJECTS * sizeof(void *));
    }
}

#define IDLE(label, how, text)                                                                                       \
    {                                                                                                                \
        .name = "idle-" label, .what = "a burst on 4 threads, " text ", then 5 s idle; an op is one object",         \
        .ops = 6000000, .repetitions = 1, .cold = 1, .count = how, .prepare = prepare_burst, .run = run_burst,       \
        .linger = idle, .finish = finish_burst,                                                                      \
    }

static const struct test idle_tests[] = {
    IDLE("ended", ENDED, "which end"),
    IDLE("asleep", ASLEEP, "which then sleep"),
    IDLE("sparse", SPARSE, "which end and leave every 500th object"),
    {0},
};
ADD_TESTS(idle_tests)
