/* Other flavours than bp, which the program selects when it starts: -DFLAVOR_MEMB, -DFLAVOR_MB, -DFLAVOR_QSBR. */
#if defined(FLAVOR_QSBR)
#include <urcu-qsbr.h>
#else
#ifdef FLAVOR_MB
#define RCU_MB
#endif
#include <urcu.h>
#endif

#include "must.h"
#include "sheaf/malloc.h"
#include "sheaf/rcu.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic int state;
static unsigned char *held[100];

static void *reader(void *unused)
{
    rcu_register_thread();
    rcu_read_lock();
    atomic_store(&state, 1);
    while (atomic_load(&state) == 1)
        usleep(200);
    for (int i = 0; i < 100; i++)
        must(held[i][0] == 1);
    rcu_read_unlock();
    rcu_unregister_thread();
    return unused;
}

int main(void)
{
    pthread_t thread;
    alarm(CASE_SECONDS);
    must(sheaf_rcu_flavor(&rcu_flavor) == 0);
    rcu_register_thread();
    for (int i = 0; i < 100; i++)
        must(held[i] = memset(sheaf_malloc(64), 1, 64));
    must(!pthread_create(&thread, NULL, reader, NULL));
    while (!atomic_load(&state))
        usleep(200);
    sheaf_rcu_tune(65536, 0);
    for (int i = 0; i < 100; i++)
        kfree_rcu(held[i]);
    must(sheaf_rcu_flavor(&rcu_flavor) != 0);
    for (int i = 0; i < 300; i++)
        memset(sheaf_malloc(64), 2, 64);
    atomic_store(&state, 2);
    kvfree_rcu_barrier();
    pthread_join(thread, NULL);
    struct sheaf_rcu_stats stats;
    sheaf_rcu_stats(&stats);
    must(stats.grace_periods > 0 && stats.bytes == 0);
    rcu_unregister_thread();
    return 0;
}
