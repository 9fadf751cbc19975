/* Programs that are linked with libsheaf-malloc, shared or static, and not preloaded into. */
#define _GNU_SOURCE
#include "../cases.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>

enum { THREADS = 4, ROUNDS = 20000, KEPT = 64 };

/* Names of variables inside Sheaf: the program's own must not clash with them. */
int caches, hooks, space, sheaf_config, numa;

static void must_be_sheaf(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    must(f && malloc_info(0, f) == 0 && fclose(f) == 0);
    must(strstr(text, "allocator=\"sheaf\""));
    free(text);
}

CASE(sheaf_serves_malloc)
{
    size_t before = mallinfo2().uordblks;
    void *p = malloc(100000);
    must(p && mallinfo2().uordblks >= before + 100000);
    free(p);
    must(mallinfo2().uordblks < before + 100000);
    must_be_sheaf();
}

CASE(every_function_is_there)
{
    char *p = calloc(10, 10);
    must(p && p[99] == 0);
    must((p = realloc(p, 5000)) && malloc_usable_size(p) >= 5000);
    must((p = reallocarray(p, 100, 100)) && malloc_usable_size(p) >= 10000);
    free(p);
    void *aligned[] = {aligned_alloc(256, 1000), memalign(4096, 10), valloc(10), pvalloc(10), NULL};
    must(posix_memalign(&aligned[4], 1 << 16, 100) == 0);
    static const uintptr_t alignments[] = {256, 4096, 4096, 4096, 1 << 16};
    for (int i = 0; i < 5; i++) {
        must(aligned[i] && (uintptr_t)aligned[i] % alignments[i] == 0);
        free(aligned[i]);
    }
    must(!malloc(PTRDIFF_MAX) && errno == ENOMEM);
    must(malloc_trim(0) >= 0);
#ifdef __GLIBC__
    must(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
#endif
}

/* Memory from libc's own functions. */
CASE(libc_allocates_from_sheaf)
{
    size_t before = mallinfo2().uordblks;
    char *text = NULL;
    must(asprintf(&text, "%0100000d", 1) == 100000);
    must(mallinfo2().uordblks >= before + 100000);
    free(text);
    must((text = realpath("/", NULL)) && malloc_usable_size(text) >= 2);
    free(text);
}

static _Atomic(void *) shared[KEPT];

/* Exchanges blocks with the other threads, so that most are freed by a thread that did not allocate them. */
static void *work(void *number)
{
    unsigned random = (unsigned)(uintptr_t)number + 1;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        size_t size = (random >> 8) % 3000 + 1;
        unsigned char *p = malloc(size);
        must(p);
        p[0] = p[size - 1] = (unsigned char)size;
        free(__atomic_exchange_n((void **)&shared[random % KEPT], p, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

CASE(threads_exchange_blocks)
{
    run_threads();
    must_be_sheaf();
}

static _Atomic int stop;

static void *work_until_stopped(void *number)
{
    while (!stop)
        work(number);
    return NULL;
}

CASE(forks_while_threads_allocate)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, work_until_stopped, (void *)i) == 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            work(NULL);
            must_be_sheaf();
            _exit(0);
        }
        must(child > 0);
        must_succeed(child);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

CASE(child_of_vfork_may_allocate)
{
    pid_t child = vfork();
    if (child == 0) {
        free(malloc(1000));
        _exit(0);
    }
    must_succeed(child);
    free(malloc(1000));
}

CASE(commands_run)
{
    must(system("true") == 0);
    FILE *f = popen("echo text", "r");
    char line[16];
    must(f && fgets(line, sizeof(line), f) && !strcmp(line, "text\n") && pclose(f) == 0);
}
