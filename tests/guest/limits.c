/*
 * Cases for systems that are short of memory, mappings or disk space. tests/guest/script runs them under such
 * settings, on libc's malloc and on the preloaded object.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../proc.h"
#include "../pin.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#define KIB (1ul << 10)
#define MIB (1ul << 20)

#define FILE_FILLED "/records/filled"

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Returns the value of a line of /proc/meminfo, in KiB. */
static unsigned long memory_info(const char *name)
{
    return proc_number("/proc/meminfo", name);
}

/* Blocks form a list. Each holds its size, and a pattern in its last byte. */
struct block {
    struct block *next;
    size_t size;
};

static void mark(struct block *block)
{
    ((unsigned char *)block)[block->size - 1] = (unsigned char)block->size;
}

static bool marked(const struct block *block)
{
    return ((const unsigned char *)block)[block->size - 1] == (unsigned char)block->size;
}

static bool add_block(struct block **list, size_t size)
{
    struct block *block = malloc(size);
    if (!block)
        return false;
    *block = (struct block){*list, size};
    mark(block);
    *list = block;
    return true;
}

/* Allocates blocks until malloc fails or `most` bytes are reached. Returns the number of bytes. */
static size_t fill(struct block **list, size_t size, size_t most)
{
    size_t bytes = 0;
    errno = 0;
    while (bytes < most && add_block(list, size))
        bytes += size;
    must(bytes >= most || errno == ENOMEM);
    return bytes;
}

static void free_all(struct block **list)
{
    while (*list) {
        struct block *next = (*list)->next;
        must(marked(*list));
        free(*list);
        *list = next;
    }
}

/* ---- memory that may not be overcommitted ---- */

enum { PROCESSES = 50 };

/* One of many processes. It allocates a little, prints a letter to show that it runs, and ends with its input. */
PART(one_of_many)
{
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        must(blocks[i] = malloc(10 * i + 1));
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    char end;
    must(write(1, "r", 1) == 1 && read(0, &end, 1) == 0);
}

/* Starts one more process, which runs until the pipe `until` is closed. Returns whether it runs. */
static bool start_one(int until)
{
    char *argv[] = {"limits", "--part", "one_of_many", NULL}, said;
    int out[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    must(!pipe2(out, O_CLOEXEC) && !posix_spawn_file_actions_init(&actions) &&
         !posix_spawn_file_actions_adddup2(&actions, until, 0) &&
         !posix_spawn_file_actions_adddup2(&actions, out[1], 1));
    errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    close(out[1]);
    bool runs = !errno && read(out[0], &said, 1) == 1;
    close(out[0]);
    posix_spawn_file_actions_destroy(&actions);
    return runs;
}

CASE(many_processes)
{
    int until[2], running = 0;
    unsigned long before = memory_info("Committed_AS:");
    must(!pipe2(until, O_CLOEXEC));
    while (running < PROCESSES && start_one(until[0]))
        running++;
    unsigned long after = memory_info("Committed_AS:");
    printf("# %d processes are running; %lu KiB are committed for each\n", running,
           (after - before) / (running ? running : 1));
    fflush(stdout);
    must(running == PROCESSES);
    close(until[0]);
    close(until[1]);
    for (int status; wait(&status) > 0;)
        must(status == 0);
}

/* Fills the memory with blocks of each size, twice. The second time may yield at most a tenth less. */
CASE(fill_and_free)
{
    static const size_t sizes[] = {100, 1000, 30000, 130000, 3 * MIB};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct block *list = NULL;
        size_t first = fill(&list, sizes[i], SIZE_MAX);
        free_all(&list);
        size_t second = fill(&list, sizes[i], SIZE_MAX);
        must(!malloc(1024 * MIB) && errno == ENOMEM);
        free_all(&list);
        printf("# blocks of %zu: %zu MiB, the second time %zu\n", sizes[i], first / MIB, second / MIB);
        fflush(stdout);
        must(first > 0 && second >= first - first / 10);
    }
}

/* Freed memory, of large and of small blocks, is returned: the rest of the program can map it. */
CASE(memory_is_returned)
{
    struct block *list = NULL;
    size_t most = memory_info("CommitLimit:") * KIB - memory_info("Committed_AS:") * KIB;
    for (int round = 0; round < 3; round++) {
        fill(&list, round == 1 ? 2 * MIB : 500, most / 2);
        free_all(&list);
        malloc_trim(0);
        void *map = mmap(NULL, most * 3 / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(map != MAP_FAILED && !munmap(map, most * 3 / 4));
    }
}

static void *filler(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    for (int round = 0; round < 5; round++) {
        struct block *list = NULL;
        fill(&list, sizeof(struct block) + 1 + (random_next(&state) % 8 ? random_next(&state) % 20000 : 300000),
             20 * MIB);
        free_all(&list);
    }
    return NULL;
}

static void *nothing(void *p)
{
    return p;
}

CASE(threads_fill)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS], one;
    pthread_attr_t attr;
    must(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 256 * KIB));
    for (uintptr_t i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], &attr, filler, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++)
        must(!pthread_join(threads[i], NULL));
    must(!pthread_create(&one, NULL, nothing, NULL) && !pthread_join(one, NULL)); /* takes 8 MiB for its stack */
}

/* fork() needs as much commitment again for the child. Whether it succeeds or not, the parent must still work. */
CASE(forks)
{
    size_t most = memory_info("CommitLimit:") * KIB - memory_info("Committed_AS:") * KIB;
    static const struct {
        const char *name;
        size_t tenths;
        bool works;
    } sizes[] = {{"a third", 3, true}, {"more than half", 7, false}};
    for (size_t i = 0; i < 2; i++) {
        struct block *list = NULL;
        fill(&list, 2000, most * sizes[i].tenths / 10);
        errno = 0;
        pid_t pid = fork();
        if (!pid) {
            struct block *more = NULL;
            fill(&more, 2000, MIB);
            free_all(&more);
            free_all(&list);
            _exit(0);
        }
        printf("# fork with %s of the memory: %s\n", sizes[i].name, pid > 0 ? "works" : strerror(errno));
        fflush(stdout);
        int status = 0;
        must(sizes[i].works ? pid > 0 : pid > 0 || errno == ENOMEM);
        must(pid < 0 || (waitpid(pid, &status, 0) == pid && status == 0));
        free_all(&list);
        must(fill(&list, 100, MIB) >= MIB);
        free_all(&list);
        malloc_trim(0);
    }
}

CASE(huge_realloc)
{
    size_t most = memory_info("CommitLimit:") * KIB - memory_info("Committed_AS:") * KIB, size = MIB;
    char *p = malloc(size), *more;
    memset(p, 5, size);
    for (; (more = realloc(p, size + 3 * MIB)); p = more) {
        memset(more + size, 5, 3 * MIB);
        size += 3 * MIB;
    }
    printf("# a block grew to %zu of %zu MiB\n", size / MIB, most / MIB);
    fflush(stdout);
    must(errno == ENOMEM && size >= most / 2);
    for (size_t i = 0; i < size; i += 4096)
        must(p[i] == 5);
    must((p = realloc(p, MIB)) && p[MIB - 1] == 5);
    void *other = malloc(most / 2);
    must(other);
    free(other);
    must((p = realloc(p, most / 4 * 3)));
    free(p);
}

/* ---- few mappings ---- */

static _Atomic bool all_there;

static void *sleeper(void *unused)
{
    struct block *list = NULL;
    fill(&list, 700, 20 * KIB);
    while (!all_there)
        usleep(10000);
    fill(&list, 70000, 100 * KIB);
    free_all(&list);
    return unused;
}

CASE(many_threads)
{
    enum { MOST = 600 };
    static pthread_t threads[MOST];
    pthread_attr_t attr;
    int n = 0;
    must(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 64 * KIB));
    while (n < MOST && !pthread_create(&threads[n], &attr, sleeper, NULL))
        n++;
    struct block *list = NULL;
    size_t got = fill(&list, 1000, 8 * MIB);
    printf("# %d threads, then %zu KiB\n", n, got / KIB);
    fflush(stdout);
    all_there = true;
    for (int i = 0; i < n; i++)
        must(!pthread_join(threads[i], NULL));
    free_all(&list);
    must(n >= 400); /* each thread takes two mappings */
    must(fill(&list, 1000, 8 * MIB) >= 8 * MIB);
    free_all(&list);
}

/* Makes mappings that the kernel cannot merge until it refuses one, and then removes `spare` of them. */
static void use_up_mappings(int spare)
{
    enum { MOST = 100000 };
    static void *maps[MOST];
    int n = 0;
    while (n < MOST && (maps[n] = mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                       0)) != MAP_FAILED)
        n++;
    must(n < 2000);
    while (spare-- > 0)
        munmap(maps[--n], 4096);
}

/* Allocates and frees blocks of all sizes in random order. Returns how many allocations failed. */
static unsigned long turnover(uint32_t seed, unsigned rounds, size_t blocks, size_t large)
{
    struct block **list = calloc(blocks, sizeof(*list));
    unsigned long refused = 0;
    for (size_t i = 0; list && i < rounds * blocks; i++) {
        struct block **at = &list[random_next(&seed) % blocks];
        size_t size = random_next(&seed) % 64 ? 20 + random_next(&seed) % 2000 : 20 + random_next(&seed) % large;
        if (*at)
            must(marked(*at));
        free(*at);
        *at = malloc(size);
        refused += !*at;
        if (*at) {
            **at = (struct block){.size = size};
            mark(*at);
        }
    }
    for (size_t i = 0; list && i < blocks; i++)
        free(list[i]);
    free(list);
    return refused;
}

static void *turner(void *seed)
{
    return (void *)turnover((uint32_t)(uintptr_t)seed, 4, 4000, 500000);
}

static void turn_in_threads(const char *where)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    unsigned long refused = 0;
    void *one;
    int n = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        n += !pthread_create(&threads[n], NULL, turner, (void *)(i + 1));
    while (n--) {
        must(!pthread_join(threads[n], &one));
        refused += (unsigned long)one;
    }
    refused += turnover(77, 4, 4000, 500000);
    malloc_trim(0);
    refused += turnover(78, 4, 4000, 500000);
    printf("# %s: %lu of 96000 allocations failed\n", where, refused);
    fflush(stdout);
}

CASE(few_mappings_left)
{
    use_up_mappings(40);
    turn_in_threads("40 mappings left");
}

CASE(no_mapping_left)
{
    struct block *list = NULL;
    fill(&list, 1000, 8 * MIB);
    free_all(&list);
    use_up_mappings(0);
    turn_in_threads("no mapping left");
}

/* Thousands of mapped blocks. The kernel merges adjacent mappings, so freeing every second block splits them. */
CASE(mapped_blocks)
{
    enum { COUNT = 3000, SIZE = 100 * KIB };
    static struct block *blocks[COUNT];
    must(mallopt(M_MMAP_THRESHOLD, 64 * KIB) == 1);
    for (int round = 0; round < 3; round++) {
        unsigned refused = 0;
        for (size_t i = 0; i < COUNT; i++)
            if ((blocks[i] = malloc(SIZE + i % 3 * 4096)))
                *blocks[i] = (struct block){NULL, SIZE + i % 3 * 4096};
        for (size_t step = 2; step; step--)
            for (size_t i = 0; i < COUNT; i += step) {
                must(!blocks[i] || blocks[i]->size == SIZE + i % 3 * 4096);
                free(blocks[i]);
                blocks[i] = step == 2 ? malloc(SIZE) : NULL;
                refused += step == 2 && !blocks[i];
                if (blocks[i])
                    *blocks[i] = (struct block){NULL, SIZE + i % 3 * 4096};
                if (step == 2 && i % 4 == 0 && i + 1 < COUNT) {
                    free(blocks[i + 1]);
                    blocks[i + 1] = NULL;
                }
            }
        printf("# round %d: %u of %d allocations failed\n", round, refused, COUNT / 2);
        fflush(stdout);
        must(refused == 0);
    }
}

CASE(large_blocks)
{
    enum { COUNT = 60 };
    struct block *blocks[COUNT] = {0};
    uint32_t state = 5;
    use_up_mappings(40);
    for (int i = 0; i < 3000; i++) {
        size_t at = random_next(&state) % COUNT, size = MIB / 2 + random_next(&state) % (4 * MIB);
        must(!blocks[at] || marked(blocks[at]));
        if (random_next(&state) % 4) {
            free(blocks[at]);
            blocks[at] = malloc(size);
        } else {
            struct block *moved = realloc(blocks[at], size);
            must(moved);
            blocks[at] = moved;
        }
        must(blocks[at]);
        *blocks[at] = (struct block){NULL, size};
        mark(blocks[at]);
        if (i % 500 == 0)
            malloc_trim(0);
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
}

/*
 * Linux before 6.17 refuses to move a range of two mappings, and has already unmapped the target by then. The
 * program's madvise() for a part of the block splits its mapping in two.
 */
CASE(moved_block)
{
    enum { SIZE = 8 * MIB };
    char *p = malloc(SIZE), *middle = (char *)((uintptr_t)(p + SIZE / 2) & ~4095ul);
    must(p && malloc(SIZE)); /* leaves no room to grow in place */
    memset(p, 5, SIZE);
    must(!madvise(middle, MIB, MADV_DONTFORK));
    must((p = realloc(p, 3ul * SIZE)));
    for (size_t i = 0; i < SIZE; i++)
        must(p[i] == 5);
    memset(p, 6, 3ul * SIZE);
}

/* ---- a control group with little memory ---- */

enum { LIVE = 10 * MIB };

/* Keeps up to 10 MiB live and allocates four times as much in all; every byte is written. */
static void *live_in_turnover(void *seed)
{
    enum { MOST = 16000 };
    uint32_t state = (uint32_t)(uintptr_t)seed;
    struct block **blocks = calloc(MOST, sizeof(*blocks));
    size_t live = 0, through = 0;
    must(blocks);
    while (through < 4 * LIVE) {
        struct block **at = &blocks[random_next(&state) % MOST];
        size_t size =
            random_next(&state) % 500 ? 64 + random_next(&state) % 1200 : 10000 + random_next(&state) % 50000;
        if (*at) {
            must(marked(*at));
            live -= (*at)->size;
            free(*at);
            *at = NULL;
        }
        if (live + size > LIVE)
            continue;
        must(*at = malloc(size));
        memset(*at, 1, size);
        **at = (struct block){.size = size};
        mark(*at);
        live += size;
        through += size;
    }
    for (size_t i = 0; i < MOST; i++)
        free(blocks[i]);
    free(blocks);
    return NULL;
}

CASE(turnover_of_40_MiB)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        must(!pthread_create(&threads[i], NULL, live_in_turnover, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        must(!pthread_join(threads[i], NULL));
}

struct burst {
    size_t size, bytes;
};

static void *burst(void *argument)
{
    const struct burst *b = argument;
    struct block *list = NULL;
    for (size_t bytes = 0; bytes < b->bytes; bytes += b->size) {
        must(add_block(&list, b->size));
        memset(list + 1, 1, b->size - sizeof(*list));
        mark(list);
    }
    free_all(&list);
    return NULL;
}

static const size_t burst_sizes[] = {120, 1500, MIB, 400, 100000, 56, 5000};

CASE(bursts)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof(burst_sizes) / sizeof(*burst_sizes); i++)
            burst(&(struct burst){burst_sizes[i], 48 * MIB});
}

/* The same bursts, each by four threads that end afterwards. */
CASE(bursts_of_threads)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof(burst_sizes) / sizeof(*burst_sizes); i++) {
            pthread_t threads[4];
            struct burst b = {burst_sizes[i], 11 * MIB};
            for (int t = 0; t < 4; t++)
                must(!pthread_create(&threads[t], NULL, burst, &b));
            for (int t = 0; t < 4; t++)
                must(!pthread_join(threads[t], NULL));
        }
}

/* ---- no room for records ---- */

CASE(some_work)
{
    struct block *list = NULL;
    for (size_t size = 20; size < 200000; size += size / 8)
        must(fill(&list, size, 10 * size) >= 10 * size);
    free_all(&list);
}

/* The file system fills up after the record was made; then each CPU counts in its slot for the first time. */
CASE(file_system_fills_up)
{
    static char zero[65536];
    free(malloc(1));
    int fd = open(FILE_FILLED, O_WRONLY | O_CREAT, 0600);
    must(fd >= 0);
    while (write(fd, zero, sizeof(zero)) > 0) {
    }
    while (write(fd, zero, 1024) > 0) {
    }
    must(errno == ENOSPC);
    for (unsigned cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++) {
        must(pin(cpu));
        some_work();
    }
    unlink(FILE_FILLED);
}
