/* The cost of a heap for a process that forks. */
#include "../test.h"

#include <sys/wait.h>
#include <unistd.h>

/*
 * The new program gets an empty environment, so that no allocator is preloaded into it: the test measures the copy of
 * this process and its heap, not the start of a program on the allocator.
 */
static uint64_t run_fork_exec(const struct test *test, uint64_t ops)
{
    (void)test;
    for (uint64_t i = 0; i < ops; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            char *argv[] = {"true", NULL}, *envp[] = {NULL};
            execve("/bin/true", argv, envp);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail("fork and exec of /bin/true failed; check the file and the limit of processes (ulimit -u)");
    }
    return ops;
}

/* A list of blocks of 16 to 4096 bytes that together take `size` bytes. */
static void *heap;

static void prepare_heap(const struct test *test)
{
    uint64_t seed = 1;
    for (size_t bytes = 0; bytes < test->size;) {
        size_t size = random_small_size(&seed);
        void **block = take(size);
        *block = heap;
        heap = block;
        bytes += size;
    }
}

static void finish_heap(const struct test *test)
{
    (void)test;
    while (heap != NULL) {
        void *next = *(void **)heap;
        give(heap);
        heap = next;
    }
}

static const struct test process_tests[] = {
    {.name = "fork-exec",
     .what = "fork and exec of /bin/true from a process with a heap of 64 MiB; an op is one child",
     .ops = 50,
     .repetitions = 7,
     .size = 64 << 20,
     .prepare = prepare_heap,
     .run = run_fork_exec,
     .finish = finish_heap},
    {0},
};
ADD_TESTS(process_tests)
