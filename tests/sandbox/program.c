/* Threads, a fork and an own exit status; prints sums of what the blocks hold. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, BLOCKS = 3000 };

static long fill(unsigned seed)
{
    unsigned char *blocks[BLOCKS];
    long sum = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t size = (i * 37 + seed) % 2000 + 1;
        blocks[i] = malloc(size);
        blocks[i][0] = blocks[i][size - 1] = (unsigned char)(i + seed);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        sum += blocks[i][(i * 37 + seed) % 2000];
        free(blocks[i]);
    }
    return sum;
}

static void *work(void *sum)
{
    *(long *)sum = fill((unsigned)*(long *)sum);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sums[THREADS];
    int status;
    for (int i = 0; i < THREADS; i++) {
        sums[i] = i;
        if (pthread_create(&threads[i], NULL, work, &sums[i]))
            return 1;
    }
    pid_t child = fork();
    if (child == 0)
        _exit(fill(7) > 0 ? 5 : 6);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("%ld\n", sums[i]);
    }
    return WEXITSTATUS(status) + 30;
}
