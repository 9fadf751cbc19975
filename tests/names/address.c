/*
 * A program that was linked without -pie and takes addresses of malloc's functions. They are those of entries in its
 * PLT, which are not definitions: malloc is still Sheaf's. Usage: address [CASE]
 */
#include "../cases.h"

#include <malloc.h>

static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;
static void *(*volatile align)(size_t, size_t) = aligned_alloc;

CASE(on_sheaf)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    must(malloc_info(0, stream) == 0);
    fclose(stream);
    must(strstr(text, "sheaf"));
    give(text);
}

CASE(all_calls)
{
    for (int i = 0; i < 1000; i++) {
        void *p = resize(take(40), 400), *q = align(64, 128);
        must(p && q);
        p = reallocarray(p, 100, 100);
        must(malloc_usable_size(p) >= 10000 && malloc_usable_size(q) >= 128);
        give(p);
        give(q);
    }
}
