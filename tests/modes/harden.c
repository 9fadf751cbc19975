/* SHEAF_HARDEN: each protection is shown by a fault that it must catch. Runs on the preloaded object. */
#define _GNU_SOURCE
#include "option.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MANY = 2000 };
static void *many[MANY];
static void *volatile kept;
static volatile char seen;

static void take_all(size_t n)
{
    for (int i = 0; i < MANY; i++)
        must((many[i] = malloc(n)));
}

static void drop_all(void)
{
    for (int i = 0; i < MANY; i++)
        free(many[i]);
}

/* ---- random ---- */

/* Counts the objects that directly follow the previously allocated one in memory. */
static int in_order(size_t n)
{
    int count = 0;
    for (int i = 1; i < MANY; i++)
        count += (char *)many[i] == (char *)many[i - 1] + n;
    return count;
}

static void random_order(void)
{
    size_t sizes[] = {16, 64, 256, 1024, 9216};
    for (int i = 0; i < 5; i++) {
        take_all(sizes[i]);
        must(in_order(sizes[i]) < MANY / 3); /* generous for random orders, even with few objects in a slab */
        for (int a = 0; a < MANY; a++)
            memset(many[a], a & 255, sizes[i]);
        for (int a = 0; a < MANY; a++)
            must(all_are(many[a], sizes[i], a & 255));
        drop_all();
    }
}

static void random_reuse(void)
{
    take_all(64);
    drop_all();
    malloc_trim(0);
    take_all(64);
    must(in_order(64) < MANY / 10);
}

static void random_differs(void)
{
    static char line[2][64];
    for (int run = 0; run < 2; run++) {
        int told[2], status;
        must(pipe(told) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(told[1], 2);
            execl("/proc/self/exe", "modes", "--inside", "random-offsets", (char *)NULL);
        }
        must(waitpid(pid, &status, 0) == pid && read(told[0], line[run], 63) > 0);
    }
    must(strcmp(line[0], line[1]));
}

static void offsets(void)
{
    take_all(2048);
    for (int i = 0; i < 8; i++)
        dprintf(2, "%x ", (unsigned)((uintptr_t)many[i] & 0xffff) / 2048);
}

static void random_double_free(void)
{
    void *a = malloc(250), *b = malloc(250), *c = malloc(250);
    free(a), free(b), free(c);
    malloc_trim(0);
    kept = malloc(250);
    free(a == kept ? b : a);
    malloc_trim(0);
}

/* ---- check ---- */

static void late_double_free(void)
{
    take_all(256);
    for (int i = 0; i < MANY; i += 2)
        free(many[i]);
    free(many[1000]);
    must(!"the free reports it");
}

static void interior(void)
{
    char *p = malloc(256);
    free(p + 16);
    must(!"the free reports it");
}

/* ---- zero ---- */

static void zero_free(void)
{
    for (size_t n = 8; n < 1 << 18; n = n * 3 / 2) {
        char *p = malloc(n);
        must(p);
        memset(p, 0xa5, n);
        free(p);
        must(all_are(p, n, 0)); /* a deliberate read after free */
    }
}

static void zero_alloc(void)
{
    for (int round = 0; round < 3; round++)
        for (size_t n = 1; n < 1 << 19; n = n * 3 / 2 + 1) {
            char *p = malloc(n);
            must(p);
            size_t has = malloc_usable_size(p);
            must(all_are(p, has, 0));
            memset(p, 0xa5, has);
            must((p = realloc(p, 2 * n)));
            must(all_are(p, n, 0xa5) && all_are(p + has, 2 * n > has ? 2 * n - has : 0, 0));
            memset(p, 0xa5, malloc_usable_size(p));
            free(p);
            must((p = aligned_alloc(256, n)));
            must(all_are(p, malloc_usable_size(p), 0));
            memset(p, 0xa5, malloc_usable_size(p));
            free(p);
        }
}

/* ---- guard ---- */

static void behind_large(void)
{
    char *p = malloc(100000);
    memset(p, 1, malloc_usable_size(p));
    must(malloc_usable_size(p) < 100000 + 4096 + 1);
    must(((uintptr_t)p & 0xffff) == 0);
    p[malloc_usable_size(p)] = 1;
}

static void before_large(void)
{
    volatile char *p = malloc(100000);
    p[0] = 1;
    p[-1] = 1;
}

static void grown_and_behind(void)
{
    char *p = malloc(100000);
    memset(p, 7, 100000);
    must((p = realloc(p, 120000)) && all_are(p, 100000, 7));
    must((p = realloc(p, 500000)) && all_are(p, 100000, 7));
    must((p = realloc(p, 70000)) && all_are(p, 70000, 7));
    must((p = realloc(p, 100)) && all_are(p, 100, 7));
    free(p);
    must((p = aligned_alloc(1 << 20, 300000)) && ((uintptr_t)p & 0xfffff) == 0);
    memset(p, 1, malloc_usable_size(p));
    free(p);
    must((p = malloc(70000)));
    must((p = realloc(p, 80000)));
    p[malloc_usable_size(p)] = 1;
}

/* Many blocks are allocated and freed; the first and the last byte of each can be written. */
static void guarded_churn(void)
{
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i++) {
            size_t n = 40000 + (size_t)(i * 7919 + round) % 200000;
            must((many[i] = malloc(n)));
            ((char *)many[i])[0] = ((char *)many[i])[n - 1] = 1;
        }
        drop_all();
    }
    must(mallinfo2().hblks < 10);
}

/* A write that continues through adjacent slabs reaches a guard page within 2 MiB. */
static void through_slabs(void)
{
    take_all(1024);
    char *p = many[0];
    for (int i = 0; i < 2 << 20; i += 1024)
        p[i] = 1;
}

static void guarded_twice(void)
{
    void *p = malloc(100000);
    free(p);
    free(p);
}

static void guarded_interior(void)
{
    char *p = malloc(300000);
    free(p + 65536);
}

/* ---- quarantine ---- */

static void not_reused(void)
{
    void *p = malloc(100);
    free(p);
    for (int i = 0; i < MANY; i++) {
        must((many[i] = malloc(100)));
        must(many[i] != p);
    }
    drop_all();
}

static void reused_in_the_end(void)
{
    void *p = malloc(100);
    free(p);
    for (int i = 0; i < 100000; i++) {
        void *q = malloc(100);
        free(q);
        if (p == q)
            return;
    }
    must(!"the object is reused");
}

static void write_after_free(void)
{
    char *p = malloc(100);
    free(p);
    p[50] = 1;
    for (int i = 0; i < 100; i++) {
        take_all(100);
        drop_all();
    }
    must(!"the write is reported when the object leaves quarantine");
}

static void double_free_in_quarantine(void)
{
    void *p = malloc(100);
    take_all(100);
    free(p);
    drop_all();
    free(p);
    must(!"the free reports it");
}

static void read_of_large(void)
{
    char *p = malloc(200000);
    p[100] = 1;
    free(p);
    seen = p[100];
}

static void large_waits(void)
{
    size_t before = mallinfo2().hblks;
    void *first = malloc(200000);
    free(first);
    must(mallinfo2().hblks == before);
    int again = 0;
    for (int i = 0; i < 1000; i++) {
        char *p = malloc(200000);
        must(p);
        p[0] = p[199999] = 1;
        must(i > 2 || p != first);
        again += p == first;
        free(p);
    }
    must(again);
    must(mallinfo2().hblks == before);
    char *huge = malloc(100 << 20);
    huge[0] = 1;
    free(huge);
}

static void trim_empties(void)
{
    take_all(1000);
    drop_all();
    malloc_trim(0);
    must(mallinfo2().arena < 1 << 20);
}

static void sent_signal(void)
{
    kept = malloc(10);
    kill(getpid(), SIGSEGV);
}

static void null_pointer(void)
{
    kept = malloc(10);
    volatile char *p = NULL;
    seen = p[(size_t)kept * 0];
}

/* ---- all ---- */

static void *churn(void *seed)
{
    unsigned long state = (unsigned long)(uintptr_t)seed * 2654435761u + 1;
    char *own[64] = {NULL};
    size_t size[64] = {0};
    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned at = state >> 40 & 63;
        must(all_are(own[at], size[at], (int)at));
        free(own[at]);
        size[at] = state >> 50 & 7 ? state >> 33 & 511 : state >> 33 & 131071;
        must((own[at] = malloc(size[at])));
        memset(own[at], (int)at, size[at]);
    }
    for (int i = 0; i < 64; i++)
        free(own[i]);
    return NULL;
}

static void threads_and_fork(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        must(pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            churn((void *)7);
            _exit(0);
        }
        must_succeed(pid);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}

static void *idle(void *unused)
{
    return unused;
}

/* The number of mappings of a process is limited; guards must leave some to the program. */
static void mappings_are_left(void)
{
    pthread_t t;
    void *piece = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(piece != MAP_FAILED && !munmap(piece, 4096));
    must(!pthread_create(&t, NULL, idle, NULL));
    pthread_join(t, NULL);
}

#define BLOCKS 70000
static void many_guards(void)
{
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        must(blocks[i] = malloc(40000));
    mappings_are_left();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    behind_large(); /* blocks that are allocated later have guards again */
}

static void many_closed(void)
{
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        must(blocks[i] = malloc(40000));
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    mappings_are_left();
    for (int i = 1; i < BLOCKS; i += 2)
        free(blocks[i]);
    malloc_trim(0);
    read_of_large();
}

/* 2^48 bytes are 2^32 slices, so a count of slices in 32 bits would overflow to a small number. */
static void guard_resized_by_far(void)
{
    void *next = malloc(100000);
    must(next && (kept = malloc(100000)) && !realloc(kept, ((size_t)1 << 48) + 131000));
    ((char *)kept)[malloc_usable_size(kept)] = 1;
    free(next);
}

static void works(void)
{
    churn((void *)3);
}

#define HARDEN(list)         "SHEAF_HARDEN=" list
#define BAD(name, list, why) BAD_VALUE("bad-list-" name, "SHEAF_HARDEN", list, works, why)
#define ALL_ON               "random,check,zero-free,zero-alloc,guard,quarantine=1M,sample=10"

static const struct option_case cases[] = {
    {"random-order-at-first-use", HARDEN("random"), random_order, 0, {NULL}},
    {"random-order-at-reuse", HARDEN("random"), random_reuse, 0, {NULL}},
    {"random-order-differs-between-runs", HARDEN("random"), random_differs, 0, {NULL}},
    {"random-offsets", HARDEN("random"), offsets, 0, {" "}},
    {"random-reports-double-frees", HARDEN("random"), random_double_free, SIGABRT, {"double free of", "malloc-256"}},
    {"check-reports-double-frees", HARDEN("check"), late_double_free, SIGABRT, {"double free of", "malloc-256"}},
    {"check-reports-interior-pointers", HARDEN("check"), interior, SIGABRT, {"interior pointer", "malloc-256"}},
    {"zero-free-clears-freed-objects", HARDEN("zero-free"), zero_free, 0, {NULL}},
    {"zero-free-reports-interior-pointers",
     HARDEN("zero-free"),
     interior,
     SIGABRT,
     {"interior pointer", "malloc-256"}},
    {"zero-alloc-clears-new-objects", HARDEN("zero-alloc"), zero_alloc, 0, {NULL}},
    {"zero-alloc-clears-guarded-blocks", HARDEN("zero-alloc,zero-free,guard"), zero_alloc, 0, {NULL}},
    {"guard-catches-writes-past-the-end",
     HARDEN("guard"),
     behind_large,
     SIGSEGV,
     {"access past the end at", "large block at"}},
    {"guard-catches-writes-before-the-start",
     HARDEN("guard"),
     before_large,
     SIGSEGV,
     {"access before the start at", "large block at"}},
    {"guard-follows-resized-blocks", HARDEN("guard"), grown_and_behind, SIGSEGV, {"access past the end at"}},
    {"guard-stays-after-a-failed-resize", HARDEN("guard"), guard_resized_by_far, SIGSEGV, {"access past the end at"}},
    {"guards-leave-mappings-to-the-program", HARDEN("guard"), many_guards, SIGSEGV, {"access past the end at"}},
    {"quarantine-leaves-mappings-to-the-program",
     HARDEN("quarantine=8G"),
     many_closed,
     SIGSEGV,
     {"access after free at"}},
    {"guarded-blocks-are-usable", HARDEN("guard"), guarded_churn, 0, {NULL}},
    {"guard-stops-writes-through-slabs", HARDEN("guard"), through_slabs, SIGSEGV, {"guard between slabs"}},
    {"guard-reports-double-frees", HARDEN("guard"), guarded_twice, SIGABRT, {"double free of", "large block"}},
    {"guard-reports-interior-pointers",
     HARDEN("guard"),
     guarded_interior,
     SIGABRT,
     {"interior pointer", "large block"}},
    {"quarantine-delays-reuse", HARDEN("quarantine=1M"), not_reused, 0, {NULL}},
    {"quarantine-ends", HARDEN("quarantine=1M"), reused_in_the_end, 0, {NULL}},
    {"quarantine-reports-writes",
     HARDEN("quarantine=64K"),
     write_after_free,
     SIGABRT,
     {"write to freed memory at", "malloc-112"}},
    {"quarantine-reports-double-frees",
     HARDEN("quarantine=1M"),
     double_free_in_quarantine,
     SIGABRT,
     {"double free of", "malloc-112"}},
    {"quarantine-catches-reads-of-large-blocks",
     HARDEN("quarantine=1M"),
     read_of_large,
     SIGSEGV,
     {"access after free at", "large block at"}},
    {"quarantine-delays-reuse-of-large-blocks", HARDEN("quarantine=1M"), large_waits, 0, {NULL}},
    {"quarantine-delays-reuse-of-guarded-blocks", HARDEN("quarantine=1M,guard"), large_waits, 0, {NULL}},
    {"trim-empties-the-quarantine", HARDEN("quarantine=64M"), trim_empties, 0, {NULL}},
    {"sample-every-allocation", HARDEN("sample=1"), threads_and_fork, 0, {NULL}},
    {"sent-SIGSEGV-is-not-reported", HARDEN("sample=10"), sent_signal, SIGSEGV, {NULL}},
    {"null-pointer-access-is-not-reported", HARDEN("sample=10,guard"), null_pointer, SIGSEGV, {NULL}},
    {"all-words-together", HARDEN(ALL_ON), threads_and_fork, 0, {NULL}},
    BAD("empty-list", "", "an empty list; give words"),
    BAD("unknown-word", "random,sure", "no such word; give words of random"),
    BAD("text-after-a-word", "check=1", "after a word"),
    BAD("final-comma", "check,", "after a word"),
    BAD("no-size", "quarantine=x", "quarantine=BYTES"),
    BAD("sample-0", "sample=0", "sample=N"),
};

int main(int argc, char **argv)
{
    return run_option_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
