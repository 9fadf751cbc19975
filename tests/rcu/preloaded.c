/*
 * A program that uses malloc and libsheaf-rcu. It runs with Sheaf preloaded and without: in both cases objects are
 * kept while readers may use them and are free after a barrier.
 */
#include <urcu-bp.h>

#include "must.h"
#include "sheaf/rcu.h"

#include <malloc.h>
#include <pthread.h>

struct item {
    char data[200];
    struct rcu_head rcu;
};

enum { ITEMS = 2000 };

static _Atomic int state; /* 1: the reader is in its section, 2: it shall leave it */

static void *reader(void *unused)
{
    rcu_read_lock();
    state = 1;
    while (state == 1)
        usleep(1000);
    rcu_read_unlock();
    return unused;
}

/* Until 65536 objects wait, callers do not; from then on each call waits for a limited time. */
static void foreign_objects_are_bounded(void)
{
    enum { MOST = 65536, MORE = 5 };
    struct sheaf_rcu_stats before, after;
    pthread_t thread;
    must(!pthread_create(&thread, NULL, reader, NULL));
    while (!state)
        usleep(1000);
    sheaf_rcu_stats(&before);
    for (int i = 0; i < MOST + MORE; i++)
        kfree_rcu((struct item *)malloc(sizeof(struct item)), rcu);
    sheaf_rcu_stats(&after);
    must(after.single == MOST + MORE && after.waits - before.waits == MORE);
    state = 2;
    pthread_join(thread, NULL);
    kvfree_rcu_barrier();
}

int main(int argc, char **argv)
{
    bool sheaf = argc > 1 && !strcmp(argv[1], "sheaf");
    struct item *items[ITEMS];
    char *large = malloc(5 << 20);
    alarm(CASE_SECONDS);
    rcu_read_lock();
    memset(large, 7, 5 << 20);
    kfree_rcu(large);
    for (int i = 0; i < ITEMS; i++) {
        must(items[i] = malloc(sizeof(struct item)));
        memset(items[i], 7, sizeof(struct item));
        if (i % 2)
            kfree_rcu(items[i], rcu);
        else
            kvfree_rcu(items[i]);
    }
    for (int i = 0; i < ITEMS; i++) {
        void *p = malloc(sizeof(struct item));
        must(p);
        memset(p, 0x5a, sizeof(struct item));
        free(p);
    }
    for (int i = 0; i < ITEMS; i++)
        must(items[i]->data[0] == 7 && items[i]->data[199] == 7);
    must(large[0] == 7 && large[(5 << 20) - 1] == 7);
    struct sheaf_rcu_stats stats;
    sheaf_rcu_stats(&stats);
    must(sheaf ? stats.single == 0 && stats.bytes >= 5 << 20 : stats.single == ITEMS + 1 && stats.bytes == 0);
    rcu_read_unlock();
    kvfree_rcu_barrier();
    sheaf_rcu_stats(&stats);
    must(stats.single == 0 && stats.bytes == 0 && stats.sheaves == 0);
    if (!sheaf)
        foreign_objects_are_bounded();
    return 0;
}
