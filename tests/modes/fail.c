/* SHEAF_FAIL: which allocations fail, with which errno, and what is printed. Runs on the preloaded object. */
#define _GNU_SOURCE
#include "option.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#define ODD 1234 /* a size that libc itself does not allocate, so that cases can select by it */
static _Thread_local void *volatile kept; /* keeps the compiler from removing allocations */

#define FAIL(list)           "SHEAF_FAIL=" list
#define BAD(name, list, why) BAD_VALUE(other_programs_do_not_fail, bad_list_##name, "SHEAF_FAIL", list, why)

static int fails(size_t n)
{
    errno = 0;
    kept = malloc(n);
    must(kept || errno == ENOMEM);
    int failed = !kept;
    free(kept);
    return failed;
}

OPTION_CASE(nth_allocation_fails, FAIL("size=1234,nth=5"), 0,
            "allocation 5 fails (1234 bytes of malloc-1280); nth=5 repeats it\n", ": 1 of 20 allocations")
{
    for (int i = 1; i <= 20; i++)
        must(fails(ODD) == (i == 5));
}

OPTION_CASE(every_entry_point_fails, FAIL("size=1234"), 0, ": 8 of 8 allocations")
{
    void *p = (void *)16, *old;
    errno = 0;
    must(!malloc(ODD) && errno == ENOMEM);
    errno = 0;
    must(!calloc(1, ODD) && errno == ENOMEM);
    errno = 0;
    must(!aligned_alloc(64, ODD) && errno == ENOMEM);
    errno = 0;
    must(!memalign(64, ODD) && errno == ENOMEM);
    errno = 0;
    must(!valloc(ODD) && errno == ENOMEM);
    errno = 0;
    must(posix_memalign(&p, 64, ODD) == ENOMEM && p == (void *)16 && errno == 0);
    must((old = malloc(100)));
    memset(old, 7, 100);
    errno = 0;
    must(!realloc(old, ODD) && errno == ENOMEM);
    must(((char *)old)[99] == 7); /* the old block is unchanged */
    errno = 0;
    must(!reallocarray(old, 1, ODD) && errno == ENOMEM);
    must(realloc(old, 50)); /* another size */
    must(malloc(ODD + 1) && malloc(ODD - 1));
}

OPTION_CASE(large_blocks_fail, FAIL("cache=malloc-large,size=1M-"), 0, "3145728 bytes of malloc-large", ": 5 of 5")
{
    void *p = malloc(100000), *q;
    must(p);
    errno = 0;
    must(!malloc(3 << 20) && errno == ENOMEM);
    must(!calloc(3, 1 << 20) && !aligned_alloc(1 << 20, 3 << 20));
    must(posix_memalign(&q, 4096, 3 << 20) == ENOMEM);
    must(!realloc(p, 3 << 20));
    must((p = realloc(p, 200000)));
    free(p);
}

OPTION_CASE(probability_with_a_seed, FAIL("size=1234,probability=25,seed=7,verbose=0"), 0,
            "failed 2594, pattern 811207c046c9480c\n", ": 2594 of 10000 allocations", "; seed=7 repeats them")
{
    unsigned failed = 0;
    uint64_t pattern = 0;
    for (int i = 0; i < 10000; i++) {
        int f = fails(ODD);
        failed += (unsigned)f;
        if (i < 64)
            pattern |= (uint64_t)f << i;
    }
    /* With this seed the same allocations fail on every machine; the expected output has the pattern. */
    dprintf(2, "failed %u, pattern %016llx\n", failed, (unsigned long long)pattern);
    must(failed > 2300 && failed < 2700);
}

OPTION_CASE(interval_and_times, FAIL("size=1234,interval=10,times=2"), 0, ": 2 of 30")
{
    for (int i = 1; i <= 30; i++)
        must(fails(ODD) == (i == 10 || i == 20));
}

OPTION_CASE(allocations_after_the_tenth_fail, FAIL("size=1234,after=10"), 0, ": 20 of 30")
{
    for (int i = 1; i <= 30; i++)
        must(fails(ODD) == (i > 10));
}

OPTION_CASE(allocations_after_10K_fail, FAIL("size=1024,space=10K"), 0, ": 20 of 30")
{
    for (int i = 1; i <= 30; i++)
        must(fails(1024) == (i > 10));
}

OPTION_CASE(only_the_listed_caches_fail, FAIL("cache=malloc-288,cache=malloc-320,verbose=0"), 0,
            " of 189 allocations")
{
    for (int i = 0; i < 1000; i++)
        must(fails(i % 320) == (i % 320 > 256));
    must(!fails(ODD) && !fails(1 << 20));
}

OPTION_CASE(caches_that_match_a_pattern_fail, FAIL("cache=malloc-5*,cache=malloc-l?rge"), 0, ": 3 of 3")
{
    must(fails(512) && fails(5120) && !fails(200) && fails(1 << 20));
}

static void *in_thread(void *counter)
{
    for (int i = 0; i < 5000; i++)
        __atomic_fetch_add((int *)counter, fails(ODD), __ATOMIC_RELAXED);
    return NULL;
}

OPTION_CASE(threads_share_one_count, FAIL("size=1234,interval=100,verbose=0"), 0, ": 200 of 20000")
{
    pthread_t t[4];
    int failed = 0;
    for (int i = 0; i < 4; i++)
        must(pthread_create(&t[i], NULL, in_thread, &failed) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    must(failed == 20000 / 100);
}

/* The child continues with its parent's count. */
OPTION_CASE(children_continue_the_count, FAIL("size=1234,nth=3"), 0, "allocation 3 fails", "allocation 3 fails",
            ": 1 of 3")
{
    must(!fails(ODD) && !fails(ODD));
    pid_t pid = fork();
    if (pid == 0)
        _exit(fails(ODD) && !fails(ODD) ? 0 : 1);
    must_succeed(pid);
    must(fails(ODD));
}

static volatile int handled;
static void handler(int signal)
{
    (void)signal;
    handled += fails(ODD);
}

OPTION_CASE(allocations_in_signal_handlers_fail, FAIL("size=1234,interval=2,verbose=0"), 0, ": 50 of 100")
{
    signal(SIGUSR1, handler);
    for (int i = 0; i < 100; i++) {
        raise(SIGUSR1);
        kept = malloc(64);
        free(kept);
    }
    must(handled == 50);
}

OPTION_CASE(other_programs_do_not_fail, FAIL("program=someone,probability=100"), 0, NULL)
{
    for (int i = 0; i < 1000; i++)
        must(!fails(ODD));
}

OPTION_CASE_OF(nth_allocation_fails, the_named_program_fails, FAIL("program=e?e,size=1234,nth=5"), 0, ": 1 of 20")
OPTION_CASE_OF(other_programs_do_not_fail, probability_0_fails_nothing, FAIL("probability=0,size=1234"), 0,
               ": 0 of 1000")
BAD(empty_list, "", "an empty list; give NAME=VALUE")
BAD(unknown_name, "often=1", "no such name; give NAME=VALUE,... of probability")
BAD(no_number, "nth=x", "not a number; give numbers")
BAD(blank_after_a_value, "space=1 ", "extra characters after a value")
BAD(probability_above_100, "probability=101", "PERCENT")
BAD(text_after_a_value, "nth=5x", "after a value")
BAD(final_comma, "nth=5,", "after a value")
BAD(inverted_range, "size=9-3", "size=N")
BAD(interval_0, "interval=0", "an interval of 0; give interval=N")
