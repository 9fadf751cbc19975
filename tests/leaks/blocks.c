/* SHEAF_LEAKS=1: which blocks are lost, whatever holds the references, and in every kind of memory. */
#define _GNU_SOURCE
#include "leaks.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>

struct node {
    struct node *next, *other;
    char rest[48];
};

static void *volatile kept;
static struct node *volatile list;

/* ---- lost ---- */

LEAK_CASE(nothing_is_lost_where_all_is_freed, "nothing lost")
{
    for (int i = 0; i < 1000; i++)
        free(block(16 + (size_t)i * 40));
}

static void lose_ten(void)
{
    for (int i = 0; i < 10; i++)
        sink = block(1024);
}

LEAK_CASE(lost_blocks_are_counted, "lost 10 KiB in 10 blocks")
{
    away(lose_ten);
}

static struct node *chain(int n)
{
    struct node *head = NULL;
    for (int i = 0; i < n; i++) {
        struct node *node = block(sizeof(*node));
        node->next = head;
        head = node;
    }
    return head;
}

static void lose_chain(void)
{
    sink = chain(100);
}

LEAK_CASE(what_lost_blocks_refer_to_is_lost_with_them, "lost 64 bytes in 1 block, 6.2 KiB in 99 blocks through it")
{
    away(lose_chain);
}

/* The same, with each node at a higher address than the one before: the first in order leads to all others. */
AWAY_CASE(so_it_is_in_the_other_order, "lost 64 bytes in 1 block, 6.2 KiB in 99 blocks through it")
{
    struct node *all[100];
    for (int i = 0; i < 100; i++)
        all[i] = block(sizeof(*all[i]));
    for (int i = 0; i < 99; i++)
        all[i]->next = all[i + 1];
}

AWAY_CASE(two_ways_to_a_lost_block, "lost 64 bytes in 1 block, 448 bytes in 7 blocks through it")
{
    struct node *root = block(sizeof(*root));
    root->next = chain(3);
    root->other = chain(4);
    root->next->other = root->other; /* two ways lead there */
    sink = root;
}

AWAY_CASE(of_a_cycle_one_block_is_lost_and_the_rest_with_it,
          "lost 64 bytes in 1 block, 256 bytes in 4 blocks through it")
{
    struct node *first = chain(5), *last = first;
    while (last->next)
        last = last->next;
    last->next = first;
    first->other = first;
}

/* A lost block that leads into a cycle, which is then lost with it. */
AWAY_CASE(a_cycle_is_lost_with_what_leads_to_it, "lost 64 bytes in 1 block, 128 bytes in 2 blocks through it")
{
    struct node *a = block(sizeof(*a)), *b = block(sizeof(*b)), *c = block(sizeof(*c));
    a->next = b;
    b->next = a;
    c->next = a;
}

AWAY_CASE_WITH(a_million_lost_blocks, "lost 61 MiB in 1000000 blocks", NULL, 1)
{
    for (int i = 0; i < 1000000; i++)
        sink = malloc(64);
}

AWAY_CASE_WITH(a_lost_list_of_a_million, "lost 64 bytes in 1 block, 61 MiB in 999999 blocks through it", NULL, 1)
{
    sink = chain(1000000);
}

AWAY_CASE_WITH(a_list_of_a_million, "nothing lost", NULL, 1)
{
    list = chain(1000000);
}

AWAY_CASE(a_free_object_refers_to_nothing, "lost 64 bytes in 1 block")
{
    struct node *node = block(sizeof(*node));
    node->next = block(sizeof(*node));
    kept = node->next;
    free(node);
    kept = NULL; /* what a free object refers to is lost */
}

/* ---- referenced ---- */

AWAY_CASE(static_data_and_interior_pointers, "nothing lost")
{
    kept = block(1024);
    list = chain(50);
    list->other = (struct node *)(void *)((char *)block(4096) + 4000); /* inside */
}

AWAY_CASE(a_pointer_past_the_end, "lost 1 KiB in 1 block")
{
    kept = (char *)block(1024) + 1024;
}

AWAY_CASE(a_pointer_to_the_last_byte, "nothing lost")
{
    kept = (char *)block(1024) + 1023;
}

static char odd[32] __attribute__((aligned(8)));

AWAY_CASE(a_pointer_that_is_not_aligned, "lost 1 KiB in 1 block")
{
    void *p = block(1024);
    memcpy(odd + 3, &p, sizeof(p)); /* not found, as by other conservative scans */
}

/* A local variable of the function that calls exit(). */
LEAK_CASE(the_stack_of_the_thread_that_exits, "nothing lost")
{
    void *volatile local = block(1024);
    scrub();
    exit(local == NULL);
}

/* ---- mappings ---- */

static void **map(int protection, int flags)
{
    void **at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED);
    at[70000] = block(1024);
    must(mprotect(at, 1 << 20, protection) == 0);
    return at;
}

AWAY_CASE(mappings_of_the_program, "nothing lost")
{
    kept = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    kept = map(PROT_READ, MAP_PRIVATE);
    kept = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    kept = NULL;
}

AWAY_CASE(a_mapping_without_access, "lost 1 KiB in 1 block")
{
    kept = map(PROT_NONE, MAP_PRIVATE);
}

/* A file that is shorter than its mappings, a device, and a mapping of which nearly nothing was touched. */
LEAK_CASE(mappings_that_are_hard_to_read, "nothing lost")
{
    char name[] = "/tmp/sheaf-leaks-XXXXXX";
    int file = mkstemp(name), zero = open("/dev/zero", O_RDWR);
    must(file >= 0 && zero >= 0 && unlink(name) == 0 && ftruncate(file, 8192) == 0);
    char *shared = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *copied = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    void **device = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    void **huge = mmap(NULL, 1ul << 37, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(shared != MAP_FAILED && copied != MAP_FAILED && device != MAP_FAILED);
    shared[0] = copied[0] = copied[4096] = 1;
    *(void **)(void *)(shared + 512) = block(1024);
    *(void **)(void *)(copied + 512) = block(1024);
    device[5] = block(1024);
    if (huge != MAP_FAILED) /* a limit may forbid it */
        huge[1ul << 33] = block(1024);
    must(mprotect(copied, 4096, PROT_READ) == 0 && ftruncate(file, 4096) == 0);
}

/* Part of a block that cannot be read. */
AWAY_CASE(a_block_with_a_closed_page, "nothing lost")
{
    char *p = aligned_alloc(4096, 4 * 4096);
    must(p);
    memset(p, 0, 4 * 4096);
    *(void **)(void *)(p + 3 * 4096) = block(1024);
    must(mprotect(p + 4096, 4096, PROT_NONE) == 0);
    kept = p;
}

/* ---- large blocks, other functions ---- */

AWAY_CASE(large_blocks, "lost 17.2 MiB in 3 blocks, 64 bytes in 1 block through them")
{
    sink = block(3 << 16);
    sink = block(16 << 20);
    void **holder = block(1 << 20);
    holder[100000] = block(64);
    sink = holder;
    free(block(300000));
}

AWAY_CASE(large_blocks_that_are_referenced, "nothing lost")
{
    char **holder = block(1 << 20);
    holder[130000] = (char *)block(1 << 18) + 200000; /* inside */
    kept = (char *)holder + 700000;
}

AWAY_CASE(other_functions, "lost 1 MiB in 6 blocks")
{
    void *p;
    sink = calloc(4, 256);
    sink = realloc(block(64), 1024);
    sink = aligned_alloc(1024, 1024);
    must(posix_memalign(&p, 64, 1024) == 0);
    sink = memalign(256, 1024);
    sink = realloc(block(1 << 17), 1 << 20); /* moves or grows */
    sink = p = NULL;
}

AWAY_CASE(blocks_outside_the_region, "lost 1 MiB in 1 block")
{
    must(mallopt(M_MMAP_THRESHOLD, 1 << 20));
    sink = block(1 << 20);
    void **holder = block(1 << 20);
    holder[1000] = block(1 << 20);
    holder[131000] = block(1024);
    kept = (char *)holder + 500000;
    free(block(1 << 20));
}

/* ---- objects that the allocator keeps ---- */

enum { MANY = 20000 };
static void *many[MANY];
static int first_cpu, second_cpu;

static void run_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set); /* where it is refused, the case still means something */
}

static void *free_many(void *unused)
{
    run_on(second_cpu);
    for (int i = 0; i < MANY; i++) {
        free(many[i]);
        many[i] = NULL;
    }
    return unused;
}

/* Full sheaves go to barns, and partial ones stay with the CPUs. */
LEAK_CASE(objects_freed_on_other_cpus, "nothing lost")
{
    cpu_set_t set;
    must(sched_getaffinity(0, sizeof(set), &set) == 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) {
            first_cpu = first_cpu ? first_cpu : i;
            second_cpu = i;
        }
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        run_on(first_cpu);
        for (int i = 0; i < MANY; i++)
            many[i] = block(16u << (i % 8));
        must(pthread_create(&thread, NULL, free_many, NULL) == 0);
        pthread_join(thread, NULL);
    }
}

/* ---- processes ---- */

LEAK_CASE_WITH(a_forked_child_reports_by_itself, "lost 64 bytes in 1 block, 6.2 KiB in 99 blocks through it",
               "lost 10 KiB in 10 blocks;", 0)
{
    pid_t pid = fork();
    if (pid == 0) {
        away(lose_ten);
        exit(0);
    }
    must_succeed(pid);
    away(lose_chain);
}

static void *lender(void *ready)
{
    void *volatile local = block(1024);
    *(_Atomic int *)ready = 1;
    for (;;)
        pause();
    return local;
}

/* What only other threads of the parent refer to is not lost by the child. */
LEAK_CASE(a_child_has_not_lost_what_threads_of_its_parent_have, "nothing lost")
{
    static _Atomic int ready;
    pthread_t thread;
    must(pthread_create(&thread, NULL, lender, (void *)&ready) == 0);
    while (!ready)
        sched_yield();
    pid_t pid = fork();
    if (pid == 0)
        return;
    must_succeed(pid);
    _exit(0);
}

LEAK_CASE(exit_makes_no_report, NULL)
{
    away(lose_ten);
    _exit(0);
}

LEAK_CASE(exec_makes_no_report, NULL)
{
    away(lose_ten);
    unsetenv("SHEAF_LEAKS");
    execl("/bin/true", "true", (char *)NULL);
}

/* Large blocks of different sizes are groups of their own unless their stacks are known. */
AWAY_CASE(the_largest_groups_are_listed, "lost 328.1 MiB in 100 blocks")
{
    for (size_t i = 0; i < 100; i++)
        sink = block((3 + i) << 16);
}
