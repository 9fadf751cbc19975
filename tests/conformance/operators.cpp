/*
 * The 20 new and delete operators of C++ behave as in the standard and libstdc++: pairs, new-handlers, exceptions.
 * All cases but the first also pass on libstdc++'s own operators. Usage: operators [CASE]
 */
#include "../cases.h"
#include "../proc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include <new>
#include <string>
#include <vector>

static volatile size_t huge = (size_t)PTRDIFF_MAX + 1; /* volatile, or the compiler folds the calls */
static const std::align_val_t wide{256};

static bool is_aligned(void *p, size_t align)
{
    return p && reinterpret_cast<uintptr_t>(p) % align == 0;
}

static const char *const names[] = {"_Znwm",
                                    "_Znam",
                                    "_ZnwmRKSt9nothrow_t",
                                    "_ZnamRKSt9nothrow_t",
                                    "_ZnwmSt11align_val_t",
                                    "_ZnamSt11align_val_t",
                                    "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                    "_ZnamSt11align_val_tRKSt9nothrow_t",
                                    "_ZdlPv",
                                    "_ZdaPv",
                                    "_ZdlPvm",
                                    "_ZdaPvm",
                                    "_ZdlPvRKSt9nothrow_t",
                                    "_ZdaPvRKSt9nothrow_t",
                                    "_ZdlPvSt11align_val_t",
                                    "_ZdaPvSt11align_val_t",
                                    "_ZdlPvmSt11align_val_t",
                                    "_ZdaPvmSt11align_val_t",
                                    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                    "_ZdaPvSt11align_val_tRKSt9nothrow_t"};

CASE(all_20_operators_are_replaced)
{
    Dl_info ours, theirs;
    must(sizeof(names) / sizeof(*names) == 20);
    must(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &ours));
    for (const char *name : names) {
        void *symbol = dlsym(RTLD_DEFAULT, name);
        must(symbol && dladdr(symbol, &theirs) && !strcmp(ours.dli_fname, theirs.dli_fname));
    }
}

static void fill(void *p, size_t n)
{
    must(p && malloc_usable_size(p) >= n);
    memset(p, 0xa5, n);
}

static void plain_pairs(size_t n)
{
    void *p = ::operator new(n), *q = ::operator new[](n);
    fill(p, n), fill(q, n);
    ::operator delete(p), ::operator delete[](q);
    p = ::operator new(n, std::nothrow), q = ::operator new[](n, std::nothrow);
    fill(p, n), fill(q, n);
    ::operator delete(p, std::nothrow), ::operator delete[](q, std::nothrow);
    p = ::operator new(n), q = ::operator new[](n);
    ::operator delete(p, n), ::operator delete[](q, n);
}

static void aligned_pairs(size_t n, size_t align)
{
    const std::align_val_t a{align};
    void *p = ::operator new(n, a), *q = ::operator new[](n, a);
    must(is_aligned(p, align) && is_aligned(q, align));
    fill(p, n), fill(q, n);
    ::operator delete(p, a), ::operator delete[](q, a);
    p = ::operator new(n, a, std::nothrow), q = ::operator new[](n, a, std::nothrow);
    must(is_aligned(p, align) && is_aligned(q, align));
    fill(p, n), fill(q, n);
    ::operator delete(p, a, std::nothrow), ::operator delete[](q, a, std::nothrow);
    p = ::operator new(n, a), q = ::operator new[](n, a);
    must(is_aligned(p, align) && is_aligned(q, align));
    ::operator delete(p, n, a), ::operator delete[](q, n, a);
}

/* The last loop shows that each form of delete frees: otherwise the bytes in use would grow. */
CASE(all_forms_pair_up)
{
    for (size_t n = 0; n < 300000; n = n * 5 / 4 + 1) {
        plain_pairs(n);
        for (size_t align = 1; align <= 65536; align *= 4)
            aligned_pairs(n, align);
    }
    size_t before = mallinfo2().uordblks;
    for (int round = 0; round < 200; round++)
        plain_pairs(10000), aligned_pairs(10000, 256);
    must(mallinfo2().uordblks < before + 100000);
}

CASE(zero_and_null)
{
    void *a = ::operator new(0), *b = ::operator new[](0);
    must(a && b && a != b);
    ::operator delete(a), ::operator delete[](b);
    ::operator delete(nullptr), ::operator delete[](nullptr), ::operator delete(nullptr, size_t(8));
    ::operator delete(nullptr, wide), ::operator delete(nullptr, std::nothrow);
}

static bool throws(void *(*call)())
{
    try {
        call();
    } catch (const std::bad_alloc &e) {
        return e.what() != nullptr;
    }
    return false;
}

CASE(bad_alloc_is_thrown)
{
    must(throws([] { return ::operator new(huge); }));
    must(throws([] { return ::operator new[](huge); }));
    must(throws([] { return ::operator new(huge, wide); }));
    must(throws([] { return ::operator new[](huge, wide); }));
    must(throws([]() -> void * { return new char[huge]; }));
    must(throws([]() -> void * { return new std::string[huge]; }));
    must(throws([] { return ::operator new(huge * 2 - 8); }));
    std::string after(1000, 'x'); /* ordinary allocations still work */
    must(after.size() == 1000);
}

CASE(nothrow_returns_null)
{
    must(!::operator new(huge, std::nothrow) && !::operator new[](huge, std::nothrow));
    must(!::operator new(huge, wide, std::nothrow) && !::operator new[](huge, wide, std::nothrow));
}

static int calls;

/* A new-handler that removes itself at its third call. */
static void counting()
{
    if (++calls % 3 == 0)
        std::set_new_handler(nullptr);
}

CASE(handler_called_until_removed)
{
    void *(*const forms[])() = {
        [] { return ::operator new(huge); },
        [] { return ::operator new[](huge); },
        [] { return ::operator new(huge, wide); },
        [] { return ::operator new[](huge, wide); },
    };
    for (auto form : forms) {
        calls = 0;
        std::set_new_handler(counting);
        must(throws(form) && calls == 3);
    }
    calls = 0;
    std::set_new_handler(counting);
    must(!::operator new(huge, std::nothrow) && calls == 3);
    std::set_new_handler(counting);
    must(!::operator new[](huge, wide, std::nothrow) && calls == 6);
}

struct own_error {
    int value;
};

static void throwing()
{
    calls++;
    throw own_error{42};
}

CASE(handler_exception_is_passed_on)
{
    std::set_new_handler(throwing);
    for (int i = 0; i < 2; i++) {
        int caught = 0;
        try {
            void *volatile p = i ? ::operator new(huge, wide) : ::operator new(huge);
            must(!p);
        } catch (const own_error &e) {
            caught = e.value;
        }
        must(caught == 42 && calls == i + 1);
    }
}

/* The nothrow forms catch the handler's exception, whatever its type. */
CASE(nothrow_catches_handler_exception)
{
    std::set_new_handler(throwing);
    must(!::operator new(huge, std::nothrow) && calls == 1);
    must(!::operator new[](huge, std::nothrow) && calls == 2);
    must(!::operator new(huge, wide, std::nothrow) && calls == 3);
    must(!::operator new[](huge, wide, std::nothrow) && calls == 4);
}

static void *chain; /* blocks linked through their first word, since no memory is left for a list */
static size_t in_chain;

static void exhaust(size_t size)
{
    for (size_t sum = 0; void *p = ::operator new(size, std::nothrow); sum += size) {
        must(sum < size_t(1) << 30); /* without an effective limit this would use up the machine's memory */
        *static_cast<void **>(p) = chain;
        chain = p;
        in_chain++;
    }
}

/* A new-handler that frees 2000 blocks at once, so that whole slabs become free. */
static void release()
{
    calls++;
    for (int i = 0; i < 2000 && chain; i++) {
        void *next = *static_cast<void **>(chain);
        ::operator delete(chain);
        chain = next;
    }
}

static void limit_memory()
{
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = address_space_bytes() + (16u << 20);
    must(!setrlimit(RLIMIT_AS, &limit));
}

/* RLIMIT_AS does not limit address space that is reserved already, so the program restarts with a small region. */
CASE(handler_frees_memory)
{
    if (!getenv("SHEAF_REGION")) {
        setenv("SHEAF_REGION", "32M", 1);
        must(freopen("/dev/null", "w", stdout));
        execl("/proc/self/exe", "operators", "handler_frees_memory", nullptr);
    }
    limit_memory();
    for (size_t size : {4 << 20, 256 << 10, 16 << 10, 2 << 10, 64})
        exhaust(size);
    must(in_chain > 0 && throws([] { return ::operator new(64); }));
    std::set_new_handler(release);
    void *p = ::operator new(64);
    must(calls > 0);
    fill(p, 64);
    for (int i = 0; i < 1000; i++) {
        void *q = ::operator new(300, std::nothrow); /* the nothrow form calls the handler, too */
        fill(q, 300);
    }
}

struct alignas(128) Wide {
    char bytes[200] = {};
    explicit Wide(bool fail)
    {
        if (fail)
            throw own_error{7};
    }
};

/* When a constructor throws, the compiler calls the matching delete. */
CASE(throwing_constructor_leaks_nothing)
{
    size_t before = mallinfo2().uordblks;
    int caught = 0;
    for (int i = 0; i < 1000; i++)
        try {
            delete new Wide(true);
        } catch (const own_error &e) {
            caught += e.value;
        }
    must(caught == 7000 && mallinfo2().uordblks < before + 100000);
    Wide *w = new Wide(false);
    must(is_aligned(w, 128));
    delete w;
    std::vector<Wide> many(100, Wide(false));
    must(is_aligned(many.data(), 128));
}
