// Calls every entry point from a shared library, so that the dynamic linker binds the calls. Each way to allocate is
// combined with each way to use and to free the block. Prints for each combination which functions of the program's
// own ran and whose memory came back. NAMES_A=malloc,free,... says which names the malloc A has, and so on. A call
// that has no defined result under glibc is left out: a block is given to a function only if it is the C library's,
// or if its malloc has that function too.
#include "names.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <new>

namespace
{

struct Heap {
    const char *start;
    size_t size;
    const char *names;
};
Heap heaps[26];

char ran[2000]; // of the call that is being made
bool recording;

// 'A' to 'Z', or '-' for the C library's and Sheaf's
char owner(const void *p)
{
    for (int i = 0; i < 26; i++)
        if (heaps[i].start && uintptr_t(p) - uintptr_t(heaps[i].start) < heaps[i].size)
            return char('A' + i);
    return '-';
}

bool has(char tag, const char *name)
{
    const char *names = heaps[tag - 'A'].names;
    size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ',') && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

bool takes(const char *name, const void *p)
{
    return owner(p) == '-' || has(owner(p), name);
}

bool takes_delete(const void *p)
{
    return takes("free", p) || takes("operators", p);
}

void print(const char *what, const char *with, const void *p, long result)
{
    char line[2400];
    int length = snprintf(line, sizeof line, "%s %s: %c %ld%s\n", what, with, p ? owner(p) : '0', result, ran);
    if (write(1, line, size_t(length)) != length)
        _exit(3);
}

void start()
{
    ran[0] = 0;
    recording = true;
}

// ---- ways to allocate; all blocks have room for 64 bytes, and the aligned ones are aligned to 64 ----

void *by_malloc()
{
    return malloc(64);
}
void *by_calloc()
{
    return calloc(4, 16);
}
void *by_realloc()
{
    return realloc(nullptr, 64);
}
void *by_reallocarray()
{
    return reallocarray(nullptr, 4, 16);
}
void *by_aligned_alloc()
{
    return aligned_alloc(64, 64);
}
void *by_memalign()
{
    return memalign(64, 64);
}
void *by_posix_memalign()
{
    void *p = nullptr;
    return posix_memalign(&p, 64, 64) ? nullptr : p;
}
void *by_valloc()
{
    return valloc(64);
}
void *by_pvalloc()
{
    return pvalloc(64);
}
void *by_strdup()
{
    return strdup("sixty-three characters and a zero, which take just 64 bytes....");
}
void *by_new()
{
    return ::operator new(64);
}
void *by_new_array()
{
    return ::operator new[](64);
}
void *by_nothrow()
{
    return ::operator new(64, std::nothrow);
}
void *by_nothrow_array()
{
    return ::operator new[](64, std::nothrow);
}
void *by_aligned_new()
{
    return ::operator new(64, std::align_val_t(64));
}
void *by_aligned_array()
{
    return ::operator new[](64, std::align_val_t(64));
}
void *by_aligned_nothrow()
{
    return ::operator new(64, std::align_val_t(64), std::nothrow);
}
void *by_aligned_nothrow_array()
{
    return ::operator new[](64, std::align_val_t(64), std::nothrow);
}

struct Way {
    const char *name;
    void *(*call)();
    bool aligned;
};
const Way ways[] = {
    {"malloc", by_malloc, false},
    {"calloc", by_calloc, false},
    {"realloc", by_realloc, false},
    {"reallocarray", by_reallocarray, false},
    {"aligned_alloc", by_aligned_alloc, true},
    {"memalign", by_memalign, true},
    {"posix_memalign", by_posix_memalign, true},
    {"valloc", by_valloc, true},
    {"pvalloc", by_pvalloc, true},
    {"strdup", by_strdup, false},
    {"new", by_new, false},
    {"new[]", by_new_array, false},
    {"nothrow", by_nothrow, false},
    {"nothrow[]", by_nothrow_array, false},
    {"aligned-new", by_aligned_new, true},
    {"aligned-new[]", by_aligned_array, true},
    {"aligned-nothrow", by_aligned_nothrow, true},
    {"aligned-nothrow[]", by_aligned_nothrow_array, true},
};

// ---- ways to use and to free ----

// false: left out
bool free_it(void *p)
{
    if (!takes("free", p))
        return false;
    start();
    free(p);
    return true;
}

bool resize_it(void *p, void *&to)
{
    if (!takes("realloc", p))
        return false;
    memset(p, 7, 64);
    start();
    to = realloc(p, 5000);
    return true;
}

bool resize_array(void *p, void *&to)
{
    if (!takes("realloc", p) && !takes("reallocarray", p))
        return false;
    memset(p, 7, 64);
    start();
    to = reallocarray(p, 50, 100);
    return true;
}

const struct {
    const char *name;
    bool (*call)(void *p, void *&to);
} resizes[] = {{"realloc", resize_it}, {"reallocarray", resize_array}};

#define FORM(name, call)                                                                                             \
    {                                                                                                                \
        name, [](void *p) { call; }                                                                                  \
    }
const std::align_val_t wide{64};
const struct {
    const char *name;
    void (*call)(void *p);
} deletes[] = {
    FORM("delete", ::operator delete(p)),
    FORM("delete[]", ::operator delete[](p)),
    FORM("sized", ::operator delete(p, size_t(64))),
    FORM("sized[]", ::operator delete[](p, size_t(64))),
    FORM("nothrow", ::operator delete(p, std::nothrow)),
    FORM("nothrow[]", ::operator delete[](p, std::nothrow)),
    FORM("aligned", ::operator delete(p, wide)),
    FORM("aligned[]", ::operator delete[](p, wide)),
    FORM("aligned-sized", ::operator delete(p, size_t(64), wide)),
    FORM("aligned-sized[]", ::operator delete[](p, size_t(64), wide)),
    FORM("aligned-nothrow", ::operator delete(p, wide, std::nothrow)),
    FORM("aligned-nothrow[]", ::operator delete[](p, wide, std::nothrow)),
};

void *make(const Way &way)
{
    start();
    void *p = way.call();
    recording = false;
    return p;
}

// The block holds what realloc() must have kept.
bool kept(const void *p)
{
    const auto *bytes = static_cast<const unsigned char *>(p);
    for (int i = 0; i < 64; i++)
        if (bytes[i] != 7)
            return false;
    return true;
}

void combine(const Way &way)
{
    void *p = make(way);
    print(way.name, "made", p, p && (!way.aligned || uintptr_t(p) % 64 == 0));
    if (takes("malloc_usable_size", p)) {
        start();
        size_t size = malloc_usable_size(p);
        print(way.name, "size", p, size >= 64);
    }
    if (free_it(p))
        print(way.name, "free", nullptr, 0);
    for (const auto &resize : resizes) {
        void *to = nullptr;
        if (!resize.call(make(way), to))
            continue;
        print(way.name, resize.name, to, to && kept(to));
        if (free_it(to))
            print(way.name, "free after it", nullptr, 0);
    }
    for (const auto &form : deletes) {
        p = make(way);
        if (!takes_delete(p))
            continue;
        start();
        form.call(p);
        print(way.name, form.name, nullptr, 0);
    }
}

} // namespace

void names_heap(char tag, const char *heap, size_t size)
{
    char variable[] = {'N', 'A', 'M', 'E', 'S', '_', tag, 0};
    heaps[tag - 'A'] = {heap, size, getenv(variable)};
}

void names_ran(char tag, const char *function)
{
    size_t length = strlen(ran);
    if (recording && length + strlen(function) + 5 < sizeof ran) {
        char entry[] = {' ', tag, ':', 0};
        strcat(strcat(ran, entry), function);
    }
}

// Twice: the first call of a kind and a later one go different ways through Sheaf.
int names_call_all()
{
    for (int round = 0; round < 2; round++)
        for (const Way &way : ways)
            combine(way);
    for (const Way &way : ways) { // so often that fast paths miss
        for (int i = 0; i < 300; i++) {
            void *p = way.call();
            if (owner(p) == '-')
                free(p);
        }
    }
    _exit(0); // what the program has of its own may not be fit for libc's exit
}
