/* Runs a program that is denied some system calls: deny RULE... -- PROGRAM ARGS...; filter.h describes rules. */
#include "filter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--"); i++)
        filter_add(argv[i]);
    if (i + 1 >= argc) {
        fprintf(stderr, "deny: the program is missing; usage: deny CALL[>BYTES][=ERRNO]... -- PROGRAM ARGS...\n");
        return 2;
    }
    if (filter_install()) {
        perror("deny: no filter can be installed here");
        return 77;
    }
    execvp(argv[i + 1], argv + i + 1);
    perror(argv[i + 1]);
    return 127;
}
