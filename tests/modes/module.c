/* Loaded by debug.c. Its constructor runs under the dynamic linker's lock and waits for one of the allocator's. */
#include <malloc.h>
#include <poll.h>

extern _Atomic int module_stage;

/* The delay lets the other thread begin its report. If it is too short, the test proves less, but passes. */
__attribute__((constructor)) static void load(void)
{
    module_stage = 1;
    poll(NULL, 0, 200);
    malloc_trim(0);
}
