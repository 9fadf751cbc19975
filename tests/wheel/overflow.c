/* Writes past the end of an object, for a report with call stacks. */
#include <stdlib.h>
#include <string.h>

static char *volatile object;
static volatile size_t length = 62;

static __attribute__((noinline)) void allocate(void)
{
    object = malloc(60);
    memset(object, 0, length);
}

static __attribute__((noinline)) void release(void)
{
    free(object);
    object = NULL;
}

int main(void)
{
    allocate();
    release();
    return 0;
}
