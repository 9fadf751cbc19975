/* A library whose constructor allocates; with OVERFLOW in the environment it writes past the end of a block. */
#include <stdlib.h>

#ifdef BROKEN
extern void defined_nowhere(void);
void (*broken)(void) = defined_nowhere;
#endif

void opened_constructor(void);

__attribute__((constructor, noinline)) void opened_constructor(void)
{
    char *volatile block = malloc(40);
    if (block && getenv("OVERFLOW"))
        block[40] = 1;
    free(block);
    __asm__ volatile("" ::: "memory"); /* prevents a tail call */
}
