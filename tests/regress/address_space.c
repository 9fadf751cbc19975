/* The address space grows with the heap: limits, mappings in its way, and what is unmapped. */
#define _GNU_SOURCE
#include "../cases.h"
#include "../proc.h"
#include "cache/kmem_cache.h"
#include "front/malloc/large.h"
#include "platform/os/vm.h"
#include "memory/region/arena.h"
#include "memory/space/mapped.h"
#include "sheaf/malloc.h"
#include "process/census.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MIB          (1ul << 20)
#define LARGEST_PAGE (64ul << 10)
#define GIB          (1ul << 30)

/* From now on the process may map `more` bytes. */
static void limit_to(size_t more)
{
    struct rlimit limit;
    must(!getrlimit(RLIMIT_AS, &limit));
    limit.rlim_cur = address_space_bytes() + more;
    must(!setrlimit(RLIMIT_AS, &limit));
}

static bool is_mapped(const void *p)
{
    unsigned char in;
    return mincore((void *)((uintptr_t)p & ~4095ul), 1, &in) == 0;
}

static void *nothing(void *unused)
{
    return unused;
}

static size_t fill(void **list, size_t size)
{
    size_t bytes = 0;
    *list = NULL;
    for (void **p; (p = sheaf_malloc(size)); bytes += size) {
        *p = *list;
        *list = p;
    }
    must(errno == ENOMEM);
    return bytes;
}

static void let_go(void *list)
{
    while (list) {
        void *next = *(void **)list;
        sheaf_free(list);
        list = next;
    }
    sheaf_malloc_trim();
}

/* A program can allocate nearly all memory up to the limit, in blocks of any size, and others can map it again. */
CASE(limits_hold)
{
    static const size_t sizes[] = {100, 1000, 30000, 130000, 3 * MIB};
    enum { LEFT = 256 };
    must(sheaf_malloc(1));
    limit_to(LEFT * MIB);
    must(!sheaf_malloc((LEFT + 16) * MIB));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        void *list;
        size_t got = fill(&list, sizes[i]);
        dprintf(1, "# %zu MiB of blocks of %zu\n", got / MIB, sizes[i]);
        must(got > (LEFT - 40) * MIB && got < (LEFT + 16) * MIB);
        let_go(list);
    }
    pthread_t thread;
    pthread_attr_t attr;
    must(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 128 * MIB));
    must(!pthread_create(&thread, &attr, nothing, NULL) && !pthread_join(thread, NULL));
}

/*
 * mremap() refuses to move a range of two mappings (EFAULT), but has unmapped the target by then. realloc() must
 * then not copy the block into the hole.
 */
CASE(mremap_refuses_a_move)
{
    enum { SIZE = 8 * MIB };
    char *from = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(from != MAP_FAILED && to != MAP_FAILED && !mprotect(from + SIZE / 2, SIZE / 2, PROT_READ));
    from[0] = 7;
    enum vm_moved moved = vm_move(from, to, SIZE);
    must(moved != VM_MOVE_LOST && (moved == VM_MOVED ? to : from)[0] == 7);
    must(is_mapped(to) && is_mapped(to + SIZE - LARGEST_PAGE) && is_mapped(from));

    char *p = sheaf_malloc(SIZE);
    memset(p, 5, SIZE);
    must(sheaf_malloc(SIZE) && /* leaves no room to grow in place */
         !madvise(p + SIZE / 2, SIZE / 2, MADV_DONTFORK));
    must((p = sheaf_realloc(p, 3 * SIZE)) && p[0] == 5 && p[SIZE - 1] == 5);
    memset(p, 6, 3 * SIZE);
}

/* A malloc() or realloc() that fails leaves no address space mapped. */
CASE(failed_allocations_leave_nothing_mapped)
{
    enum { LEFT = 1024 };
    char *p = sheaf_malloc(MIB);
    must(p);
    limit_to(LEFT * MIB);
    size_t before = address_space_bytes();
    for (size_t n = 2 * GIB; n < 1024 * GIB; n *= 3) {
        must(!sheaf_malloc(n));
        must(!sheaf_realloc(p, n));
    }
    must(address_space_bytes() < before + 16 * MIB);
}

CASE(the_end_of_the_region_is_unmapped)
{
    must(sheaf_malloc(1));
    size_t before = address_space_bytes();
    char *low = sheaf_malloc(100 * MIB), *high = sheaf_malloc(200 * MIB);
    low[0] = high[0] = high[200 * MIB - 1] = 1;
    must(high > low && is_mapped(high + 199 * MIB));
    sheaf_free(high);
    sheaf_malloc_trim();
    must(!is_mapped(high + 199 * MIB) && is_mapped(low));
    char *again = sheaf_calloc(200, MIB); /* mapped again, and zero */
    must(again && !again[0] && !again[200 * MIB - 1]);
    sheaf_free(again);
    sheaf_free(low);
    sheaf_malloc_trim();
    must(address_space_bytes() < before + 70 * MIB);
}

/* Mappings of others in the way of the region are not touched, and the region grows beyond them. */
CASE(mappings_of_others_in_the_way)
{
    enum { PIECES = 40, BLOCKS = 400 };
    static char *pieces[PIECES];
    must(sheaf_malloc(1));
    for (size_t i = 0; i < PIECES; i++) {
        char *at = (char *)space.region + 12 * MIB + i * 37 * MIB + i * i * LARGEST_PAGE;
        pieces[i] = mmap(at, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        must(pieces[i] == at);
        memset(pieces[i], (int)i + 1, 8192);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        char *large = sheaf_malloc(MIB), *small[10];
        must(large);
        memset(large, 0xff, MIB);
        for (size_t k = 0; k < 10; k++) {
            must((small[k] = sheaf_malloc(8000)));
            memset(small[k], 0xff, 8000);
        }
        sheaf_free(small[i % 10]);
        if (i % 3 == 0)
            sheaf_free(large);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < 8192; k++)
            must(pieces[i][k] == (char)(i + 1));
    sheaf_malloc_trim();
    for (size_t i = 0; i < PIECES; i++)
        must(pieces[i][8191] == (char)(i + 1));
}

/* Slices beyond SLICES_FIRST have their structs elsewhere; the fast path finds slabs there, too. */
CASE(slabs_beyond_the_first_slices)
{
    enum { N = 20000 };
    static char *block[N];
    must(sheaf_malloc(1));
    char *large = sheaf_malloc(3 * GIB);
    must(large && space.slice_count > SLICES_FIRST);
    large[3 * GIB - 1] = 1;
    size_t beyond = 0;
    for (size_t i = 0; i < N; i++) {
        must((block[i] = sheaf_malloc(5000)));
        block[i][0] = block[i][4999] = (char)i;
        beyond += slice_of(block[i]) > SLICES_FIRST;
    }
    must(beyond > N / 4);
    for (size_t i = 0; i < N; i++) {
        must(block[i][4999] == (char)i && sheaf_malloc_usable_size(block[i]) >= 5000);
        sheaf_free(block[i]);
    }
    must(sheaf_malloc_usable_size(large) == 3 * GIB);
    must((large = sheaf_realloc(large, 5 * GIB)) && large[3 * GIB - 1] == 1);
    sheaf_free(large);
    sheaf_malloc_trim();
    for (size_t i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(cache_at(i)))
            cache_check(cache_at(i));
}

/* A program can allocate, but not touch, a hundred times the machine's memory. */
CASE(more_than_the_machine_has)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = 100 * (size_t)sysconf(_SC_PHYS_PAGES) * page, size = 64 * MIB;
    void *list = NULL;
    must(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); /* a huge page for each touched one is none of our cost */
    must(sheaf_malloc(1));
    size_t before = resident_bytes(), count = all / size < 40000 ? all / size : 40000;
    for (size_t i = 0; i < count; i++) {
        void **p = sheaf_malloc(size);
        must(p);
        if (i % 100 == 0) {
            *p = list;
            list = p;
        }
    }
    size_t cost = resident_bytes() - before;
    dprintf(1, "# %zu blocks of 64 MiB cost %zu KiB\n", count, cost / 1024);
    must(cost < count / 100 * page + count * page + 16 * MIB); /* pages touched, and a page of structs each */
}

/* Blocks above M_MMAP_THRESHOLD have mappings of their own, which are found, resized and unmapped by address. */
CASE(blocks_with_their_own_mappings)
{
    enum { N = 20000, EACH = 200000 };
    static char *block[N];
    must(sheaf_malloc(1));
    size_t before = address_space_bytes();
    large_threshold = 128 << 10;
    for (size_t i = 0; i < N; i++) {
        must((block[i] = sheaf_malloc(EACH)) && slice_of(block[i]) >= space.slice_count);
        memcpy(block[i], &i, sizeof(i));
    }
    for (size_t i = 0; i < N; i += 3) {
        size_t n = i % 2 ? EACH * 5 : EACH / 4;
        must((block[i] = sheaf_realloc(block[i], n)) && sheaf_malloc_usable_size(block[i]) >= n);
    }
    for (size_t k = 0; k < N; k++) {
        size_t i = k * 7919 % N, held;
        memcpy(&held, block[i], sizeof(held));
        must(held == i);
        sheaf_free(block[i]);
        must(!mapped_size(block[i]) && !mapped_free(block[i]));
    }
    must(!mapped_bytes() && address_space_bytes() < before + 32 * MIB);
}
