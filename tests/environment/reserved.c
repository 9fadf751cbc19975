/*
 * Reservations of the program take all holes of the address space above some size, as runtimes, databases and
 * emulators make them: the rest must do. Each case runs this program anew, so that the reservations can be made
 * before the first allocation. Usage: reserved [CASE]
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#define MIB (1ul << 20)

/*
 * From the largest power of two downwards, until mmap() refuses pieces of `least` bytes. `kept` holes that are a
 * little smaller stay in any case; how large the others are is a matter of chance.
 */
enum { HOLES = 4 };
static void reserve(size_t least, int kept)
{
    const size_t hole = least - MIB;
    char *holes[HOLES];
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    for (int i = 0; i < kept; i++)
        must((holes[i] = mmap(NULL, least, PROT_NONE, flags, -1, 0)) != MAP_FAILED);
    for (size_t size = 1ul << 46; size >= least; size /= 2)
        while (mmap(NULL, size, PROT_NONE, flags, -1, 0) != MAP_FAILED) {
        }
    for (int i = 0; i < kept; i++)
        must(!munmap(holes[i], hole));
}

/* ---- blocks of all sizes ---- */

struct block {
    struct block *next;
    size_t size;
    unsigned char bytes[];
};

static size_t size_of(size_t i)
{
    return sizeof(struct block) + (i % 50 == 0 ? i * 977 % 300000 : i % 7 == 0 ? i * 31 % 9000 : i * 13 % 500);
}

static void fill(struct block *block, size_t size)
{
    block->size = size;
    memset(block->bytes, (int)(size & 255), size - sizeof(*block));
}

static void check(const struct block *block)
{
    size_t bytes = block->size - sizeof(*block);
    must(malloc_usable_size((void *)(uintptr_t)block) >= block->size);
    for (size_t i = 0; i < bytes; i += i < 16 || i + 16 > bytes ? 1 : 61)
        must(block->bytes[i] == (block->size & 255));
}

static struct block *allocate(size_t bytes)
{
    struct block *first = NULL;
    for (size_t i = 0, sum = 0; sum < bytes; sum += size_of(i++)) {
        void *p = NULL;
        if (i % 5 == 1)
            must(!posix_memalign(&p, 64, size_of(i)) && (uintptr_t)p % 64 == 0);
        else
            must(p = i % 5 == 2 ? calloc(1, size_of(i)) : malloc(size_of(i)));
        struct block *block = p;
        if (i % 5 == 2)
            for (size_t at = 0; at < size_of(i) - sizeof(*block); at++)
                must(!block->bytes[at]);
        fill(block, size_of(i));
        block->next = first;
        first = block;
    }
    return first;
}

static struct block *resize_all(struct block *block)
{
    struct block *first = NULL;
    for (size_t i = 0; block; i++) {
        struct block *next = block->next;
        size_t size = i % 3 ? block->size : block->size + block->size / 2;
        must(block = realloc(block, size));
        for (size_t at = 0; at < 8 && at + sizeof(*block) < block->size; at++)
            must(block->bytes[at] == (block->size & 255));
        fill(block, size);
        block->next = first;
        first = block;
        block = next;
    }
    return first;
}

static void release(struct block *block)
{
    while (block) {
        struct block *next = block->next;
        check(block);
        free(block);
        block = next;
    }
}

static void *work(void *bytes)
{
    for (int round = 0; round < 3; round++)
        release(resize_all(allocate((size_t)bytes)));
    return NULL;
}

/* What is freed serves again: rounds take no more than one does. */
static void run(size_t least, size_t bytes, bool started)
{
    if (started)
        free(malloc(100));
    reserve(least, least < 64 * MIB ? HOLES : 0);
    work((void *)bytes);
    pid_t pid = fork();
    if (!pid) {
        work((void *)bytes);
        _exit(0);
    }
    must_succeed(pid);
    pthread_t threads[4];
    pthread_attr_t attr;
    must(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 1 << 16));
    for (int i = 0; i < 4; i++)
        must(!pthread_create(&threads[i], &attr, work, (void *)(bytes / 8)));
    for (int i = 0; i < 4; i++)
        must(!pthread_join(threads[i], NULL));
}

/* ---- cases ---- */

/* The program reserves all holes of at least so many MiB, and works with so many. */
#define HOLES_OF(least, mib, when)                                                                                   \
    CASE_ANEW(holes_of_##least##_MiB_##when##_the_start)                                                             \
    {                                                                                                                \
        run((least)*MIB, (mib)*MIB, #when[0] == 'a');                                                                \
    }

HOLES_OF(1024, 64, before)
HOLES_OF(1024, 160, after)
HOLES_OF(256, 64, before)
HOLES_OF(256, 160, after)
HOLES_OF(64, 16, before)
HOLES_OF(64, 16, after)
HOLES_OF(16, 4, before)
HOLES_OF(16, 4, after)
HOLES_OF(10, 4, before)

/* The system puts a mapping of the allocator where it planned to grow itself: the block is known when it is freed. */
CASE(a_hole_where_the_heap_would_grow)
{
    char *first = malloc(100), *blocks[8];
    must(first);
    reserve(64 * 1024, 0);
    char *hole = (char *)(((uintptr_t)first & ~(2 * MIB - 1)) + 64 * MIB);
    must(!munmap(hole, 32 * MIB));
    for (size_t i = 0; i < 8; i++) {
        must(blocks[i] = malloc(3 * MIB + i));
        memset(blocks[i], (int)i, 3 * MIB);
        must(malloc_usable_size(blocks[i]) >= 3 * MIB + i);
    }
    must(blocks[0] = realloc(blocks[0], 4 * MIB));
    for (size_t i = 0; i < 8; i++) {
        must(blocks[i][0] == (char)i && blocks[i][3 * MIB - 1] == (char)i);
        free(blocks[i]);
    }
    free(first);
}

/* A reservation follows each block at once, and every second one goes again. */
CASE(reservations_among_blocks)
{
    enum { ROUNDS = 300 };
    static struct block *blocks[ROUNDS];
    static void *places[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        blocks[i] = allocate(MIB / 2);
        must(places[i] = malloc(2 * MIB));
        char *end = (char *)(((uintptr_t)places[i] + 2 * MIB + 0xffff) & ~0xfffful);
        void *at = mmap(end, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != MAP_FAILED && i % 2)
            munmap(at, 8192);
    }
    for (size_t i = 0; i < ROUNDS; i++) {
        release(blocks[i]);
        free(places[i]);
    }
}
