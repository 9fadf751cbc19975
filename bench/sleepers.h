/* Threads that finish their work and then sleep until the end of a test, so that the allocator keeps their caches. */
#ifndef BENCH_SLEEPERS_H
#define BENCH_SLEEPERS_H

/* Called by a thread after its work; returns after wake_sleepers(). */
void sleep_until_woken(void);

/* Waits until `count` threads sleep. */
void wait_for_sleepers(unsigned count);

/* Wakes all sleeping threads. Later calls of sleep_until_woken() return at once. */
void wake_sleepers(void);

#endif
