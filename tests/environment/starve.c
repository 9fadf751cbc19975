/*
 * From the middle of a run on the system refuses all requests: allocations are served from the memory that is
 * mapped, others fail with ENOMEM, and no block is lost. Usage: starve [CASE]
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "filter.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { BLOCKS = 4000 };

static void *block[BLOCKS];

static size_t size_of(size_t i)
{
    return i % 97 == 0 ? 300000 : i * 7 % 5000 + 1;
}

static void fill_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        must(block[i] = malloc(size_of(i)));
        memset(block[i], (int)(i & 255), size_of(i));
    }
}

static void check_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        const unsigned char *p = block[i];
        must(p[0] == (i & 255) && p[size_of(i) / 2] == (i & 255) && p[size_of(i) - 1] == (i & 255));
    }
}

static void free_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        free(block[i]);
}

static void withhold(const char *const *rules)
{
    for (; *rules; rules++)
        filter_add(*rules);
    if (filter_install())
        _exit(CASE_SKIPPED);
}

static void nothing_more(void)
{
    static const char *const rules[] = {"mmap=ENOMEM",      "munmap=ENOMEM",   "mremap=ENOMEM",
                                        "madvise=ENOMEM",   "mprotect=ENOMEM", "openat=EPERM",
                                        "membarrier=EPERM", "getcpu=ENOSYS",   NULL};
    withhold(rules);
}

/* Memory that has been freed is reused without any system call. */
CASE(goes_on_without_any_call)
{
    fill_all();
    size_t used = mallinfo2().uordblks;
    nothing_more();
    for (int round = 0; round < 20; round++) {
        check_all();
        free_all();
        fill_all();
    }
    check_all();
    must(mallinfo2().uordblks == used);
    free_all();
    malloc_trim(0); /* cannot return memory, but must do no harm */
    fill_all();
    check_all();
}

CASE(madvise_and_munmap_refused)
{
    static const char *const rules[] = {"madvise=ENOMEM", "munmap=ENOMEM", NULL};
    void *some[] = {malloc(100), malloc(200000), malloc(300 << 20), memalign(1 << 21, 1 << 22)};
    withhold(rules);
    for (int i = 0; i < 4; i++) {
        errno = 1234;
        free(memset(some[i], 1, 100));
        must(errno == 1234);
    }
    for (int round = 0; round < 10; round++) {
        fill_all();
        check_all();
        free_all();
        malloc_trim(0);
    }
    for (int i = 0; i < 1000; i++) { /* calloc() must clear pages that could not be returned to the system */
        unsigned char *p = calloc(1, size_of((size_t)i));
        for (size_t k = 0; k < size_of((size_t)i); k++)
            must(p[k] == 0);
        memset(p, 0xff, size_of((size_t)i));
        free(p);
        malloc_trim(0);
    }
}

CASE(mremap_refused)
{
    static const char *const rules[] = {"mremap=EINVAL", NULL};
    withhold(rules);
    unsigned char *p = NULL;
    size_t old = 0;
    for (size_t n = 1 << 20; n < (200u << 20); old = n, n += n / 2) {
        must(p = realloc(p, n));
        free(malloc(n / 2));
        for (size_t i = 0; i < old; i += 1021)
            must(p[i] == (unsigned char)(i >> 10));
        for (size_t i = 0; i < n; i += 1021)
            p[i] = (unsigned char)(i >> 10);
        must(malloc(2 << 20)); /* keeps the block from growing in place */
    }
    free(p);
}

/* A request for more than is mapped fails when the system refuses memory. */
CASE(more_than_mapped_is_ENOMEM)
{
    fill_all();
    free_all();
    nothing_more();
    errno = 0;
    void *volatile p = malloc((size_t)1 << 46);
    must(!p && errno == ENOMEM);
    volatile size_t align = (size_t)1 << 45;
    void *volatile q = memalign(align, 100);
    must(!q && errno == ENOMEM);
    fill_all();
    check_all();
    free_all();
}

static _Atomic bool stop;

static void *busy(void *seed)
{
    size_t i = (size_t)seed;
    void *p[64] = {0};
    while (!atomic_load(&stop)) {
        i = i * 2862933555777941757u + 3037000493u;
        size_t n = (i >> 40) % 3000 + 1, k = (i >> 20) % 64;
        free(p[k]);
        must(p[k] = malloc(n));
        memset(p[k], 1, n);
    }
    for (int k = 0; k < 64; k++)
        free(p[k]);
    return NULL;
}

/* A remote drain needs membarrier. Without it, trimming leaves the sheaves of slots that are in use alone. */
CASE(threads_without_membarrier)
{
    static const char *const rules[] = {"membarrier=EPERM", NULL};
    pthread_t t[4];
    withhold(rules);
    size_t before = mallinfo2().uordblks;
    for (size_t i = 0; i < 4; i++)
        must(!pthread_create(&t[i], NULL, busy, (void *)(i + 1)));
    for (int i = 0; i < 20; i++) {
        malloc_trim(0);
        usleep(1000);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    must(mallinfo2().uordblks < before + 20000);
}
