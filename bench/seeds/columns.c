#define _GNU_SOURCE
#include "columns.h"
#include "process/decay.h"

#include <stdio.h>
#include <string.h>

struct setup setup = {.batch = 1, .pairs = 1, .size = 64, .rounds = 5};

static const char usage_text[] =
    "Usage: bench-columns batch|cross|fresh [OPTIONS]\n"
    "\n"
    "  batch   allocate --batch objects, free them; an op is one object        --batch N --shuffled --size N\n"
    "  cross   pairs of threads, one allocates what the other frees            --pairs N --size N --plain\n"
    "  fresh   bulks of --batch objects from new slabs, beside a loop that\n"
    "          writes the same addresses (--ops MiB in all)          --batch N --size N --random --untouched\n"
    "\n"
    "  --capacity N   objects in a sheaf, 0 for none (default: as the cache chooses)\n"
    "  --plain        of cross: hand over the same objects again and again, without allocating\n"
    "  --ops N        objects in a round, --rounds N of which the fastest counts (default 5)\n";

struct kmem_cache *cache_under_test(unsigned size)
{
    struct kmem_cache *cache = kmem_cache_create("seeds", size, NULL, 0);
    if (!cache)
        fail("no cache; is there memory?");
    return cache;
}

double fast_share(const struct kmem_cache *cache)
{
    cache_fold_all();
    uint64_t fast =
        counter_sum(cache->number, COUNT_alloc_fastpath) + counter_sum(cache->number, COUNT_free_fastpath);
    uint64_t slow =
        counter_sum(cache->number, COUNT_alloc_slowpath) + counter_sum(cache->number, COUNT_free_slowpath);
    return (double)fast / (double)(fast + slow + !(fast + slow));
}

static const struct {
    const char *name;
    void (*run)(void);
    uint64_t ops;
} tests[] = {{"batch", run_batch, 4000000}, {"cross", run_cross, 2000000}, {"fresh", run_fresh, 256}};

static bool flag(const char *word)
{
    bool *to = !strcmp(word, "--shuffled")    ? &setup.shuffled
               : !strcmp(word, "--random")    ? &setup.random
               : !strcmp(word, "--untouched") ? &setup.untouched
               : !strcmp(word, "--plain")     ? &setup.plain
                                              : NULL;
    if (to)
        *to = true;
    return to != NULL;
}

static void valued(const char *word, const char *value)
{
    if (!strcmp(word, "--capacity")) {
        setup.fixed = true;
        setup.capacity = value && !strcmp(value, "0") ? 0 : (unsigned)number_argument(word, value, 509);
    } else if (!strcmp(word, "--batch")) {
        setup.batch = (unsigned)number_argument(word, value, 1 << 20);
    } else if (!strcmp(word, "--pairs")) {
        setup.pairs = (unsigned)number_argument(word, value, 256);
    } else if (!strcmp(word, "--size")) {
        setup.size = (unsigned)number_argument(word, value, OBJECT_MOST);
    } else if (!strcmp(word, "--rounds")) {
        setup.rounds = (unsigned)number_argument(word, value, 1000);
    } else if (!strcmp(word, "--ops")) {
        setup.ops = number_argument(word, value, UINT64_C(1) << 40);
    } else {
        fail("'%s' is not understood; see --help", word);
    }
}

/* Configure the allocator before its first allocation. Memory is kept, because paths are measured and not decay. */
static void configure(void)
{
    static char capacity[12];
    snprintf(capacity, sizeof(capacity), "%u", setup.capacity);
    if (setup.fixed)
        sheaf_config.capacity = capacity;
    sheaf_config.harden.random = setup.random;
    if (!strcmp(setup.test, "fresh")) {
        sheaf_config.huge = false; /* nor has the memory that is compared */
        sheaf_config.keep = (size_t)1 << 40;
        sheaf_config.chosen.keep = true;
        sheaf_config.decay_ms = 0;
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage_text, stdout);
        return 0;
    }
    setup.test = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i++)
        if (!flag(argv[i])) {
            valued(argv[i], argv[i + 1]);
            i++;
        }
    for (size_t t = 0; t < array_size(tests); t++)
        if (!strcmp(tests[t].name, setup.test)) {
            if (!setup.ops)
                setup.ops = tests[t].ops;
            configure();
            tests[t].run();
            return 0;
        }
    fail("no test '%s'; see --help", setup.test);
}
