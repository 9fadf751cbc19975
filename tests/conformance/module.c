/* Loaded by libc.c. A block lives from the constructor to the destructor, and there is thread-local storage. */
#include <stdlib.h>
#include <string.h>

int module_work(int n);

static char *kept;
static __thread char *volatile local;
static __thread char large[3000];

__attribute__((constructor)) static void load(void)
{
    kept = malloc(3000);
    memset(kept, 1, 3000);
}

__attribute__((destructor)) static void unload(void)
{
    free(kept);
}

int module_work(int n)
{
    local = malloc(500);
    memset(local, n, 500);
    memcpy(large, local, 500);
    free(local);
    return kept[0] + (unsigned char)large[499] + n - 1;
}
