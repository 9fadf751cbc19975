/*
 * A server whose threads serve some requests, then end and pass their objects to a successor, which frees them.
 * Modelled on "Memory allocation for long-running server applications", ISMM 1998.
 */
#include "../test.h"

#include <sys/mman.h>

enum { LINES = 8, LIVES = 25, OBJECTS = 1000, LEAST = 16, MOST = 1024 };

static struct line {
    void **objects; /* OBJECTS places, NULL at first */
    uint64_t seed;
    uint64_t requests; /* for each thread */
    unsigned number;
    unsigned life;
    pthread_t lives[LIVES]; /* each thread writes the entry of its successor */
} lines[LINES];

static void *one_life(void *argument)
{
    struct line *line = argument;
    for (uint64_t i = 0; i < line->requests; i++) {
        void **place = &line->objects[(random_next(&line->seed) >> 32) % OBJECTS];
        look(*place);
        give(*place);
        *place = take(LEAST + (random_next(&line->seed) >> 32) % (MOST - LEAST));
    }
    unsigned next = ++line->life;
    if (next < LIVES)
        line->lives[next] = start_thread(line->number, one_life, line);
    return NULL;
}

static void prepare_server(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < LINES; i++)
        lines[i].objects = scratch(OBJECTS * sizeof(void *));
}

static uint64_t run_server(const struct test *test, uint64_t ops)
{
    uint64_t requests = ops / (test->count * LIVES) + 1;
    for (unsigned i = 0; i < test->count; i++) {
        struct line *line = &lines[i];
        *line = (struct line){.objects = line->objects, .seed = i + 1, .requests = requests, .number = i};
        line->lives[0] = start_thread(i, one_life, line);
    }
    for (unsigned i = 0; i < test->count; i++) {
        for (unsigned life = 0; life < LIVES; life++)
            pthread_join(lines[i].lives[life], NULL);
    }
    return requests * test->count * LIVES;
}

static void finish_server(const struct test *test)
{
    (void)test;
    for (unsigned i = 0; i < LINES; i++) {
        for (unsigned o = 0; o < OBJECTS; o++)
            give(lines[i].objects[o]);
        munmap(lines[i].objects, OBJECTS * sizeof(void *));
    }
}

#define SERVER(n, many)                                                                                              \
    {                                                                                                                \
        .name = "server-" #n,                                                                                        \
        .what =                                                                                                      \
            #n " lines of 25 threads, each of which replaces 1000 objects of its predecessor; an op is one object",  \
        .ops = many, .repetitions = 1, .cold = 1, .count = n, .prepare = prepare_server, .run = run_server,          \
        .finish = finish_server,                                                                                     \
    }

static const struct test server_tests[] = {
    SERVER(1, 24000000), SERVER(2, 40000000), SERVER(4, 40000000), SERVER(8, 40000000), {0}};
ADD_TESTS(server_tests)
