/*
 * Limits what a small program is charged for where memory may not be overcommitted. CHARGE_OBJECT names
 * Sheaf's object.
 *
 * With vm.overcommit_memory=2 a process is charged for each private mapping that is writable. RLIMIT_DATA counts the
 * same memory for one process, so the cases run under such a limit, with the object preloaded, and add up the sizes
 * of the writable mappings in /proc/self/smaps. The guest of tests/guest shows what the system really charges.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../pin.h"
#include "../proc.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#define KIB   (1ul << 10)
#define MIB   (1ul << 20)
#define LIMIT (256 * MIB)

static const char *object;

/* The writable mappings, in KiB, and the number of Sheaf's mappings of any kind. */
struct charge {
    unsigned long variables; /* of the object */
    unsigned long tables;    /* below the region */
    unsigned long region;
    unsigned mappings; /* of tables and region */
};

/*
 * The region starts at the last multiple of 2 MiB below the first block. The tables lie below it and the rest of the
 * region above, both far from other mappings. The variables without initial values follow the object's last segment.
 */
static struct charge charged(const void *block)
{
    struct charge charge = {0};
    const uintptr_t region = (uintptr_t)block & ~(2 * MIB - 1), reach = 1ul << 32;
    uintptr_t object_end = 0;
    static char text[1 << 20];
    proc_read("/proc/self/maps", text, sizeof(text));
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long from, to;
        char writable, name[256] = "";
        must(sscanf(line, "%lx-%lx %*c%c%*s %*s %*s %*s%*[ ]%255[^\n]", &from, &to, &writable, name) >= 3);
        unsigned long size = writable == 'w' ? (to - from) / KIB : 0;
        if (!strcmp(name, object) || (!*name && from == object_end)) {
            charge.variables += size;
            object_end = to;
        } else if (!*name && from + reach > region && from < region + reach) {
            charge.mappings++;
            uintptr_t middle = to < region ? to : from > region ? from : region;
            charge.tables += writable == 'w' ? (middle - from) / KIB : 0;
            charge.region += writable == 'w' ? (to - middle) / KIB : 0;
        }
    }
    return charge;
}

static void print(const char *when, struct charge charge)
{
    printf("# %s: variables %lu KiB, tables %lu KiB, region %lu KiB, %u mappings\n", when, charge.variables,
           charge.tables, charge.region, charge.mappings);
    fflush(stdout);
}

/* A small program: a hundred blocks of all sizes up to 1000 bytes. */
static void *small(void)
{
    void *blocks[100], *first = malloc(1);
    for (size_t i = 0; i < 100; i++)
        must(blocks[i] = malloc(10 * i + 1));
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    return first;
}

/* Runs the case in a new execution of the program with the object preloaded, and with the limit if `limited`. */
static void execute_preloaded(const char *name, bool limited)
{
    struct rlimit limit = {LIMIT, LIMIT};
    pin(0); /* without mm_cid, each CPU that it comes to costs a slot */
    must(!limited || !setrlimit(RLIMIT_DATA, &limit));
    must(!setenv("LD_PRELOAD", object, 1));
    execute_part(name);
}

#define CHARGE_CASE(name, limited)                                                                                   \
    static void name##_preloaded(void)                                                                               \
    {                                                                                                                \
        execute_preloaded(#name, limited);                                                                           \
    }                                                                                                                \
    ADD_CASE(all_cases, name, name##_preloaded, NULL)                                                                \
    PART(name)

BEFORE_CASES(argv)
{
    object = getenv("CHARGE_OBJECT");
    must(object);
}

/*
 * Without a limit, memory is mapped in few large pieces, because each mapping makes fork slower. Writable are then
 * all parts that a process of a few CPUs may ever need.
 */
CHARGE_CASE(few_mappings, false)
{
    struct charge charge = charged(small());
    print("nothing staged", charge);
    must(charge.variables <= 200);
    must(charge.mappings <= 5);
}

/* What each part takes, with some room for growth. */
CHARGE_CASE(little_is_charged_at_the_start, true)
{
    struct charge charge = charged(small());
    print("staged", charge);
    must(charge.variables <= 200);
    if (sysconf(_SC_PAGESIZE) > 4096)
        _exit(CASE_SKIPPED); /* each table and each class takes a page at least */
    must(charge.tables <= 170);
    must(charge.region <= 300);
}

/* Free memory below blocks in use is no longer charged once it is returned. */
CHARGE_CASE(freed_memory_is_not_charged, true)
{
    enum { COUNT = 42000 };
    static void *blocks[COUNT];
    void *first = small();
    for (size_t round = 0; round < 3; round++) {
        size_t size = round == 1 ? 100 * KIB : 1000, n = 40 * MIB / size;
        for (size_t i = 0; i < n; i++)
            must(blocks[i] = memset(malloc(size), 1, size));
        struct charge full = charged(first);
        print("full", full);
        must(full.region >= 40 * KIB);
        for (size_t i = 0; i + 1 < n; i++) /* the last block stays, above all others */
            free(blocks[i]);
        malloc_trim(0);
        struct charge left = charged(first);
        print("freed", left);
        must(left.region <= 1024);
        free(blocks[n - 1]);
    }
}

/* Uses up the limit several times. What the system refuses is no loss: the same memory can be used again. */
CHARGE_CASE(all_of_the_limit_can_be_used_again, true)
{
    static const size_t sizes[] = {100, 1000, 5000, 30000, 130000, 3 * MIB};
    size_t before = 0;
    for (size_t round = 0; round < 2 * sizeof(sizes) / sizeof(*sizes); round++) {
        size_t size = sizes[round / 2], bytes = 0;
        void **list = NULL;
        for (void **block; (block = malloc(size)); list = block, bytes += size)
            *(void **)memset(block, 5, size) = list;
        must(errno == ENOMEM);
        printf("# blocks of %zu: %zu MiB of %lu\n", size, bytes / MIB, LIMIT / MIB);
        fflush(stdout);
        must(bytes >= LIMIT / 100 * 75 && (round % 2 == 0 || bytes >= before - before / 20));
        before = bytes;
        while (list) {
            void **next = *list;
            free(list);
            list = next;
        }
    }
}
