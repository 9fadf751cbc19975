/* Included before each file under exploration: the explorer sees what these functions read and write. */
#include <string.h>

void *explore_memcpy(void *to, const void *from, size_t size);
void *explore_memmove(void *to, const void *from, size_t size);
void *explore_memset(void *to, int value, size_t size);
#undef memcpy
#undef memmove
#undef memset
#define memcpy  explore_memcpy
#define memmove explore_memmove
#define memset  explore_memset
