#include "sleepers.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned asleep;
static _Bool woken;

void sleep_until_woken(void)
{
    pthread_mutex_lock(&lock);
    asleep++;
    pthread_cond_broadcast(&changed);
    while (!woken)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void wait_for_sleepers(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (asleep < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void wake_sleepers(void)
{
    pthread_mutex_lock(&lock);
    woken = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
