/* A program in C for memcheck: `plain` has no error, `lost` loses 40 bytes, `beyond` writes one byte past a block. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile sink;

static void plain(void)
{
    char *p = malloc(100);
    memset(p, 1, malloc_usable_size(p));
    p = realloc(p, 100000);
    free(p);
    free(calloc(7, 9));
    free(memalign(256, 10));
    free(aligned_alloc(64, 128));
    free(valloc(10));
    void *q = NULL;
    if (posix_memalign(&q, 4096, 1) == 0)
        free(q);
    for (size_t size = 1; size < 1 << 20; size = 3 * size / 2 + 1)
        free(memset(malloc(size), 7, size));
    free(strdup("a text"));
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    fprintf(file, "%d lines\n", 3);
    fclose(file);
    free(text);
}

int main(int argc, char **argv)
{
    plain();
    const char *fault = argc > 1 ? argv[1] : "plain";
    if (strcmp(fault, "lost") == 0) {
        sink = malloc(40);
        sink = NULL;
    } else if (strcmp(fault, "beyond") == 0) {
        volatile char *p = malloc(40);
        p[40] = 1;
        free((void *)p);
    }
    puts("done");
    return 0;
}
