/* Faults in the use of libsheaf's caches, with debugging by create flags and without. See faults.h. */
#define DEBUG_SETTINGS "CACHED_DEBUG=1"
#include "faults.h"

#include <sheaf/kmem_cache.h>

void *give(struct kmem_cache *cache);
void take(struct kmem_cache *cache, void *p);

__attribute__((noinline)) void *give(struct kmem_cache *cache)
{
    void *p = kmem_cache_alloc(cache, GFP_KERNEL);
    __asm__ volatile("" : "+r"(p)); /* prevents a tail call, so that backtraces show this function */
    return p;
}

__attribute__((noinline)) void take(struct kmem_cache *cache, void *p)
{
    kmem_cache_free(cache, p);
    __asm__ volatile("" ::: "memory");
}

static char *byte(void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

static struct kmem_cache *make(const char *name, unsigned size, void (*ctor)(void *))
{
    struct kmem_cache_args args = {.ctor = ctor};
    slab_flags_t flags = SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER;
    struct kmem_cache *cache = kmem_cache_create(name, size, &args, getenv("CACHED_DEBUG") ? flags : 0);
    if (!cache)
        exit(5);
    return cache;
}

FAULT(double_free, "free twice", "double free of", "double free of", "things", 1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    void *p = give(cache);
    take(cache, p);
    take(cache, tell(p));
}

FAULT(overflow, "write 1 byte past the end", OVER, NULL, "things", 1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    char *p = tell(give(cache));
    byte(p)[40] = 1;
    take(cache, p);
}

FAULT(underflow, "write 1 byte before the start", "underflow: bytes were written before the start of", NULL, "things",
      1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    char *p = tell(give(cache));
    byte(p)[-1] = 1;
    take(cache, p);
}

FAULT(write_after_free, "write after free", "write after free into", NULL, "things", 1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    char *p = tell(give(cache));
    take(cache, p);
    byte(p)[3] = 1;
    for (int i = 0; i < 2000; i++)
        kmem_cache_alloc(cache, GFP_KERNEL);
}

FAULT(wrong_cache, "free to another cache", "free to the wrong cache of", "free to the wrong cache of", "things", 0)
{
    struct kmem_cache *a = make("things", 40, NULL), *b = make("others", 40, NULL);
    take(b, tell(give(a)));
}

FAULT(foreign, "free of a static object", FOREIGN, FOREIGN, "things", 0)
{
    static char object[40];
    take(make("things", 40, NULL), tell(object));
}

FAULT(interior, "free of p + 8", "free of interior pointer", NULL, "things", 1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    take(cache, tell((char *)give(cache) + 8));
}

FAULT(overflow_prefilled, "write past the end of an object of a prefilled sheaf", OVER, NULL, "things", 0)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10);
    char *p = tell(kmem_cache_alloc_from_sheaf(cache, 0, sheaf));
    byte(p)[40] = 1;
    take(cache, p);
}

FAULT(sheaf_twice, "return a prefilled sheaf twice",
      "not a prefilled sheaf of this cache:", "not a prefilled sheaf of this cache:", "things", 0)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10);
    kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
    kmem_cache_return_sheaf(cache, GFP_KERNEL, tell(sheaf));
}

static void construct(void *object)
{
    memset(object, 7, 40);
}

FAULT(overflow_constructed, "write past the end of a constructed object", OVER, NULL, "made", 1)
{
    struct kmem_cache *cache = make("made", 40, construct);
    char *p = tell(give(cache));
    if (p[0] != 7 || p[39] != 7)
        exit(6);
    byte(p)[40] = 1;
    take(cache, p);
}

static void at_free(void *object)
{
    if (*byte(object) != 7)
        exit(6);
}

/*
 * Legal use: objects keep their constructed state, zeroed objects are zero; bulk calls, prefilled sheaves and the
 * reserve work.
 */
FAULT(legal, NULL, NOTHING, NOTHING, "", 0)
{
    void *many[100];
    struct kmem_cache *made = make("made", 40, construct), *cache = make("things", 40, NULL);
    for (int round = 0; round < 3; round++) {
        if (!kmem_cache_alloc_bulk(made, GFP_KERNEL, 100, many))
            exit(7);
        for (int i = 0; i < 100; i++)
            at_free(many[i]);
        kmem_cache_free_bulk(made, 100, many);
    }
    char *zero = kmem_cache_zalloc(cache, GFP_KERNEL);
    for (int i = 0; i < 40; i++)
        if (zero[i])
            exit(8);
    kmem_cache_free(cache, zero);
    if (kmem_cache_reserve(cache, 5))
        exit(9);
    struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 1000);
    for (int i = 0; i < 100; i++)
        many[i] = memset(kmem_cache_alloc_from_sheaf(cache, 0, sheaf), 1, 40);
    kmem_cache_free_bulk(NULL, 100, many);
    kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
    int wanted = getenv("CACHED_DEBUG") ? 0 : -22;
    if (kmem_cache_validate(cache) != wanted || kmem_cache_validate(made) != wanted)
        exit(10);
    if (kmem_cache_destroy(cache) || kmem_cache_destroy(made))
        exit(11);
}

/* kmem_cache_validate() reports each of the two faults once, and the process continues. */
FAULT(validated, "write past the end and after free, found by kmem_cache_validate", OVER, NULL, "things", 1)
{
    struct kmem_cache *cache = make("things", 40, NULL);
    char *a = tell(give(cache)), *b = give(cache);
    byte(a)[40] = 1;
    take(cache, b);
    byte(b)[0] = 1;
    if (getenv("CACHED_DEBUG") && kmem_cache_validate(cache) != 2)
        exit(12);
    abort();
}
