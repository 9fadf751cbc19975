/* Programs that run with a record, for tests of the process's side: executed again, they work and count their
 * threads. */
#ifndef SHEAF_TESTS_RECORDED_H
#define SHEAF_TESTS_RECORDED_H

#include "../client.h"
#include "../cases.h"

#include <signal.h>
#include <sys/prctl.h>

static char records[64];

/* Executes the program again with a record in `records`, and options as NAME=VALUE. */
static pid_t start(const char *part, const char *option)
{
    pid_t self = getpid();
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == self); /* if the case fails */
        char *equals = strchr(option, '=');
        char name[32] = "";
        if (equals) {
            snprintf(name, sizeof(name), "%.*s", (int)(equals - option), option);
            must(setenv(name, equals + 1, 1) == 0);
        }
        must(setenv("SHEAF_RECORD", records, 1) == 0);
        execute_part(part);
    }
    return pid;
}

static void work_once(unsigned long i)
{
    void *volatile small = malloc(i * 7919 % 3000), *volatile middle = malloc(40000 + i % 8 * 10000);
    must(small && middle);
    memset(small, 1, i * 7919 % 3000);
    free(small);
    free(middle);
}

__attribute__((unused)) static void *work_a_while(void *unused)
{
    for (int i = 0; i < 10000; i++)
        work_once((unsigned long)i);
    return unused;
}

__attribute__((unused)) static nlink_t threads(pid_t pid)
{
    char tasks[64];
    struct stat status = {0};
    snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
    must(stat(tasks, &status) == 0);
    return status.st_nlink - 2;
}

#endif
