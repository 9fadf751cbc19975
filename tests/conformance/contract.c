/*
 * The C library's contract for malloc and its relatives, corner cases included. Where releases of glibc differ,
 * the newest one's behaviour is expected. Usage: contract [CASE]
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../proc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

static volatile size_t huge = (size_t)PTRDIFF_MAX + 1; /* volatile, or the compiler folds the calls */

CASE(too_large_sizes_fail_with_ENOMEM)
{
    const size_t sizes[] = {huge, huge + 1, SIZE_MAX - 4096, SIZE_MAX - 1, SIZE_MAX};
    for (int i = 0; i < 5; i++) {
        void *p = malloc(10);
        errno = 0;
        must(!malloc(sizes[i]) && errno == ENOMEM);
        errno = 0;
        must(!calloc(1, sizes[i]) && errno == ENOMEM);
        errno = 0;
        must(!calloc(sizes[i], 2) && errno == ENOMEM);
        errno = 0;
        must(!calloc(2, sizes[i]) && errno == ENOMEM);
        errno = 0;
        must(!calloc(sizes[i], sizes[i]) && errno == ENOMEM);
        errno = 0;
        memcpy(p, "kept", 5);
        must(!realloc(p, sizes[i]) && errno == ENOMEM && !strcmp(p, "kept"));
        errno = 0;
        must(!reallocarray(p, 2, sizes[i]) && errno == ENOMEM && !strcmp(p, "kept"));
        errno = 0;
        must(!reallocarray(p, sizes[i], 3) && errno == ENOMEM && !strcmp(p, "kept"));
        errno = 0;
        must(!memalign(64, sizes[i]) && errno == ENOMEM);
        errno = 0;
        must(!pvalloc(sizes[i]) && errno == ENOMEM);
        errno = 0;
        must(!valloc(sizes[i]) && errno == ENOMEM);
        errno = 77;
        void *out = p;
        must(posix_memalign(&out, 64, sizes[i]) == ENOMEM && out == p && errno == 77);
        free(p);
    }
}

CASE(zero_sizes)
{
    void *a = malloc(0), *b = malloc(0);
    must(a && b && a != b);
    must(!realloc(a, 0));
    void *p = realloc(NULL, 100);
    must(p && malloc_usable_size(p) >= 100);
    void *c = calloc(0, 10), *d = calloc(10, 0);
    must(c && d && c != d);
    free(b), free(c), free(d), free(p);
    free(NULL);
    must(malloc_usable_size(NULL) == 0);
}

CASE(every_size_up_to_40000)
{
    for (size_t n = 0; n <= 40000; n++) {
        unsigned char *p = malloc(n);
        must(p && malloc_usable_size(p) >= n && malloc_usable_size(p) == malloc_usable_size(p));
        must((uintptr_t)p % (n >= 16 ? 16 : n > 8 ? 16 : 8) == 0);
        memset(p, (int)n, malloc_usable_size(p));
        free(p);
    }
}

CASE(calloc_zeroes_reused_memory)
{
    for (size_t n = 1; n < 200000; n = n * 5 / 4 + 1) {
        unsigned char *p = malloc(n);
        memset(p, 0xff, malloc_usable_size(p));
        free(p);
        p = calloc(1, n);
        for (size_t i = 0; i < n; i++)
            must(p[i] == 0);
        free(p);
    }
}

CASE(realloc_keeps_contents)
{
    unsigned char *p = NULL;
    size_t old = 0;
    for (size_t n = 1; n < (20u << 20); old = n, n = n * 9 / 8 + 1) {
        p = realloc(p, n);
        must(p);
        free(malloc(n)); /* takes part in making realloc() move the block */
        for (size_t i = 0; i<old; i += old> 65536 ? 4093 : 7)
            must(p[i] == (unsigned char)(i * 3));
        for (size_t i = 0; i < n; i++)
            p[i] = (unsigned char)(i * 3);
    }
    for (size_t n = old; n > 1; n = n * 7 / 9) {
        p = realloc(p, n);
        must(p);
        for (size_t i = 0; i<n; i += n> 65536 ? 4093 : 7)
            must(p[i] == (unsigned char)(i * 3));
    }
    free(p);
}

CASE(realloc_grows_calloc_blocks)
{
    for (size_t n = 100; n < (4u << 20); n *= 7) {
        unsigned char *p = calloc(1, n);
        memset(p, 9, n / 2);
        p = realloc(p, n * 5);
        for (size_t i = 0; i < n; i++)
            must(p[i] == (i < n / 2 ? 9 : 0));
        p = reallocarray(p, n, 2);
        must(p && p[n / 2 - 1] == 9 && p[n - 1] == 0);
        free(p);
    }
}

CASE(realloc_byte_by_byte)
{
    unsigned char *p = NULL;
    for (size_t n = 1; n < 300000; n++) {
        p = realloc(p, n);
        p[n - 1] = (unsigned char)n;
    }
    for (size_t n = 1; n < 300000; n++)
        must(p[n - 1] == (unsigned char)n);
    free(p);
}

CASE(alignments)
{
    size_t bad[] = {0, 3, 65, huge + 8};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        must(!aligned_alloc(bad[i], 64) && errno == EINVAL);
    }
    must(!aligned_alloc(huge, 64));
    void *out = &bad;
    errno = 5;
    must(posix_memalign(&out, 0, 8) == EINVAL && posix_memalign(&out, 3, 8) == EINVAL &&
         posix_memalign(&out, 4, 8) == EINVAL);
    must(out == &bad && errno == 5);
    for (size_t align = 1; align <= (1ul << 30); align *= 2)
        for (int k = 0; k < 3; k++) {
            size_t n = k == 0 ? 1 : k == 1 ? 100 : align + 13;
            char *p = aligned_alloc(align, n), *q = memalign(align, n);
            must(p && q && (uintptr_t)p % align == 0 && (uintptr_t)q % align == 0);
            p[0] = q[0] = p[n - 1] = q[n - 1] = 1;
            free(p), free(q);
            p = memalign(align, 0); /* a block of zero bytes must not overlap another one */
            must(p && (uintptr_t)p % align == 0);
            memset(p, 1, malloc_usable_size(p));
            free(p);
        }
    volatile size_t tebibyte = 1ul << 40;
    char *t = memalign(tebibyte, 100); /* may succeed or fail, but must not crash */
    if (t) {
        must((uintptr_t)t % tebibyte == 0);
        t[99] = 1;
    }
    free(t);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *v = valloc(1), *w = pvalloc(1), *z = valloc(0);
    must((uintptr_t)v % page == 0 && (uintptr_t)w % page == 0 && malloc_usable_size(w) >= page && z);
    free(v), free(w), free(z);
}

CASE(free_keeps_errno)
{
    void *p[] = {malloc(10), malloc(5000), malloc(200000), malloc(100 << 20), memalign(1 << 21, 1 << 22)};
    for (int i = 0; i < 5; i++) {
        errno = 1234;
        free(p[i]);
        must(errno == 1234);
    }
}

CASE(sized_frees)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    must(free_sized && free_aligned && cfree);
    free_sized(NULL, 0);
    free_aligned(NULL, 0, 0);
    void *p = realloc(malloc(100), 3000);
    free_sized(p, 3000);
    free_sized(realloc(malloc(3000), 10), 10);
    free_aligned(aligned_alloc(256, 1000), 256, 1000);
    cfree(malloc(3));
}

CASE(all_libc_names_are_replaced)
{
    static const char *const names[] = {"__libc_malloc",
                                        "__libc_calloc",
                                        "__libc_realloc",
                                        "__libc_free",
                                        "__libc_memalign",
                                        "__libc_valloc",
                                        "__libc_pvalloc",
                                        "malloc_trim",
                                        "malloc_info",
                                        "malloc_stats",
#ifdef __GLIBC__
                                        "mallinfo",
                                        "mallinfo2",
                                        "mallopt",
#endif
                                        "_Znwm",
                                        "_ZdlPvmSt11align_val_t",
                                        "_ZnamSt11align_val_tRKSt9nothrow_t",
                                        "_ZdaPvSt11align_val_tRKSt9nothrow_t"};
    Dl_info ours, theirs;
    must(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &ours));
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        void *symbol = dlsym(RTLD_DEFAULT, names[i]);
        must(symbol && dladdr(symbol, &theirs) && !strcmp(ours.dli_fname, theirs.dli_fname));
    }
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");
    free(libc_malloc(100));
}

CASE(mallinfo_counts)
{
    struct mallinfo2 a = mallinfo2();
    void *small[1000], *large = malloc(10 << 20);
    for (int i = 0; i < 1000; i++)
        small[i] = malloc(1000);
    struct mallinfo2 b = mallinfo2();
    must(b.uordblks >= a.uordblks + (10 << 20) + 1000 * 1000 && b.uordblks < a.uordblks + (14 << 20));
    must(b.hblkhd >= a.hblkhd + (10 << 20) && b.hblks == a.hblks + 1);
    for (int i = 0; i < 1000; i++)
        free(small[i]);
    free(large);
    must(mallinfo2().uordblks == a.uordblks);
    must(mallinfo().uordblks >= 0);
}

CASE(malloc_info_is_xml)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    must(f && malloc_info(0, f) == 0 && fclose(f) == 0);
    must(!strncmp(text, "<malloc version=\"1\"", 18) && strstr(text, "</malloc>\n"));
    int depth = 0; /* a crude count that every element is closed */
    for (char *c = text; *c; c++)
        depth += *c == '<' ? (c[1] == '/' ? -1 : 1) : *c == '/' && c[1] == '>' ? -1 : 0;
    must(depth == 0);
    free(text);
    must(malloc_info(1, stdout) == -1 && errno == EINVAL);
#ifdef __GLIBC__
    must(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1 && mallopt(12345, 0) == 0);
#endif
}

CASE(trim_returns_memory_to_the_system)
{
    enum { N = 20000 };
    static void *p[N];
    size_t before = resident_bytes();
    for (int i = 0; i < N; i++)
        p[i] = memset(malloc(3000), 1, 3000);
    size_t full = resident_bytes();
    for (int i = 0; i < N; i++)
        free(p[i]);
    must(malloc_trim(0) == 1);
    must(full > before + (50 << 20) && resident_bytes() < before + (4 << 20));
}

static void *burst(void *unused)
{
    void *p[100];
    for (int i = 0; i < 100; i++)
        p[i] = memset(malloc((size_t)i * 50), 1, (size_t)i * 50);
    for (int i = 0; i < 100; i++)
        free(p[i]);
    return unused;
}

CASE(ended_threads_leave_no_memory_behind)
{
    size_t settled = 0;
    for (int round = 0; round < 480; round++) {
        pthread_t t[50];
        for (int i = 0; i < 50; i++)
            must(!pthread_create(&t[i], NULL, burst, NULL));
        for (int i = 0; i < 50; i++)
            pthread_join(t[i], NULL);
        if (round == 80) /* by now the capacity of the sheaves fits the traffic */
            settled = resident_bytes();
    }
    /* Sheaves may still grow within the slots' budgets. A leak of 1 KiB for each thread would be 20 MiB. */
    must(resident_bytes() < settled + (12 << 20));
}

static pthread_key_t key;

static void destructor(void *p)
{
    static __thread int again;
    free(p);
    if (again++ < 3)
        pthread_setspecific(key, malloc(100));
}

static void *with_key(void *unused)
{
    pthread_setspecific(key, malloc(50));
    return unused;
}

CASE(thread_destructors)
{
    must(!pthread_key_create(&key, destructor));
    for (int i = 0; i < 500; i++) {
        pthread_t t;
        must(!pthread_create(&t, NULL, with_key, NULL) && !pthread_join(t, NULL));
    }
}

CASE(malloc_beyond_the_limit_fails_with_ENOMEM)
{
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = 200 << 20;
    must(!setrlimit(RLIMIT_DATA, &limit));
    errno = 0;
    void *volatile p = malloc(1ul << 45);
    must(!p && errno == ENOMEM);
    free(malloc(100));
}

CASE(forked_children_allocate_and_free)
{
    for (int i = 0; i < 50; i++) {
        void *mine = malloc(5000);
        memset(mine, i, 5000);
        pid_t pid = fork();
        if (pid == 0) {
            for (int k = 0; k < 1000; k++)
                free(malloc((size_t)k * 10));
            free(mine);
            _exit(0);
        }
        must_succeed(pid);
        must(((char *)mine)[4999] == (char)i);
        free(mine);
    }
}
