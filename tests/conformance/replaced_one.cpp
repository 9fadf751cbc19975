/*
 * A program that replaces the one operator that REPLACE selects. Every form that by the standard calls this
 * operator must call the program's, on the fast path and on the slow path, and no other form may. Usage:
 * replaced-NAME [CASE]
 */
#include "../cases.h"

#include <new>

enum { NEW, ARRAY_NEW, DELETE, ARRAY_DELETE, ALIGNED_DELETE };

static int calls;

#if REPLACE == 0
void *operator new(size_t n)
{
    calls++;
    return malloc(n);
}
#elif REPLACE == 1
void *operator new[](size_t n)
{
    calls++;
    return malloc(n);
}
#elif REPLACE == 2
void operator delete(void *p) noexcept
{
    calls++;
    free(p);
}
#elif REPLACE == 3
void operator delete[](void *p) noexcept
{
    calls++;
    free(p);
}
#else
void operator delete(void *p, std::align_val_t) noexcept
{
    calls++;
    free(p);
}
#endif

static const std::align_val_t wide{64};
static const int rounds = 300; // enough for the fast paths to miss

/* Runs the form `rounds` times: all must call the program's operator if it is `one` or `other`, otherwise none. */
#define LEADS(form, one, other)                                                                                      \
    do {                                                                                                             \
        int before = calls;                                                                                          \
        for (int i = 0; i < rounds; i++)                                                                             \
            form;                                                                                                    \
        must(calls - before == (REPLACE == (one) || REPLACE == (other) ? rounds : 0));                               \
    } while (0)

static void *blocks[rounds];

CASE(allocating_forms)
{
    LEADS(blocks[i] = ::operator new(40), NEW, NEW);
    LEADS(blocks[i] = ::operator new(40, std::nothrow), NEW, NEW);
    LEADS(blocks[i] = ::operator new[](40), NEW, ARRAY_NEW);
    LEADS(blocks[i] = ::operator new[](40, std::nothrow), NEW, ARRAY_NEW);
}

static void fill()
{
    for (void *&block : blocks)
        block = malloc(40);
}

static void fill_aligned()
{
    for (void *&block : blocks)
        block = aligned_alloc(64, 64);
}

CASE(freeing_forms)
{
    fill();
    LEADS(::operator delete(blocks[i]), DELETE, DELETE);
    fill();
    LEADS(::operator delete(blocks[i], size_t(40)), DELETE, DELETE);
    fill();
    LEADS(::operator delete(blocks[i], std::nothrow), DELETE, DELETE);
    fill();
    LEADS(::operator delete[](blocks[i]), DELETE, ARRAY_DELETE);
    fill();
    LEADS(::operator delete[](blocks[i], size_t(40)), DELETE, ARRAY_DELETE);
    fill();
    LEADS(::operator delete[](blocks[i], std::nothrow), DELETE, ARRAY_DELETE);
}

CASE(aligned_freeing_forms)
{
    fill_aligned();
    LEADS(::operator delete(blocks[i], wide), ALIGNED_DELETE, ALIGNED_DELETE);
    fill_aligned();
    LEADS(::operator delete(blocks[i], size_t(64), wide), ALIGNED_DELETE, ALIGNED_DELETE);
    fill_aligned();
    LEADS(::operator delete(blocks[i], wide, std::nothrow), ALIGNED_DELETE, ALIGNED_DELETE);
    fill_aligned();
    LEADS(::operator delete[](blocks[i], wide), ALIGNED_DELETE, ALIGNED_DELETE);
    fill_aligned();
    LEADS(::operator delete[](blocks[i], size_t(64), wide), ALIGNED_DELETE, ALIGNED_DELETE);
}
