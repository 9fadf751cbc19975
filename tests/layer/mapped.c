/* The table of blocks with mappings of their own: filled, emptied, used again, and two frees of one block. */
#include "layer.h"
#include "memory/space/mapped.h"

#include <pthread.h>
#include <sched.h>

static void start(void)
{
    must(space_init(4, 64 * MIB));
    os_clear();
}

CASE(blocks_are_known_by_their_start)
{
    start();
    char *p = mapped_alloc(os_page + 904, 1);
    must(p && !p[0] && !p[os_page + 903]);
    must_be(mapped_size(p), 2 * os_page);
    must_be(mapped_bytes(), 2 * os_page);
    must_be(mapped_size(p + os_page), 0);
    must(!mapped_free(p + os_page) && !mapped_free(NULL) && !mapped_free((void *)2));
    must(mapped_free(p));
    must_be(os_entry(OS_UNMAP, 0)->at, p);
    must_be(os_entry(OS_UNMAP, 0)->size, 2 * os_page);
    must(!mapped_free(p));
    must_be(mapped_bytes(), 0);
}

CASE(blocks_are_aligned)
{
    start();
    for (size_t align = os_page; align <= 4 * MIB; align *= 2)
        must_be((uintptr_t)mapped_alloc(1, align) % align, 0);
}

CASE(the_table_opens_when_it_is_needed)
{
    start();
    must_be(os_count(OS_OPEN), 0);
    os_refuse(OS_OPEN, 1, 1);
    must(!mapped_alloc(1, 1));
    must_be(os_entry(OS_UNMAP, 0)->at, os_entry(OS_MAP, 0)->at);
    must(mapped_alloc(1, 1) && mapped_alloc(1, 1));
    must_be(os_count(OS_OPEN), 2);
}

CASE(a_refused_block_leaves_nothing)
{
    start();
    size_t before = os_mapped;
    os_refuse(OS_MAP, 1, 1);
    must(!mapped_alloc(MIB, 1));
    must_be(mapped_bytes(), 0);
    must_be(os_mapped, before);
}

CASE(filled_up_and_emptied)
{
    enum { BLOCKS = 30000 };
    static void *blocks[BLOCKS];
    start();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++)
            must(blocks[i] = mapped_alloc(1, 1));
        must_be(mapped_bytes(), BLOCKS * os_page);
        for (int i = 0; i < BLOCKS; i += 2)
            must(mapped_free(blocks[i]));
        for (int i = 1; i < BLOCKS; i += 2)
            must_be(mapped_size(blocks[i]), os_page);
        for (int i = 0; i < BLOCKS; i += 2)
            must(!mapped_size(blocks[i]));
        for (int i = 1; i < BLOCKS; i += 2)
            must(mapped_free(blocks[i]));
        must_be(mapped_bytes(), 0);
        os_clear();
    }
}

static unsigned entries_used(void)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < MAPPED_MAX; i++)
        n += space.mapped[i].start != 0;
    return n;
}

/* An entry that was given up serves again, or a program that maps and unmaps for long would fill the table. */
CASE(entries_are_used_again)
{
    start();
    void *first = mapped_alloc(1, 1);
    must(mapped_free(first));
    for (int i = 0; i < 1000; i++) {
        void *p = mapped_alloc(1, 1);
        must(mapped_free(p));
        if (p != first)
            must(entries_used() <= 2);
    }
    must(entries_used() <= 2);
}

/* A search goes on past an entry that was given up: a block that was put behind it is still found. */
CASE(blocks_behind_a_given_up_entry_are_found)
{
    start();
    void *p = mapped_alloc(1, 1);
    uint32_t at = 0;
    while (space.mapped[at].start != (uintptr_t)p)
        at++;
    struct mapped *next = &space.mapped[(at + 1) & (MAPPED_MAX - 1)];
    next->size = os_page; /* as if p had been put there because its own entry was in use */
    next->start = (uintptr_t)p;
    space.mapped[at].start = 2;
    must_be(mapped_size(p), os_page);
    must(mapped_free(p));
}

CASE(a_block_grows_in_place_or_moves)
{
    start();
    char *p = mapped_alloc(2 * os_page, 1);
    memset(p, 7, 2 * os_page);
    char *q = mapped_resize(p, 4 * os_page);
    must(q && q[2 * os_page - 1] == 7 && !q[2 * os_page]);
    must_be(mapped_size(q), 4 * os_page);
    must_be(mapped_bytes(), 4 * os_page);
    os_refuse(OS_RESIZE, 1, 1); /* not in place */
    char *r = mapped_resize(q, MIB);
    must(r && r != q && r[2 * os_page - 1] == 7 && !mapped_size(q));
    must_be(mapped_size(r), MIB);
    must_be(mapped_bytes(), MIB);
    must(!mapped_resize(r + os_page, MIB));
    must(mapped_resize(r, 1) == r);
    must_be(mapped_bytes(), os_page);
    must(mapped_free(r));
    must_be(mapped_bytes(), 0);
}

CASE(a_refused_resize_leaves_the_block)
{
    start();
    char *p = mapped_alloc(2 * os_page, 1);
    memset(p, 7, 2 * os_page);
    os_refuse(OS_RESIZE, 1, OS_ALWAYS);
    must(!mapped_resize(p, MIB));
    must_be(mapped_size(p), 2 * os_page);
    must_be(mapped_bytes(), 2 * os_page);
    must(p[2 * os_page - 1] == 7);
    os_refuse(OS_MAP, 1, OS_ALWAYS);
    must(!mapped_resize(p, MIB));
    must(mapped_free(p));
    must_be(mapped_bytes(), 0);
}

/* At the limit of mappings munmap() fails, too; the pages go all the same. */
CASE(pages_go_where_unmapping_is_refused)
{
    start();
    char *p = mapped_alloc(2 * os_page, 1);
    os_refuse(OS_UNMAP, 1, 1);
    must(mapped_free(p));
    must_be(os_entry(OS_DISCARD, 0)->at, p);
    must_be(os_entry(OS_DISCARD, 0)->size, 2 * os_page);
    must_be(mapped_bytes(), 0);
}

/* ---- threads ---- */

/*
 * Two threads free one block, as nearly at once as they can: they spin until the round begins. (Where the exchange in
 * the table was replaced by a plain store, both succeeded within a few thousand rounds.)
 */
enum { RACES = 20000 };
static void *_Atomic raced;
static _Atomic int round_number;
static _Atomic unsigned freed, done;

static void await_round(int number)
{
    for (int spins = 1; round_number < number; spins++)
        if (!(spins % 1000)) /* one CPU may have to do */
            sched_yield();
}

static void *free_it(void *unused)
{
    (void)unused;
    for (int i = 1; i <= RACES; i++) {
        await_round(i);
        freed += mapped_free(raced);
        done++;
    }
    return NULL;
}

CASE(one_of_two_frees_succeeds)
{
    pthread_t other;
    start();
    must(!pthread_create(&other, NULL, free_it, NULL));
    for (int i = 1; i <= RACES; i++) {
        os_clear();
        freed = done = 0;
        raced = mapped_alloc(1, 1);
        round_number = i;
        freed += mapped_free(raced);
        while (!done)
            sched_yield();
        must_be(freed, 1);
        must_be(os_count(OS_UNMAP), 1);
    }
    must_be(mapped_bytes(), 0);
}

/* ---- small blocks ---- */

CASE(small_blocks_share_chunks)
{
    start();
    static char *blocks[10000];
    for (int i = 0; i < 10000; i++) {
        must(blocks[i] = mapped_small(3, 48));
        must_be((uintptr_t)blocks[i] % 16, 0);
        must_be(mapped_size(blocks[i]), 48);
        memset(blocks[i], i & 127, 48);
    }
    must(os_count(OS_MAP) <= 8); /* 1355 blocks in each chunk */
    must_be(mapped_bytes(), 480000);
    for (int i = 0; i < 10000; i++) {
        must(blocks[i][0] == (i & 127) && blocks[i][47] == (i & 127));
        must(!mapped_size(blocks[i] + 16) && !mapped_free(blocks[i] + 16));
        must(!mapped_resize(blocks[i], os_page));
    }
    for (int i = 0; i < 10000; i++)
        must(mapped_free(blocks[i]) && !mapped_free(blocks[i]) && !mapped_size(blocks[i]));
    must_be(mapped_bytes(), 0);
    must(os_count(OS_DISCARD) >= 6); /* chunks without blocks */
    unsigned maps = os_count(OS_MAP);
    for (int i = 0; i < 5000; i++)
        must(mapped_small(3, 48));
    must_be(os_count(OS_MAP), maps);
}

CASE(small_blocks_are_aligned_to_their_size)
{
    start();
    for (unsigned kind = 0; kind < 10; kind++)
        for (int i = 0; i < 100; i++)
            must_be((uintptr_t)mapped_small(kind, 16u << kind) % (16u << kind), 0);
    must(!mapped_small(0, 8) && !mapped_small(11, MAPPED_SMALL + 16));
    os_refuse(OS_MAP, 1, OS_ALWAYS);
    must(!mapped_small(12, 64));
}

static void *allocate_and_free(void *arg)
{
    uint64_t n = (uintptr_t)arg;
    static __thread uint64_t *mine[100];
    for (int i = 0; i < 100000; i++) {
        n = n * 2862933555777941757u + 3037000493u;
        uint64_t **p = &mine[(n >> 40) % 100];
        if (*p) {
            must(**p == (uintptr_t)p && (*p)[1] == (uintptr_t)p);
            must(mapped_free(*p));
            *p = NULL;
        } else {
            must(*p = mapped_small(1, 32));
            (*p)[0] = (*p)[1] = (uintptr_t)p;
        }
    }
    for (int i = 0; i < 100; i++)
        must(!mine[i] || mapped_free(mine[i]));
    return NULL;
}

/* Each block belongs to one thread at a time, while chunks become empty and are used again. */
CASE(small_blocks_of_several_threads)
{
    pthread_t threads[4];
    start();
    os_quiet = true;
    for (uintptr_t i = 0; i < 4; i++)
        must(!pthread_create(&threads[i], NULL, allocate_and_free, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        must(!pthread_join(threads[i], NULL));
    must_be(mapped_bytes(), 0);
}

static unsigned visited;
static void visit(const void *block, size_t size, void *with)
{
    (void)block, (void)with;
    visited += size == 64;
}

CASE(small_blocks_are_visited)
{
    start();
    void *p[3] = {mapped_small(4, 64), mapped_small(4, 64), mapped_small(4, 64)};
    must(mapped_free(p[1]));
    mapped_each(visit, NULL);
    must_be(visited, 2);
}
