/* SHEAF_HARDEN: each protection is shown by a fault that it must catch. Runs on the preloaded object. */
#define _GNU_SOURCE
#include "option.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

enum { MANY = 2000 };
#define HARDEN(list)         "SHEAF_HARDEN=" list
#define BAD(name, list, why) BAD_VALUE(works, bad_list_##name, "SHEAF_HARDEN", list, why)
#define ALL_ON               "random,check,zero-free,zero-alloc,guard,quarantine=1M,sample=10"

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

OPTION_CASE(random_order_at_first_use, HARDEN("random"), 0, NULL)
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

OPTION_CASE(random_order_at_reuse, HARDEN("random"), 0, NULL)
{
    take_all(64);
    drop_all();
    malloc_trim(0);
    take_all(64);
    must(in_order(64) < MANY / 10);
}

OPTION_CASE(random_order_differs_between_runs, HARDEN("random"), 0, NULL)
{
    static char line[2][64];
    for (int run = 0; run < 2; run++) {
        int told[2], status;
        must(pipe(told) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(told[1], 2);
            execl("/proc/self/exe", "again", "--part", "random_offsets", (char *)NULL);
        }
        must(waitpid(pid, &status, 0) == pid && read(told[0], line[run], 63) > 0);
    }
    must(strcmp(line[0], line[1]));
}

OPTION_CASE(random_offsets, HARDEN("random"), 0, " ")
{
    take_all(2048);
    for (int i = 0; i < 8; i++)
        dprintf(2, "%x ", (unsigned)((uintptr_t)many[i] & 0xffff) / 2048);
}

OPTION_CASE(random_reports_double_frees, HARDEN("random"), SIGABRT, "double free of", "malloc-256")
{
    void *a = malloc(250), *b = malloc(250), *c = malloc(250);
    free(a), free(b), free(c);
    malloc_trim(0);
    kept = malloc(250);
    free(a == kept ? b : a);
    malloc_trim(0);
}

/* ---- check ---- */

OPTION_CASE(check_reports_double_frees, HARDEN("check"), SIGABRT, "double free of", "malloc-256")
{
    take_all(256);
    for (int i = 0; i < MANY; i += 2)
        free(many[i]);
    free(many[1000]);
    must(!"the free reports it");
}

OPTION_CASE(check_reports_interior_pointers, HARDEN("check"), SIGABRT, "interior pointer", "malloc-256")
{
    char *p = malloc(256);
    free(p + 16);
    must(!"the free reports it");
}

/* ---- zero ---- */

OPTION_CASE(zero_free_clears_freed_objects, HARDEN("zero-free"), 0, NULL)
{
    for (size_t n = 8; n < 1 << 18; n = n * 3 / 2) {
        char *p = malloc(n);
        must(p);
        memset(p, 0xa5, n);
        free(p);
        must(all_are(p, n, 0)); /* a deliberate read after free */
    }
}

OPTION_CASE(zero_alloc_clears_new_objects, HARDEN("zero-alloc"), 0, NULL)
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

OPTION_CASE(guard_catches_writes_past_the_end, HARDEN("guard"), SIGSEGV, "access past the end at", "large block at")
{
    char *p = malloc(100000);
    memset(p, 1, malloc_usable_size(p));
    must(malloc_usable_size(p) < 100000 + 4096 + 1);
    must(((uintptr_t)p & 0xffff) == 0);
    p[malloc_usable_size(p)] = 1;
}

OPTION_CASE(guard_catches_writes_before_the_start, HARDEN("guard"), SIGSEGV, "access before the start at",
            "large block at")
{
    volatile char *p = malloc(100000);
    p[0] = 1;
    p[-1] = 1;
}

OPTION_CASE(guard_follows_resized_blocks, HARDEN("guard"), SIGSEGV, "access past the end at")
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
OPTION_CASE(guarded_blocks_are_usable, HARDEN("guard"), 0, NULL)
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
OPTION_CASE(guard_stops_writes_through_slabs, HARDEN("guard"), SIGSEGV, "guard between slabs")
{
    take_all(1024);
    char *p = many[0];
    for (int i = 0; i < 2 << 20; i += 1024)
        p[i] = 1;
}

OPTION_CASE(guard_reports_double_frees, HARDEN("guard"), SIGABRT, "double free of", "large block")
{
    void *p = malloc(100000);
    free(p);
    free(p);
}

OPTION_CASE(guard_reports_interior_pointers, HARDEN("guard"), SIGABRT, "interior pointer", "large block")
{
    char *p = malloc(300000);
    free(p + 65536);
}

/* ---- quarantine ---- */

OPTION_CASE(quarantine_delays_reuse, HARDEN("quarantine=1M"), 0, NULL)
{
    void *p = malloc(100);
    free(p);
    for (int i = 0; i < MANY; i++) {
        must((many[i] = malloc(100)));
        must(many[i] != p);
    }
    drop_all();
}

OPTION_CASE(quarantine_ends, HARDEN("quarantine=1M"), 0, NULL)
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

OPTION_CASE(quarantine_reports_writes, HARDEN("quarantine=64K"), SIGABRT, "write to freed memory at", "malloc-112")
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

OPTION_CASE(quarantine_reports_double_frees, HARDEN("quarantine=1M"), SIGABRT, "double free of", "malloc-112")
{
    void *p = malloc(100);
    take_all(100);
    free(p);
    drop_all();
    free(p);
    must(!"the free reports it");
}

OPTION_CASE(quarantine_catches_reads_of_large_blocks, HARDEN("quarantine=1M"), SIGSEGV, "access after free at",
            "large block at")
{
    char *p = malloc(200000);
    p[100] = 1;
    free(p);
    seen = p[100];
}

OPTION_CASE(quarantine_delays_reuse_of_large_blocks, HARDEN("quarantine=1M"), 0, NULL)
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

OPTION_CASE(trim_empties_the_quarantine, HARDEN("quarantine=64M"), 0, NULL)
{
    take_all(1000);
    drop_all();
    malloc_trim(0);
    must(mallinfo2().arena < 1 << 20);
}

OPTION_CASE(sent_SIGSEGV_is_not_reported, HARDEN("sample=10"), SIGSEGV, NULL)
{
    kept = malloc(10);
    kill(getpid(), SIGSEGV);
}

OPTION_CASE(null_pointer_access_is_not_reported, HARDEN("sample=10,guard"), SIGSEGV, NULL)
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

OPTION_CASE(sample_every_allocation, HARDEN("sample=1"), 0, NULL)
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
OPTION_CASE(guards_leave_mappings_to_the_program, HARDEN("guard"), SIGSEGV, "access past the end at")
{
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        must(blocks[i] = malloc(40000));
    mappings_are_left();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    guard_catches_writes_past_the_end(); /* blocks that are allocated later have guards again */
}

OPTION_CASE(quarantine_leaves_mappings_to_the_program, HARDEN("quarantine=8G"), SIGSEGV, "access after free at")
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
    quarantine_catches_reads_of_large_blocks();
}

/* 2^48 bytes are 2^32 slices, so a count of slices in 32 bits would overflow to a small number. */
OPTION_CASE(guard_stays_after_a_failed_resize, HARDEN("guard"), SIGSEGV, "access past the end at")
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

OPTION_CASE_OF(check_reports_interior_pointers, zero_free_reports_interior_pointers, HARDEN("zero-free"), SIGABRT,
               "interior pointer", "malloc-256")
OPTION_CASE_OF(zero_alloc_clears_new_objects, zero_alloc_clears_guarded_blocks, HARDEN("zero-alloc,zero-free,guard"),
               0, NULL)
OPTION_CASE_OF(quarantine_delays_reuse_of_large_blocks, quarantine_delays_reuse_of_guarded_blocks,
               HARDEN("quarantine=1M,guard"), 0, NULL)
OPTION_CASE_OF(sample_every_allocation, all_words_together, HARDEN(ALL_ON), 0, NULL)
BAD(empty_list, "", "an empty list; give words")
BAD(unknown_word, "random,sure", "no such word; give words of random")
BAD(text_after_a_word, "check=1", "after a word")
BAD(final_comma, "check,", "after a word")
BAD(no_size, "quarantine=x", "quarantine=BYTES")
BAD(sample_0, "sample=0", "sample=N")
