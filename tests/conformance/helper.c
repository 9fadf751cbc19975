/* SHEAF_HELPER=1: memory goes back while the program does nothing, also in a forked child. */
#include "../cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, OBJECTS = 150000, MIB = 1 << 20, WAIT_SECONDS = CASE_SECONDS / 2 };

#ifdef MUCH_THREAD_LOCAL_DATA
/* A program may have more of it than the helper's thread needs for its stack. */
static _Thread_local volatile char thread_local_data[MIB];
#endif

static size_t resident(void)
{
    char text[64] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    must(f && fgets(text, sizeof(text), f));
    fclose(f);
    size_t pages = strtoul(strchr(text, ' '), NULL, 10);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static _Atomic size_t peak;

static void note_peak(void)
{
    size_t now = resident(), before = peak;
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now)) {
    }
}

static pthread_barrier_t all_have;

static void *burst(void *number)
{
    static void *objects[THREADS][OBJECTS];
    void **mine = objects[(size_t)number];
    for (size_t i = 0; i < OBJECTS; i++)
        must(mine[i] = malloc(16 + (i * 7919) % 240));
    pthread_barrier_wait(&all_have); /* or threads after one another would use the same memory */
    note_peak();
    pthread_barrier_wait(&all_have);
    for (size_t i = 0; i < OBJECTS; i++)
        free(mine[i]);
    return NULL;
}

static void idle_after_burst(void)
{
    pthread_t threads[THREADS];
    must(!pthread_barrier_init(&all_have, NULL, THREADS));
    for (size_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, burst, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    size_t now = resident();
    for (int tenths = 0; tenths < WAIT_SECONDS * 10 && now > peak / 2; tenths++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        now = resident();
    }
    dprintf(2, "# %zu MiB became %zu MiB\n", peak / MIB, now / MIB);
    must(now <= peak / 2); /* what `objects` takes stays */
}

static void idle_child(void)
{
    free(malloc(100));
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        idle_after_burst();
        _exit(0);
    }
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
#ifdef MUCH_THREAD_LOCAL_DATA
    thread_local_data[MIB - 1] = 1;
#endif
    static const struct test_case cases[] = {
        {"memory goes back after a burst", idle_after_burst},
        {"memory goes back in a child too", idle_child},
    };
    return run_cases(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
