// A program with a malloc of its own, for which Sheaf steps aside: everything is as under the C library alone. With
// WRAPS its malloc counts and calls the next one, which it finds by dlsym(), as profilers do. Usage: aside-KIND
// [CASE]
#include "../cases.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include <new>
#include <string>

extern "C" {
void free_sized(void *p, size_t size) __attribute__((weak));
void free_aligned_sized(void *p, size_t align, size_t size) __attribute__((weak));
void cfree(void *p) __attribute__((weak));
pid_t _Fork(void) __attribute__((weak));
}

static unsigned long calls, frees; // of this program's functions; changed by several threads

static void count(unsigned long &counter)
{
    __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
}

#ifdef WRAPS

// dlsym() itself may allocate; what it gets meanwhile comes from here.
alignas(16) static char early[4096];
static size_t early_used;
static __thread bool looking __attribute__((tls_model("initial-exec")));

static void *take_early(size_t size)
{
    size_t at = __atomic_fetch_add(&early_used, (size + 15) & -16ul, __ATOMIC_RELAXED);
    return at + size <= sizeof early ? early + at : nullptr;
}

static bool is_early(void *p)
{
    return uintptr_t(p) - uintptr_t(early) < sizeof early;
}

template <class Function> static Function *next(const char *name, Function *&found)
{
    Function *call = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
    if (!call && !looking) {
        looking = true;
        call = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
        looking = false;
        __atomic_store_n(&found, call, __ATOMIC_RELEASE);
    }
    return call;
}

extern "C" void *malloc(size_t size)
{
    static void *(*found)(size_t);
    auto call = next("malloc", found);
    count(calls);
    return call ? call(size) : take_early(size);
}

extern "C" void free(void *p)
{
    static void (*found)(void *);
    if (!p || is_early(p))
        return;
    auto call = next("free", found);
    count(frees);
    if (call)
        call(p);
}

extern "C" void *calloc(size_t n, size_t size)
{
    static void *(*found)(size_t, size_t);
    auto call = next("calloc", found);
    count(calls);
    return call ? call(n, size) : take_early(n * size);
}

extern "C" void *realloc(void *p, size_t size)
{
    static void *(*found)(void *, size_t);
    auto call = next("realloc", found);
    count(calls);
    return call ? call(p, size) : take_early(size);
}

static const bool own_heap = false;

#else

alignas(4096) static char heap[64ul << 20];
static size_t used;

static void *take(size_t size, size_t align)
{
    size_t room = size + align + 16, at = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
    if (size > sizeof heap || at + room > sizeof heap)
        return nullptr;
    uintptr_t p = (uintptr_t(heap) + at + 16 + align - 1) & -align;
    reinterpret_cast<size_t *>(p)[-1] = size;
    count(calls);
    return reinterpret_cast<void *>(p);
}

extern "C" void *malloc(size_t size)
{
    return take(size, 16);
}

extern "C" void free(void *p)
{
    if (!p)
        return;
    if (uintptr_t(p) - uintptr_t(heap) >= sizeof heap) // as a real malloc would
        abort();
    count(frees);
}

extern "C" void *calloc(size_t n, size_t size)
{
    return take(n * size, 16);
}

extern "C" void *realloc(void *p, size_t size)
{
    void *to = take(size, 16);
    if (to && p) {
        size_t old = static_cast<size_t *>(p)[-1];
        memcpy(to, p, old < size ? old : size);
        free(p);
    }
    return to;
}

extern "C" void *aligned_alloc(size_t align, size_t size)
{
    return take(size, align);
}

static const bool own_heap = true;

#endif

// The program's functions ran, at least once for each block.
template <class Work> static void through_program(Work work)
{
    unsigned long calls_before = calls, frees_before = frees;
    work();
    must(calls > calls_before && frees > frees_before);
}

CASE(array)
{
    through_program([] {
        void *p = reallocarray(nullptr, 10, 10);
        memset(p, 1, 100);
        p = reallocarray(p, 100, 100);
        must(p && static_cast<char *>(p)[99] == 1);
        free(p);
        volatile size_t most = SIZE_MAX;
        must(!reallocarray(nullptr, most, 2) && errno == ENOMEM);
    });
}

CASE(libc)
{
    through_program([] {
        char *line = nullptr, *text = nullptr;
        size_t room = 0;
        FILE *stream = fopen("/proc/self/maps", "r");
        must(stream && getline(&line, &room, stream) > 0);
        must(asprintf(&text, "%s%s", line, line) > 0);
        fclose(stream);
        free(line);
        free(text);
        free(strdup("text"));
    });
}

CASE(operators)
{
    through_program([] {
        std::string text(1000, 'x');
        free(::operator new(40));
        ::operator delete(malloc(40));
        delete[] new (std::nothrow) char[100];
        ::operator delete(::operator new(64), size_t(64));
    });
    const std::align_val_t wide{64};
    ::operator delete(::operator new(64, wide), wide);
    ::operator delete[](::operator new[](64, wide, std::nothrow), size_t(64), wide);
    if (own_heap)
        free(::operator new(64, wide));
}

// Names that the C library of this machine may not have: Sheaf's lead to the program's free().
CASE(sized)
{
    if (!free_sized || !free_aligned_sized || !cfree)
        _exit(CASE_SKIPPED);
    unsigned long before = frees;
    free_sized(malloc(40), 40);
    free_aligned_sized(aligned_alloc(64, 64), 64, 64);
    cfree(malloc(40));
    must(frees == before + 3);
}

CASE(introspection)
{
    char *text = nullptr;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    must(malloc_info(0, stream) == 0);
    fclose(stream);
    must(strstr(text, "<malloc version=") && !strstr(text, "sheaf"));
    malloc_trim(0);
    must(mallopt(M_MXFAST, 64) == 1);
    void *p = valloc(100); // the C library's, as it has no other
    must(p && malloc_usable_size(p) >= 100);
    must(mallinfo2().arena > 0);
}

static void *in_handler;

static void handle(int)
{
    in_handler = memalign(64, 100);
    must(malloc_usable_size(in_handler) >= 100);
}

// The first calls that Sheaf leads on.
CASE(handler)
{
    must(signal(SIGUSR1, handle) != SIG_ERR);
    must(raise(SIGUSR1) == 0 && in_handler);
}

static void *work(void *)
{
    for (int i = 0; i < 2000; i++) {
        void *p = reallocarray(malloc(24), 10, 10);
        must(p != nullptr);
        ::operator delete(::operator new(40));
        free(p);
        void *q = nullptr;
        must(own_heap || posix_memalign(&q, 64, 64) == 0);
        free(q);
    }
    return nullptr;
}

CASE(threads)
{
    through_program([] {
        pthread_t all[4];
        for (pthread_t &thread : all)
            must(pthread_create(&thread, nullptr, work, nullptr) == 0);
        for (pthread_t thread : all)
            must(pthread_join(thread, nullptr) == 0);
    });
}

CASE(fork_among_threads)
{
    pthread_t thread;
    must(pthread_create(&thread, nullptr, work, nullptr) == 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = i % 2 && _Fork ? _Fork() : fork();
        if (child == 0) {
            free(reallocarray(nullptr, 10, 10));
            void *p = own_heap ? nullptr : memalign(64, 100);
            free(p);
            _exit(0);
        }
        must_succeed(child);
    }
    must(pthread_join(thread, nullptr) == 0);
}

CASE(vfork_child)
{
    for (int i = 0; i < 10; i++) {
        pid_t child = vfork();
        if (child == 0)
            _exit(0);
        must_succeed(child);
    }
}

CASE(modules)
{
    for (int flags : {RTLD_NOW, RTLD_NOW | RTLD_DEEPBIND}) {
        void *module = dlopen(getenv("MODULE"), flags);
        must(module);
        auto run = reinterpret_cast<int (*)(int)>(dlsym(module, "module_work"));
        must(run);
        run(1);
        must(dlclose(module) == 0);
    }
}
