/* For the case of debug.c that loads it: while the dynamic linker holds its lock, it waits for the allocator's. */
#include <malloc.h>
#include <poll.h>

extern _Atomic int module_stage;

/* The wait gives the other thread time to begin its report. Without it, the test finds less, and passes. */
__attribute__((constructor)) static void load(void)
{
    module_stage = 1;
    poll(NULL, 0, 200);
    malloc_trim(0);
}
