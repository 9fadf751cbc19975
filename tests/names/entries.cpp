// Calls all entry points of a malloc library, those of its own too, and frees what they return by free(), realloc()
// and delete. Prints what it saw, which must not depend on Sheaf. Compiled with -DJEMALLOC, -DTCMALLOC or -DMIMALLOC.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <new>

#if defined JEMALLOC
#include <jemalloc/jemalloc.h>
static void *own_take(size_t n)
{
    return mallocx(n, 0);
}
static void *own_aligned(size_t n)
{
    return mallocx(n, MALLOCX_ALIGN(256));
}
static void own_free(void *p)
{
    dallocx(p, 0);
}
static size_t own_size(void *p)
{
    return sallocx(p, 0);
}
#elif defined TCMALLOC
#include <gperftools/tcmalloc.h>
static void *own_take(size_t n)
{
    return tc_malloc(n);
}
static void *own_aligned(size_t n)
{
    return tc_memalign(256, n);
}
static void own_free(void *p)
{
    tc_free(p);
}
static size_t own_size(void *p)
{
    return tc_malloc_size(p);
}
#else
#include <mimalloc.h>
static void *own_take(size_t n)
{
    return mi_malloc(n);
}
static void *own_aligned(size_t n)
{
    return mi_malloc_aligned(n, 256);
}
static void own_free(void *p)
{
    mi_free(p);
}
static size_t own_size(void *p)
{
    return mi_usable_size(p);
}
#endif

static bool failed;

#define must(x)                                                                                                      \
    do {                                                                                                             \
        if (!(x)) {                                                                                                  \
            dprintf(1, "line %d: %s\n", __LINE__, #x);                                                               \
            failed = true;                                                                                           \
        }                                                                                                            \
    } while (0)

static const size_t sizes[] = {1, 24, 64, 1000, 5000, 40000, 300000, 5000000};

static bool filled(const void *p, size_t n)
{
    const auto *bytes = static_cast<const unsigned char *>(p);
    return n == 0 || (bytes[0] == 5 && bytes[n - 1] == 5 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static void own_functions(size_t n)
{
    void *p = memset(own_take(n), 5, n);
    must(own_size(p) >= n);
    own_free(p);
    free(memset(own_take(n), 5, n));
    free(memset(own_aligned(n), 5, n));
    p = memset(own_take(n), 5, n);
    must(malloc_usable_size(p) >= n);
    p = realloc(p, 2 * n);
    must(p && filled(p, n));
    p = reallocarray(p, n, 3);
    must(p && filled(p, n));
    free(p);
    p = realloc(memset(own_aligned(n), 5, n), 10 * n);
    must(p && filled(p, n));
    free(p);
    ::operator delete(own_take(n));
    ::operator delete(own_take(n), n);
    ::operator delete[](own_take(n));
    ::operator delete[](own_take(n), std::nothrow);
    ::operator delete(own_aligned(n), std::align_val_t(256));
    ::operator delete[](own_aligned(n), n, std::align_val_t(256));
}

static void standard_functions(size_t n)
{
    const std::align_val_t wide{128};
    void *p = nullptr;
    free(memset(malloc(n), 5, n));
    p = calloc(n, 2);
    must(p && !*static_cast<char *>(p));
    p = realloc(p, n + 100);
    must(p && malloc_usable_size(p) >= n + 100);
    p = reallocarray(memset(p, 5, n), n, 4);
    must(p && filled(p, n));
    free(p);
    p = aligned_alloc(64, (n + 63) & -64ul);
    must(p && uintptr_t(p) % 64 == 0);
    free(p);
    p = memalign(512, n);
    must(p && uintptr_t(p) % 512 == 0);
    free(p);
    must(posix_memalign(&p, 4096, n) == 0 && uintptr_t(p) % 4096 == 0);
    free(p);
    free(valloc(n));
#ifndef JEMALLOC // which leaves pvalloc() to libc
    free(pvalloc(n));
#endif
    delete[] new char[n];
    ::operator delete(::operator new(n), n);
    ::operator delete(::operator new(n, std::nothrow), std::nothrow);
    ::operator delete(::operator new(n, wide), wide);
    ::operator delete[](::operator new[](n, wide, std::nothrow), n, wide);
    char *text = static_cast<char *>(memset(malloc(n + 1), 'x', n));
    text[n] = 0;
    char *copy = strdup(text);
    must(strcmp(text, copy) == 0);
    free(text);
    free(copy);
}

static void lines()
{
    char *line = nullptr;
    size_t room = 0, longest = 0;
    FILE *stream = fopen("/proc/self/maps", "r");
    must(stream);
    for (ssize_t n; (n = getline(&line, &room, stream)) > 0;)
        longest = longest > size_t(n) ? longest : size_t(n);
    must(longest > 20 && room > longest);
    free(line);
    fclose(stream);
}

static void *work(void *)
{
    for (int i = 0; i < 5; i++)
        for (size_t n : sizes) {
            standard_functions(n);
            own_functions(n);
        }
    return nullptr;
}

int main()
{
    for (size_t n : sizes) {
        standard_functions(n);
        own_functions(n);
    }
    lines();
    work(nullptr);
    pthread_t all[3];
    for (pthread_t &thread : all)
        must(pthread_create(&thread, nullptr, work, nullptr) == 0);
    for (pthread_t thread : all)
        pthread_join(thread, nullptr);
    puts("all entry points");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(nullptr);
        puts("all of them in a child");
        fflush(stdout);
        _exit(failed);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child && status == 0);
    return failed;
}
