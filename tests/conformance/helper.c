/* With SHEAF_HELPER=1, memory is returned to the system while the program sleeps, also in a forked child. */
#include "../cases.h"
#include "../proc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 4, OBJECTS = 150000, MIB = 1 << 20, WAIT_SECONDS = CASE_SECONDS / 2 };

#ifdef MUCH_THREAD_LOCAL_DATA
/* The static TLS block lies on the helper thread's stack, which must be large enough for it. */
static _Thread_local volatile char thread_local_data[MIB];
#endif

static _Atomic size_t peak;

static void note_peak(void)
{
    size_t now = resident_bytes(), before = peak;
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
    pthread_barrier_wait(&all_have); /* otherwise threads that run in turn would reuse the same memory */
    note_peak();
    pthread_barrier_wait(&all_have);
    for (size_t i = 0; i < OBJECTS; i++)
        free(mine[i]);
    return NULL;
}

CASE(memory_is_returned_to_the_system_after_a_burst)
{
    pthread_t threads[THREADS];
    must(!pthread_barrier_init(&all_have, NULL, THREADS));
    for (size_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, burst, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    size_t now = resident_bytes();
    for (int tenths = 0; tenths < WAIT_SECONDS * 10 && now > peak / 2; tenths++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        now = resident_bytes();
    }
    dprintf(2, "# %zu MiB became %zu MiB\n", peak / MIB, now / MIB);
    must(now <= peak / 2); /* the array `objects` stays resident */
}

CASE(memory_is_returned_to_the_system_in_a_forked_child)
{
    free(malloc(100));
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        memory_is_returned_to_the_system_after_a_burst();
        _exit(0);
    }
    must_succeed(pid);
}

BEFORE_CASES(argv)
{
#ifdef MUCH_THREAD_LOCAL_DATA
    thread_local_data[MIB - 1] = 1;
#endif
}
