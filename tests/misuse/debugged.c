/* Faults in the use of malloc, one for each case. See faults.h. */
#define _GNU_SOURCE
#define DEBUG_SETTINGS "SHEAF_DEBUG=FZPU\nSHEAF_VALIDATE=1"
#include "faults.h"

#include <malloc.h>
#include <pthread.h>
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

FAULT(double_small, "free twice", DOUBLE, DOUBLE, "malloc-64", 1)
{
    void *p = give(60);
    take(p);
    take(tell(p));
}

FAULT(double_small_delayed, "free twice, other objects freed in between", DOUBLE, NULL, "malloc-64", 1)
{
    for (int i = 0; i < 8; i++)
        keep[i] = give(60);
    for (int i = 0; i < 8; i++)
        take(keep[i]);
    take(tell(keep[2]));
}

FAULT(double_interleaved, "free a, b, a", DOUBLE, DOUBLE, "malloc-64", 1)
{
    void *a = give(60), *b = give(60);
    take(a);
    take(b);
    take(tell(a));
}

/* Other objects are freed in between, so without debugging the fault is found when the sheaf is flushed. */
FAULT(double_seen_at_flush, NULL, DOUBLE, DOUBLE, "malloc-256", 1)
{
    for (int i = 0; i < 8; i++)
        keep[i] = give(250);
    for (int i = 0; i < 8; i++)
        take(keep[i]);
    take(tell(keep[2]));
    malloc_trim(0);
}

static void *take_it(void *p)
{
    take(p);
    return NULL;
}

FAULT(double_in_thread, "free twice, in two threads", DOUBLE, NULL, "malloc-64", 1)
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

FAULT(double_after_slab, "free twice, its slab returned to the system in between", DOUBLE, DOUBLE, "slab", 0)
{
    for (int i = 0; i < 3000; i++)
        keep[i] = give(1000);
    for (int i = 0; i < 3000; i++)
        take(keep[i]);
    malloc_trim(0);
    take(tell(keep[1000]));
}

FAULT(double_large, "free a large block twice", DOUBLE, DOUBLE, "large", 1)
{
    void *p = give(100000);
    take(p);
    take(tell(p));
}

FAULT(double_large_delayed, "free a large block twice, another one in between", DOUBLE, DOUBLE, "large", 1)
{
    void *p = give(100000), *q = give(200000);
    take(p);
    take(q);
    take(tell(p));
}

FAULT(double_by_realloc, "free after realloc(p, 0)", DOUBLE, DOUBLE, "malloc-64", 1)
{
    void *p = give(60);
    p = realloc(p, 0) ? NULL : tell(p);
    take(p);
}

FAULT(realloc_freed, "realloc of a freed object", "use after free of", DOUBLE, "malloc-64", 1)
{
    void *p = give(60);
    take(p);
    keep[0] = realloc(tell(p), 200);
}

FAULT(realloc_freed_large, "realloc of a freed large block", DOUBLE, DOUBLE, "large", 0)
{
    void *p = give(100000);
    take(p);
    keep[0] = realloc(tell(p), 500000);
}

FAULT(usable_freed, "malloc_usable_size of a freed object", "use after free of", NULL, "malloc-64", 1)
{
    void *p = give(60);
    take(p);
    keep[0] = (void *)malloc_usable_size(tell(p));
}

/* free() compares with the slot's two latest frees. If the thread uses another slot, the flush finds the fault. */
/* Of a size that pthread_create() does not allocate. */
FAULT(double_in_thread_at_flush, NULL, DOUBLE, DOUBLE, "malloc-208", 1)
{
    pthread_t t;
    void *p = give(200);
    take(tell(p));
    pthread_create(&t, NULL, take_it, p);
    pthread_join(t, NULL);
    malloc_trim(0);
}

FAULT(double_large_after_trim, NULL, DOUBLE, DOUBLE, "large", 0)
{
    void *p = give(1 << 20);
    take(p);
    malloc_trim(0);
    take(tell(p));
}

FAULT(double_grown, NULL, DOUBLE, DOUBLE, "large", 0)
{
    void *p = realloc(give(1 << 20), 30 << 20);
    take(p);
    take(tell(p));
}

/* ---- overflows ---- */

/* Writes `n` bytes past the end of an object of `size` bytes. */
static void beyond(size_t size, size_t n)
{
    char *p = tell(give(size));
    memset(byte(p) + size, 'x', n);
    take(p);
}

FAULT(overflow_1, "write 1 byte past the end", OVER, NULL, "malloc-64", 1)
{
    beyond(64, 1);
}

FAULT(overflow_8, "write 8 bytes past the end", OVER, NULL, "malloc-64", 1)
{
    beyond(64, 8);
}

FAULT(overflow_32, "write 32 bytes past the end", OVER, NULL, "malloc-64", 1)
{
    beyond(64, 32);
}

FAULT(overflow_mib, "write 1 MiB past the end", OVER, NULL, "malloc-64", 1)
{
    beyond(64, 1 << 20);
}

FAULT(overflow_tail, "write past the requested size, within the size class", OVER, NULL, "malloc-112", 1)
{
    beyond(100, 1);
}

FAULT(overflow_zero_size, "write into malloc(0)", OVER, NULL, "malloc-8", 1)
{
    beyond(0, 1);
}

FAULT(overflow_large_1, "write 1 byte past the end of a large block", OVER, NULL, "malloc-large", 1)
{
    beyond(100000, 1);
}

FAULT(overflow_large_8, "write 8 bytes past the end of a large block", OVER, NULL, "malloc-large", 1)
{
    beyond(100000, 8);
}

FAULT(overflow_large_page, "write a page past the end of a large block", OVER, NULL, "malloc-large", 1)
{
    beyond(100000, 4096);
}

FAULT(overflow_large_exact, "write 1 byte past the end of a large block of whole pages", OVER, NULL, "malloc-large",
      1)
{
    beyond(1 << 20, 1);
}

FAULT(overflow_string, "strcpy without room for the terminating zero", OVER, NULL, "malloc-16", 1)
{
    const char *volatile text = "exactly sixteen!";
    char *p = tell(give(strlen(text)));
    strcpy(byte(p), text);
    take(p);
}

FAULT(overflow_calloc, "write past the end of a calloc block", OVER, NULL, "malloc-112", 0)
{
    char *p = tell(calloc(10, 10));
    byte(p)[100] = 1;
    take(p);
}

FAULT(overflow_realloc, "write past the end of a realloc block", OVER, NULL, "malloc-112", 0)
{
    char *p = tell(realloc(give(50), 100));
    byte(p)[100] = 1;
    take(p);
}

FAULT(overflow_aligned, "write past the end of a memalign block", OVER, NULL, "malloc-", 0)
{
    char *p = tell(memalign(256, 100));
    byte(p)[100] = 1;
    take(p);
}

FAULT(overflow_usable, "write past malloc_usable_size", OVER, NULL, "malloc-112", 1)
{
    char *p = tell(give(100));
    byte(p)[malloc_usable_size(p)] = 1;
    take(p);
}

/* Skips the red zone and writes into memory that was never allocated, where the damage is found at exit. */
FAULT(overflow_far, "write far past the end, into memory that was never allocated", AFTER, NULL, "malloc-64", 0)
{
    char *p = give(64);
    byte(p)[1000] = 1;
    take(p);
}

FAULT(overflow_never_freed, "write past the end of an object that is never freed", OVER, NULL, "malloc-64", 1)
{
    char *p = tell(give(64));
    byte(p)[64] = 1;
}

FAULT(overflow_neighbour, "write past the end; the neighbouring object is freed (F)", OVER, NULL, "malloc-64", 1)
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

FAULT(underflow_1, "write 1 byte before the start", UNDER, NULL, "malloc-64", 1)
{
    before(64, 1);
}

FAULT(underflow_8, "write 8 bytes before the start", UNDER, NULL, "malloc-64", 1)
{
    before(64, 8);
}

FAULT(underflow_16, "write 16 bytes before the start", UNDER, NULL, "malloc-64", 1)
{
    before(64, 16);
}

FAULT(underflow_large, "write 1 byte before the start of a large block", NULL, NULL, "", 0)
{
    keep[0] = give(100000);
    before(100000, 1);
}

/* ---- use after free ---- */

FAULT(write_after_free, "write after free, the object reused later", AFTER, NULL, "malloc-64", 1)
{
    char *p = tell(give(60));
    take(p);
    byte(p)[5] = 1;
    for (int i = 0; i < 2000; i++)
        keep[i] = malloc(60);
}

FAULT(write_after_free_exit, "write after free, the object never reused", AFTER, NULL, "malloc-64", 1)
{
    char *p = tell(give(60));
    take(p);
    byte(p)[5] = 1;
}

FAULT(write_after_free_slab, "write after free, its slab returned to the system later", AFTER, NULL, "malloc-1024", 1)
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

FAULT(write_after_reuse, "write after free, the object reused before", NULL, NULL, "", 0)
{
    char *p = give(60);
    take(p);
    for (int i = 0; i < 2000; i++)
        keep[i] = malloc(60);
    byte(p)[5] = 1;
}

FAULT(write_after_realloc, "write through the old pointer after realloc", AFTER, NULL, "malloc-64", 0)
{
    char *p = tell(give(60));
    keep[0] = realloc(p, 61);
    byte(p)[5] = 1;
}

FAULT(write_after_free_large, "write after free of a large block", NULL, NULL, "", 0)
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

FAULT(read_after_free, "read after free", SHOWS, NULL, "", 0)
{
    char *p = give(60);
    memset(p, 1, 60);
    take(p);
    see(p, 0x6b);
}

FAULT(read_after_free_large, "read after free of a large block", SHOWS, NULL, "", 0)
{
    char *p = give(100000);
    memset(p, 1, 100000);
    take(p);
    see(p, 0x6b);
}

FAULT(read_uninitialized, "read uninitialized memory", SHOWS, NULL, "", 0)
{
    see(give(60), 0x5a);
}

FAULT(read_uninitialized_large, "read uninitialized memory of a large block", SHOWS, NULL, "", 0)
{
    see(give(100000), 0x5a);
}

FAULT(read_uninitialized_realloc, "read uninitialized memory that realloc added", SHOWS, NULL, "", 0)
{
    char *p = realloc(calloc(1, 60), 200);
    see(p + 100, 0x5a);
}

/* ---- invalid pointers ---- */

static char global[64];
static __thread char of_thread[64];

FAULT(interior_1, "free of p + 1", INTERIOR, NULL, "malloc-64", 1)
{
    take(tell((char *)give(60) + 1));
}

FAULT(interior_16, "free of p + 16", INTERIOR, NULL, "malloc-64", 1)
{
    take(tell((char *)give(60) + 16));
}

FAULT(interior_class_step, "free of p + 64", INTERIOR, NULL, "malloc-256", 1)
{
    take(tell((char *)give(250) + 64));
}

FAULT(interior_freed, "free of p + 16 after free of p", INTERIOR, NULL, "malloc-64", 1)
{
    char *p = give(60);
    take(p);
    take(tell(p + 16));
}

FAULT(interior_large, "free of p + 4096 in a large block", INTERIOR, INTERIOR, "large block", 0)
{
    take(tell((char *)give(100000) + 4096));
}

FAULT(interior_large_slice, "free of p + 64 KiB in a large block", INTERIOR, INTERIOR, "large block", 0)
{
    take(tell((char *)give(1 << 20) + (1 << 16)));
}

FAULT(interior_seen_at_flush, NULL, INTERIOR, INTERIOR, "malloc-256", 1)
{
    take(tell((char *)give(250) + 16));
    malloc_trim(0);
}

FAULT(interior_aligned, NULL, INTERIOR, INTERIOR, "large block", 0)
{
    take(tell((char *)memalign(1 << 20, 1 << 20) + 64));
}

FAULT(interior_realloc_large, NULL, "realloc of interior pointer", "realloc of interior pointer", "large block", 0)
{
    keep[0] = realloc(tell((char *)give(1 << 20) + 4096), 100);
}

FAULT(below_block, NULL, "", "", "", 0)
{
    take(tell((char *)give(1 << 20) - 16));
}

FAULT(free_argument, NULL, FOREIGN, FOREIGN, "not from", 0)
{
    take(tell(program_invocation_name));
}

FAULT(free_static, "free of a static object", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell(global));
}

FAULT(free_thread_local, "free of a thread-local object", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell(of_thread));
}

FAULT(free_stack, "free of a local object", FOREIGN, FOREIGN, "not from", 0)
{
    char local[64];
    take(tell(byte(local)));
}

FAULT(free_code, "free of a function", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell((void *)(size_t)free_code));
}

FAULT(free_string, "free of a string literal", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell((void *)(size_t) "a literal"));
}

FAULT(free_mapped, "free of memory from mmap", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
}

FAULT(free_uninitialized, "free of an uninitialized pointer", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell((void *)(size_t)0x4141414141414141));
}

FAULT(free_small_number, "free of a small number", FOREIGN, FOREIGN, "not from", 0)
{
    take(tell((void *)(size_t)0x1234));
}

FAULT(free_never_given, "free of an address that was never allocated", FOREIGN, FOREIGN, "", 0)
{
    char *p = give(1 << 20);
    take(tell(p + (1l << 32)));
}

FAULT(realloc_static, "realloc of a static object", "realloc of foreign pointer", "realloc of foreign pointer",
      "not from", 0)
{
    keep[0] = realloc(tell(global), 100);
}

FAULT(realloc_interior, "realloc of p + 16", "use of interior pointer", NULL, "malloc-64", 1)
{
    keep[0] = realloc(tell((char *)give(60) + 16), 200);
}

FAULT(usable_static, "malloc_usable_size of a static object", "malloc_usable_size of foreign pointer",
      "malloc_usable_size of foreign pointer", "not from", 0)
{
    keep[0] = (void *)malloc_usable_size(tell(global));
}

FAULT(usable_interior, "malloc_usable_size of p + 16", "use of interior pointer", NULL, "malloc-64", 1)
{
    keep[0] = (void *)malloc_usable_size(tell((char *)give(60) + 16));
}

FAULT(sized_wrong, "free_sized with a wrong size", NULL, NULL, "", 0)
{
    free_sized(give(60), 600);
}

FAULT(legal, NULL, NOTHING, NOTHING, "", 0)
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
