/* Memory that is in use, kept or available: at the limit, when sizes change, and with mallopt(). */
#define _GNU_SOURCE
#include "../pin.h"
#include "again.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/sysinfo.h>

/* ---- slots are CPUs: the first is used from the start, the last only when a thread moves there ---- */

static int first_cpu, last_cpu;

static void find_cpus(void)
{
    cpu_set_t set;
    must(sched_getaffinity(0, sizeof(set), &set) == 0);
    for (first_cpu = 0; !CPU_ISSET(first_cpu, &set);)
        first_cpu++;
    for (last_cpu = CPU_SETSIZE - 1; !CPU_ISSET(last_cpu, &set);)
        last_cpu--;
}

static void start_on_first_cpu(const char *part, rlim_t data)
{
    char text[16];
    find_cpus();
    snprintf(text, sizeof(text), "%d", last_cpu);
    must(setenv("LAST_CPU", text, 1) == 0 && setenv("SHEAF_SLOTS", "cpu_id", 1) == 0);
    must(pin((unsigned)first_cpu));
    execute_limited(part, data);
}

static void go_to_last_cpu(void)
{
    must(pin((unsigned)atoi(getenv("LAST_CPU"))));
}

/* ---- the limit is reached before a thread uses a slot for the first time ---- */

enum { BLOCKS = 20000, LEFT = 2000, LATE_THREADS = 16, STACK = 256 << 10 };
static void *blocks[BLOCKS];

/* There is free memory, which this thread and others have freed. */
static void *allocate_late(void *number)
{
    go_to_last_cpu();
    uintptr_t part = LEFT / LATE_THREADS;
    for (uintptr_t i = 0; i < part; i++)
        free(blocks[(uintptr_t)number * part + i]);
    void *p = malloc(100);
    must(p);
    memset(p, 1, 100);
    free(p);
    return NULL;
}

PART(part_limit)
{
    static char stacks[LATE_THREADS][STACK] __attribute__((aligned(4096)));
    for (int i = 0; i < BLOCKS; i++)
        must((blocks[i] = malloc(100)));
    for (int i = LEFT; i < BLOCKS; i++)
        free(blocks[i]);
    struct rlimit none = {1, 1};
    must(setrlimit(RLIMIT_DATA, &none) == 0);
    for (uintptr_t i = 0; i < LATE_THREADS; i++) {
        pthread_t thread;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        must(pthread_attr_setstack(&attr, stacks[i], STACK) == 0);
        must(pthread_create(&thread, &attr, allocate_late, (void *)i) == 0);
        must(pthread_join(thread, NULL) == 0);
    }
}

CASE(threads_use_new_slots_at_the_data_limit)
{
    start_on_first_cpu("part_limit", 64ul << 20);
}

/* ---- a program fills all its memory with blocks of one size, then of another ---- */

struct node {
    struct node *next;
};

static size_t fill(size_t size, struct node **list)
{
    size_t n = 0;
    *list = NULL;
    for (struct node *node; (node = malloc(size)); n++) {
        node->next = *list;
        *list = node;
    }
    return n;
}

static void empty(struct node *list)
{
    while (list) {
        struct node *next = list->next;
        free(list);
        list = next;
    }
}

#define REGION (64ul << 20)

PART(part_phases)
{
    static const size_t sizes[] = {8, 16, 32, 48, 64, 96, 128, 8, 16};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct node *list;
        size_t n = fill(sizes[i], &list);
        if (n * sizes[i] < REGION / 8 * 7)
            dprintf(2, "size %zu: only %zu objects\n", sizes[i], n);
        must(n * sizes[i] >= REGION / 8 * 7);
        empty(list);
        malloc_trim(0);
    }
}

CASE(each_size_in_turn_fills_a_small_region)
{
    must(setenv("SHEAF_REGION", "64M", 1) == 0);
    execute_part("part_phases");
}

/* ---- mallopt ---- */

#ifdef __GLIBC__

enum { LARGE = 300, LARGE_BYTES = 200000 };

/* Writes and frees 60 MB, and returns how many bytes of free memory are kept. */
static size_t kept(void)
{
    static char *large[LARGE];
    for (int i = 0; i < LARGE; i++) {
        must((large[i] = malloc(LARGE_BYTES)));
        memset(large[i], 1, LARGE_BYTES);
    }
    for (int i = 0; i < LARGE; i++)
        free(large[i]);
    return mallinfo2().keepcost;
}

PART(part_threshold)
{
    free(malloc(10));
    must(kept() > 0); /* the default keeps some memory, so the next check proves something */
    must(mallopt(M_TRIM_THRESHOLD, 0) == 1);
    must(kept() < LARGE_BYTES);
    must(mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1);
    must(kept() >= (size_t)LARGE * LARGE_BYTES);
}

static void without_age(const char *part)
{
    must(setenv("SHEAF_DECAY", "0", 1) == 0); /* how much is kept depends only on the threshold, not on age */
    execute_part(part);
}

CASE(M_TRIM_THRESHOLD_limits_what_is_kept)
{
    without_age("part_threshold");
}

PART(part_threshold_first)
{
    must(mallopt(M_TRIM_THRESHOLD, 0) == 1);
    must(kept() < LARGE_BYTES);
}

CASE(M_TRIM_THRESHOLD_before_the_first_malloc)
{
    without_age("part_threshold_first");
}

/* ---- SHEAF_KEEP: this much stays warm regardless of age, also when new memory is needed ---- */

enum { SMALL = 3000, SMALL_BYTES = 8000 };
static const size_t mib = 1 << 20;

static void use_block(size_t bytes)
{
    char *block = malloc(bytes);
    must(block);
    memset(block, 1, bytes);
    free(block);
}

PART(part_chosen)
{
    static char *small[SMALL];
    use_block(200 * mib);
    usleep(50000); /* the block becomes older than the decay time */
    for (int i = 0; i < SMALL; i++)
        must((small[i] = malloc(SMALL_BYTES)));
    for (int i = 0; i < 100; i++)
        use_block(300000); /* only some calls check the clock, so there are many */
    must(mallinfo2().keepcost >= 200 * mib);
    use_block(400 * mib);
    size_t kept_now = mallinfo2().keepcost;
    must(kept_now <= 257 * mib && kept_now >= 250 * mib);
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
    must(malloc_trim(0) == 1);
    must(mallinfo2().keepcost == 0);
}

CASE(SHEAF_KEEP_stays_warm)
{
    must(setenv("SHEAF_DECAY", "1", 1) == 0 && setenv("SHEAF_KEEP", "256M", 1) == 0);
    execute_part("part_chosen");
}

#else

NEEDS_GLIBC(M_TRIM_THRESHOLD_limits_what_is_kept)
NEEDS_GLIBC(M_TRIM_THRESHOLD_before_the_first_malloc)
NEEDS_GLIBC(SHEAF_KEEP_stays_warm)

#endif

/* ---- the count of bytes in use does not depend on the CPU that counts ---- */

static volatile int trim_now, trimmed;

/* Runs on a CPU where nothing was allocated. The trim counts fast-path operations of the other CPU's slot. */
static void *trim_there(void *unused)
{
    go_to_last_cpu();
    while (!trim_now)
        sched_yield();
    malloc_trim(0);
    trimmed = 1;
    return unused;
}

PART(part_count)
{
    static void *some[5000];
    pthread_t thread;
    must(pthread_create(&thread, NULL, trim_there, NULL) == 0);
    for (size_t i = 0; i < 5000; i++)
        must((some[i] = malloc(100)));
    for (size_t i = 0; i < 120; i++)
        free(some[i]);
    size_t before = mallinfo2().uordblks;
    trim_now = 1;
    while (!trimmed)
        sched_yield();
    size_t after = mallinfo2().uordblks;
    if (before != after)
        dprintf(2, "in use: %zu bytes before the trim, %zu after\n", before, after);
    must(before == after);
    must(pthread_join(thread, NULL) == 0);
}

CASE(a_trim_on_another_CPU_keeps_the_count_of_bytes_in_use)
{
    find_cpus();
    if (first_cpu == last_cpu)
        _exit(CASE_SKIPPED);
    start_on_first_cpu("part_count", 0);
}

/* ---- one request for more than the machine has, where the system refuses that ---- */

static char overcommit_mode(void)
{
    char mode = 0;
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, &mode, 1) != 1)
        mode = 0;
    close(fd);
    return mode;
}

static void must_refuse(void *p)
{
    must(!p && errno == ENOMEM);
    errno = 0;
}

/* A block may grow beyond what the machine has, as with mremap(), if what is added is less than that. */
CASE(a_request_for_more_than_the_machine_has_fails)
{
    struct sysinfo info;
    if (overcommit_mode() != '0' || sysinfo(&info))
        _exit(CASE_SKIPPED);
    size_t all = (info.totalram + info.totalswap) * info.mem_unit, more = all + all / 4, part = all / 4 * 3;
    errno = 0;
    must_refuse(malloc(more));
    must_refuse(calloc(more / 8, 8));
    must_refuse(memalign(1 << 20, more));
    char *p = malloc(1000);
    must(p);
    must_refuse(realloc(p, more));
    must((p = realloc(p, part)));
    p[0] = 7;
    must((p = realloc(p, more)) && p[0] == 7);
    must_refuse(realloc(p, 3 * all));
    must(p[0] == 7);
    free(p);
}
