/* Faults in the use of malloc, one for each case. See faults.h. */
#define _GNU_SOURCE
#include "faults.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *give(size_t n);
void take(void *p);
void free_sized(void *p, size_t size) __attribute__((weak)); /* C23; older releases of libc lack it */

__attribute__((noinline)) void *give(size_t n)
{
    void *p = malloc(n);
    __asm__ volatile("" : "+r"(p)); /* prevents a tail call, so that backtraces show this function */
    return p;
}

__attribute__((noinline)) void take(void *p)
{
    free(p);
    __asm__ volatile("" ::: "memory");
}

static void *keep[4096]; /* keeps the compiler from removing allocations */

static char *byte(void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

/* ---- double frees ---- */

static void double_small(void)
{
    void *p = give(60);
    take(p);
    take(tell(p));
}

static void double_small_delayed(void)
{
    for (int i = 0; i < 8; i++)
        keep[i] = give(60);
    for (int i = 0; i < 8; i++)
        take(keep[i]);
    take(tell(keep[2]));
}

static void double_interleaved(void)
{
    void *a = give(60), *b = give(60);
    take(a);
    take(b);
    take(tell(a));
}

static void *take_it(void *p)
{
    take(p);
    return NULL;
}

static void double_in_thread(void)
{
    pthread_t t;
    void *p = give(60);
    for (int i = 0; i < 4; i++)
        keep[i] = give(60);
    take(tell(p));
    for (int i = 0; i < 4; i++)
        take(keep[i]);
    pthread_create(&t, NULL, take_it, p);
    pthread_join(t, NULL);
}

static void double_after_slab(void)
{
    for (int i = 0; i < 3000; i++)
        keep[i] = give(1000);
    for (int i = 0; i < 3000; i++)
        take(keep[i]);
    malloc_trim(0);
    take(tell(keep[1000]));
}

static void double_large(void)
{
    void *p = give(100000);
    take(p);
    take(tell(p));
}

static void double_large_delayed(void)
{
    void *p = give(100000), *q = give(200000);
    take(p);
    take(q);
    take(tell(p));
}

static void double_by_realloc(void)
{
    void *p = give(60);
    p = realloc(p, 0) ? NULL : tell(p);
    take(p);
}

static void realloc_freed(void)
{
    void *p = give(60);
    take(p);
    keep[0] = realloc(tell(p), 200);
}

static void realloc_freed_large(void)
{
    void *p = give(100000);
    take(p);
    keep[0] = realloc(tell(p), 500000);
}

static void usable_freed(void)
{
    void *p = give(60);
    take(p);
    keep[0] = (void *)malloc_usable_size(tell(p));
}

/* ---- overflows ---- */

/* Writes `n` bytes past the end of an object of `size` bytes. */
#define BEYOND(name, size, n)                                                                                        \
    static void name(void)                                                                                           \
    {                                                                                                                \
        char *p = tell(give(size));                                                                                  \
        memset(byte(p) + (size), 'x', n);                                                                            \
        take(p);                                                                                                     \
    }

BEYOND(overflow_1, 64, 1)
BEYOND(overflow_8, 64, 8)
BEYOND(overflow_32, 64, 32)
BEYOND(overflow_mib, 64, 1 << 20)
BEYOND(overflow_tail, 100, 1)
BEYOND(overflow_zero_size, 0, 1)
BEYOND(overflow_large_1, 100000, 1)
BEYOND(overflow_large_8, 100000, 8)
BEYOND(overflow_large_page, 100000, 4096)
BEYOND(overflow_large_exact, 1 << 20, 1)

static void overflow_string(void)
{
    const char *volatile text = "exactly sixteen!";
    char *p = tell(give(strlen(text)));
    strcpy(byte(p), text);
    take(p);
}

static void overflow_calloc(void)
{
    char *p = tell(calloc(10, 10));
    byte(p)[100] = 1;
    take(p);
}

static void overflow_realloc(void)
{
    char *p = tell(realloc(give(50), 100));
    byte(p)[100] = 1;
    take(p);
}

static void overflow_aligned(void)
{
    char *p = tell(memalign(256, 100));
    byte(p)[100] = 1;
    take(p);
}

static void overflow_usable(void)
{
    char *p = tell(give(100));
    byte(p)[malloc_usable_size(p)] = 1;
    take(p);
}

/* Skips the red zone and writes into memory that was never allocated, where the damage is found at exit. */
static void overflow_far(void)
{
    char *p = give(64);
    byte(p)[1000] = 1;
    take(p);
}

static void overflow_never_freed(void)
{
    char *p = tell(give(64));
    byte(p)[64] = 1;
}

static void overflow_neighbour(void)
{
    char *p = give(64), *q = give(64);
    char *low = p < q ? p : q, *high = p < q ? q : p;
    tell(low);
    byte(low)[64] = 1;
    take(high);
}

/* ---- underflows ---- */

static void before(size_t size, size_t n)
{
    char *p = tell(give(size));
    memset(byte(p) - n, 'x', n);
    take(p);
}

#define BEFORE(name, size, n)                                                                                        \
    static void name(void)                                                                                           \
    {                                                                                                                \
        before(size, n);                                                                                             \
    }

BEFORE(underflow_1, 64, 1)
BEFORE(underflow_8, 64, 8)
BEFORE(underflow_16, 64, 16)

static void underflow_large(void)
{
    keep[0] = give(100000);
    before(100000, 1);
}

/* ---- use after free ---- */

static void write_after_free(void)
{
    char *p = tell(give(60));
    take(p);
    byte(p)[5] = 1;
    for (int i = 0; i < 2000; i++)
        keep[i] = malloc(60);
}

static void write_after_free_exit(void)
{
    char *p = tell(give(60));
    take(p);
    byte(p)[5] = 1;
}

static void write_after_free_slab(void)
{
    for (int i = 0; i < 3000; i++)
        keep[i] = give(1000);
    char *p = tell(keep[1000]);
    take(p);
    byte(p)[5] = 1;
    for (int i = 0; i < 3000; i++)
        if (i != 1000)
            take(keep[i]);
    malloc_trim(0);
}

static void write_after_reuse(void)
{
    char *p = give(60);
    take(p);
    for (int i = 0; i < 2000; i++)
        keep[i] = malloc(60);
    byte(p)[5] = 1;
}

static void write_after_realloc(void)
{
    char *p = tell(give(60));
    keep[0] = realloc(p, 61);
    byte(p)[5] = 1;
}

static void write_after_free_large(void)
{
    char *p = give(100000);
    take(p);
    byte(p)[5] = 1;
}

static void see(const char *p, char fill)
{
    if (byte((void *)(size_t)p)[7] == fill)
        shows_poison();
}

static void read_after_free(void)
{
    char *p = give(60);
    memset(p, 1, 60);
    take(p);
    see(p, 0x6b);
}

static void read_after_free_large(void)
{
    char *p = give(100000);
    memset(p, 1, 100000);
    take(p);
    see(p, 0x6b);
}

static void read_uninitialized(void)
{
    see(give(60), 0x5a);
}

static void read_uninitialized_large(void)
{
    see(give(100000), 0x5a);
}

static void read_uninitialized_realloc(void)
{
    char *p = realloc(calloc(1, 60), 200);
    see(p + 100, 0x5a);
}

/* ---- invalid pointers ---- */

static char global[64];
static __thread char of_thread[64];

static void interior_1(void)
{
    take(tell((char *)give(60) + 1));
}

static void interior_16(void)
{
    take(tell((char *)give(60) + 16));
}

static void interior_class_step(void)
{
    take(tell((char *)give(250) + 64));
}

static void interior_freed(void)
{
    char *p = give(60);
    take(p);
    take(tell(p + 16));
}

static void interior_large(void)
{
    take(tell((char *)give(100000) + 4096));
}

static void interior_large_slice(void)
{
    take(tell((char *)give(1 << 20) + (1 << 16)));
}

static void free_static(void)
{
    take(tell(global));
}

static void free_thread_local(void)
{
    take(tell(of_thread));
}

static void free_stack(void)
{
    char local[64];
    take(tell(byte(local)));
}

static void free_code(void)
{
    take(tell((void *)(size_t)free_code));
}

static void free_string(void)
{
    take(tell((void *)(size_t) "a literal"));
}

static void free_mapped(void)
{
    take(tell(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
}

static void free_uninitialized(void)
{
    take(tell((void *)(size_t)0x4141414141414141));
}

static void free_small_number(void)
{
    take(tell((void *)(size_t)0x1234));
}

static void free_never_given(void)
{
    char *p = give(1 << 20);
    take(tell(p + (1l << 32)));
}

static void realloc_static(void)
{
    keep[0] = realloc(tell(global), 100);
}

static void realloc_interior(void)
{
    keep[0] = realloc(tell((char *)give(60) + 16), 200);
}

static void usable_static(void)
{
    keep[0] = (void *)malloc_usable_size(tell(global));
}

static void usable_interior(void)
{
    keep[0] = (void *)malloc_usable_size(tell((char *)give(60) + 16));
}

static void sized_wrong(void)
{
    free_sized(give(60), 600);
}

static void legal(void)
{
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 300; i++) {
            size_t n = (size_t)(i * round) % 3000;
            keep[i] = i % 3 ? give(n) : memalign(64, n);
            memset(byte(keep[i]), round, malloc_usable_size(keep[i]));
        }
        for (int i = 0; i < 300; i++)
            if (i % 2)
                keep[i] = realloc(keep[i], (size_t)(i * 7 % 900) + 1);
        for (int i = 0; i < 300; i++)
            take(keep[(i * 7) % 300]);
    }
    malloc_trim(0);
}

#define DOUBLE   "double free of"
#define OVER     "overflow: bytes were written past the end of"
#define UNDER    "underflow: bytes were written before the start of"
#define AFTER    "write after free into"
#define INTERIOR "free of interior pointer"
#define FOREIGN  "free of foreign pointer"

static const struct fault faults[] = {
    {"double", "free twice", double_small, DOUBLE, DOUBLE, "malloc-64", 1},
    {"double-delayed", "free twice, other objects freed in between", double_small_delayed, DOUBLE, NULL, "malloc-64",
     1},
    {"double-interleaved", "free a, b, a", double_interleaved, DOUBLE, DOUBLE, "malloc-64", 1},
    {"double-in-thread", "free twice, in two threads", double_in_thread, DOUBLE, NULL, "malloc-64", 1},
    {"double-after-slab", "free twice, its slab returned to the system in between", double_after_slab, DOUBLE, DOUBLE,
     "slab", 0},
    {"double-large", "free a large block twice", double_large, DOUBLE, DOUBLE, "large", 1},
    {"double-large-delayed", "free a large block twice, another one in between", double_large_delayed, DOUBLE, DOUBLE,
     "large", 1},
    {"double-by-realloc", "free after realloc(p, 0)", double_by_realloc, DOUBLE, DOUBLE, "malloc-64", 1},
    {"realloc-freed", "realloc of a freed object", realloc_freed, "use after free of", DOUBLE, "malloc-64", 1},
    {"realloc-freed-large", "realloc of a freed large block", realloc_freed_large, DOUBLE, DOUBLE, "large", 0},
    {"usable-freed", "malloc_usable_size of a freed object", usable_freed, "use after free of", NULL, "malloc-64", 1},
    {"overflow-1", "write 1 byte past the end", overflow_1, OVER, NULL, "malloc-64", 1},
    {"overflow-8", "write 8 bytes past the end", overflow_8, OVER, NULL, "malloc-64", 1},
    {"overflow-32", "write 32 bytes past the end", overflow_32, OVER, NULL, "malloc-64", 1},
    {"overflow-mib", "write 1 MiB past the end", overflow_mib, OVER, NULL, "malloc-64", 1},
    {"overflow-tail", "write past the requested size, within the size class", overflow_tail, OVER, NULL, "malloc-112",
     1},
    {"overflow-string", "strcpy without room for the terminating zero", overflow_string, OVER, NULL, "malloc-16", 1},
    {"overflow-zero-size", "write into malloc(0)", overflow_zero_size, OVER, NULL, "malloc-8", 1},
    {"overflow-calloc", "write past the end of a calloc block", overflow_calloc, OVER, NULL, "malloc-112", 0},
    {"overflow-realloc", "write past the end of a realloc block", overflow_realloc, OVER, NULL, "malloc-112", 0},
    {"overflow-aligned", "write past the end of a memalign block", overflow_aligned, OVER, NULL, "malloc-", 0},
    {"overflow-usable", "write past malloc_usable_size", overflow_usable, OVER, NULL, "malloc-112", 1},
    {"overflow-far", "write far past the end, into memory that was never allocated", overflow_far, AFTER, NULL,
     "malloc-64", 0},
    {"overflow-never-freed", "write past the end of an object that is never freed", overflow_never_freed, OVER, NULL,
     "malloc-64", 1},
    {"overflow-neighbour", "write past the end; the neighbouring object is freed (F)", overflow_neighbour, OVER, NULL,
     "malloc-64", 1},
    {"overflow-large-1", "write 1 byte past the end of a large block", overflow_large_1, OVER, NULL, "malloc-large",
     1},
    {"overflow-large-8", "write 8 bytes past the end of a large block", overflow_large_8, OVER, NULL, "malloc-large",
     1},
    {"overflow-large-page", "write a page past the end of a large block", overflow_large_page, OVER, NULL,
     "malloc-large", 1},
    {"overflow-large-exact", "write 1 byte past the end of a large block of whole pages", overflow_large_exact, OVER,
     NULL, "malloc-large", 1},
    {"underflow-1", "write 1 byte before the start", underflow_1, UNDER, NULL, "malloc-64", 1},
    {"underflow-8", "write 8 bytes before the start", underflow_8, UNDER, NULL, "malloc-64", 1},
    {"underflow-16", "write 16 bytes before the start", underflow_16, UNDER, NULL, "malloc-64", 1},
    {"underflow-large", "write 1 byte before the start of a large block", underflow_large, NULL, NULL, "", 0},
    {"write-after-free", "write after free, the object reused later", write_after_free, AFTER, NULL, "malloc-64", 1},
    {"write-after-free-exit", "write after free, the object never reused", write_after_free_exit, AFTER, NULL,
     "malloc-64", 1},
    {"write-after-free-slab", "write after free, its slab returned to the system later", write_after_free_slab, AFTER,
     NULL, "malloc-1024", 1},
    {"write-after-reuse", "write after free, the object reused before", write_after_reuse, NULL, NULL, "", 0},
    {"write-after-realloc", "write through the old pointer after realloc", write_after_realloc, AFTER, NULL,
     "malloc-64", 0},
    {"write-after-free-large", "write after free of a large block", write_after_free_large, NULL, NULL, "", 0},
    {"read-after-free", "read after free", read_after_free, SHOWS, NULL, "", 0},
    {"read-after-free-large", "read after free of a large block", read_after_free_large, SHOWS, NULL, "", 0},
    {"read-uninitialized", "read uninitialized memory", read_uninitialized, SHOWS, NULL, "", 0},
    {"read-uninitialized-large", "read uninitialized memory of a large block", read_uninitialized_large, SHOWS, NULL,
     "", 0},
    {"read-uninitialized-realloc", "read uninitialized memory that realloc added", read_uninitialized_realloc, SHOWS,
     NULL, "", 0},
    {"interior-1", "free of p + 1", interior_1, INTERIOR, NULL, "malloc-64", 1},
    {"interior-16", "free of p + 16", interior_16, INTERIOR, NULL, "malloc-64", 1},
    {"interior-class-step", "free of p + 64", interior_class_step, INTERIOR, NULL, "malloc-256", 1},
    {"interior-freed", "free of p + 16 after free of p", interior_freed, INTERIOR, NULL, "malloc-64", 1},
    {"interior-large", "free of p + 4096 in a large block", interior_large, INTERIOR, INTERIOR, "large block", 0},
    {"interior-large-slice", "free of p + 64 KiB in a large block", interior_large_slice, INTERIOR, INTERIOR,
     "large block", 0},
    {"free-static", "free of a static object", free_static, FOREIGN, FOREIGN, "not from", 0},
    {"free-thread-local", "free of a thread-local object", free_thread_local, FOREIGN, FOREIGN, "not from", 0},
    {"free-stack", "free of a local object", free_stack, FOREIGN, FOREIGN, "not from", 0},
    {"free-code", "free of a function", free_code, FOREIGN, FOREIGN, "not from", 0},
    {"free-string", "free of a string literal", free_string, FOREIGN, FOREIGN, "not from", 0},
    {"free-mapped", "free of memory from mmap", free_mapped, FOREIGN, FOREIGN, "not from", 0},
    {"free-uninitialized", "free of an uninitialized pointer", free_uninitialized, FOREIGN, FOREIGN, "not from", 0},
    {"free-small-number", "free of a small number", free_small_number, FOREIGN, FOREIGN, "not from", 0},
    {"free-never-given", "free of an address that was never allocated", free_never_given, FOREIGN, FOREIGN, "", 0},
    {"realloc-static", "realloc of a static object", realloc_static, "realloc of foreign pointer",
     "realloc of foreign pointer", "not from", 0},
    {"realloc-interior", "realloc of p + 16", realloc_interior, "use of interior pointer", NULL, "malloc-64", 1},
    {"usable-static", "malloc_usable_size of a static object", usable_static, "malloc_usable_size of foreign pointer",
     "malloc_usable_size of foreign pointer", "not from", 0},
    {"usable-interior", "malloc_usable_size of p + 16", usable_interior, "use of interior pointer", NULL, "malloc-64",
     1},
    {"sized-wrong", "free_sized with a wrong size", sized_wrong, NULL, NULL, "", 0},
    {"legal", "nothing wrong", legal, NULL, NULL, "", 0},
};

int main(int argc, char **argv)
{
    static const char *const debug[] = {"SHEAF_DEBUG=FZPU", "SHEAF_VALIDATE=1", NULL};
    return faults_main(argc, argv, faults, (int)(sizeof(faults) / sizeof(*faults)), debug);
}
