/*
 * A thread registers fork handlers, for which libc allocates, while another thread is about to prepare a fork. From
 * glibc 2.36 on libc allocates with the lock of its list of handlers held, which fork() takes after the prepare
 * handlers. So the allocator must not let fork() have its locks meanwhile.
 *
 *   writer      fflush(NULL) holds the lock of the list of streams, and waits for a stream that main() has locked
 *   forker      fork() is in the allocator's prepare handler and waits for the lock of the list of streams
 *   registrar   pthread_atfork() calls realloc(), which is defined here. It lets main() unlock the stream, waits
 * until the forker waits for something else, and allocates
 *
 * A program that defined malloc() would make Sheaf step aside.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>

extern void *__libc_realloc(void *p, size_t size); /* the allocator's */

static _Atomic pid_t writer_id, forker_id;
static _Atomic bool growing, registered;
static _Atomic unsigned long first_futex;
static __thread bool registering;

/* Returns the address of the futex that the thread waits for, or 0. */
static unsigned long futex_of(pid_t thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
        _exit(CASE_SKIPPED);
    close(fd);
    char *end = text;
    return strtol(text, &end, 10) == SYS_futex ? strtoul(end, NULL, 16) : 0;
}

static unsigned long await_futex(_Atomic pid_t *thread, unsigned long other_than)
{
    for (;;) {
        unsigned long futex = *thread ? futex_of(*thread) : 0;
        if (futex && futex != other_than)
            return futex;
        sched_yield();
    }
}

void *realloc(void *p, size_t size)
{
    if (registering) {
        registering = false;
        growing = true;
        await_futex(&forker_id, first_futex);
        for (size_t large = 1000; large < 1ul << 22; large *= 2) { /* takes many locks */
            void *block = malloc(large);
            must(block);
            free(block);
        }
    }
    return __libc_realloc(p, size);
}

static void *flush(void *unused)
{
    writer_id = gettid();
    fflush(NULL);
    return unused;
}

static void *fork_once(void *unused)
{
    forker_id = gettid();
    pid_t pid = fork();
    if (pid == 0) {
        void *volatile p = malloc(100);
        _exit(p ? 0 : 1);
    }
    must_succeed(pid);
    return unused;
}

static void nothing(void) {}

static void *register_many(void *unused)
{
    registering = true;
    for (int i = 0; i < 100; i++) /* libc's list has room for 48, then for 72 */
        must(pthread_atfork(nothing, nothing, nothing) == 0);
    registered = true;
    return unused;
}

CASE(libc_allocates_for_handlers_while_a_fork_prepares)
{
    if (!getenv("LD_PRELOAD") || strverscmp(gnu_get_libc_version(), "2.36") < 0)
        _exit(CASE_SKIPPED);
    pthread_t writer, forker, registrar;
    FILE *stream = fopen("/dev/null", "w");
    must(stream && fputc('x', stream) == 'x');
    flockfile(stream);
    must(pthread_create(&writer, NULL, flush, NULL) == 0);
    await_futex(&writer_id, 0);
    must(pthread_create(&forker, NULL, fork_once, NULL) == 0);
    first_futex = await_futex(&forker_id, 0);
    must(pthread_create(&registrar, NULL, register_many, NULL) == 0);
    while (!growing)
        sched_yield();
    funlockfile(stream);
    must(pthread_join(writer, NULL) == 0);
    must(pthread_join(registrar, NULL) == 0);
    must(pthread_join(forker, NULL) == 0);
    must(registered);
}
