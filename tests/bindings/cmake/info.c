/* Prints whose malloc it has. Only libc allocates. */
#include <malloc.h>
#include <stdio.h>

int main(void)
{
    return malloc_info(0, stdout);
}
