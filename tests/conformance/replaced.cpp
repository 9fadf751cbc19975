/*
 * A program that replaces only the plain forms of new and delete. By the standard the other forms then call these
 * two. Its blocks have a header in front, so no other delete or free may get them. Usage: replaced [CASE]
 */
#include "../cases.h"

#include <new>
#include <sstream>
#include <string>

static const unsigned long mark = 0x5ea0f5ea0f5ea0f1;
static long made, gone;
static void *volatile seen; /* keeps the compiler from removing pairs of new and delete */

struct header {
    unsigned long mark, size;
};

void *operator new(size_t n)
{
    header *h = static_cast<header *>(malloc(sizeof(header) + n));
    if (!h)
        throw std::bad_alloc();
    *h = {mark, n};
    made++;
    return h + 1;
}

void operator delete(void *p) noexcept
{
    if (!p)
        return;
    header *h = static_cast<header *>(p) - 1;
    must(h->mark == mark);
    h->mark = 0;
    gone++;
    free(h);
}

/* Since `before`, the two operators above have allocated one block and freed it. */
static bool once(long before)
{
    return made == before + 1 && gone == made;
}

CASE(plain_forms)
{
    ::operator delete(::operator new(100));
    must(once(0));
    int *i = new int(5);
    seen = i;
    delete i;
    must(once(1));
}

CASE(sized_delete_calls_plain_delete)
{
    ::operator delete(::operator new(100), size_t(100));
    must(once(0));
    ::operator delete[](::operator new[](100), size_t(100));
    must(once(1));
}

CASE(array_forms_call_plain_forms)
{
    ::operator delete[](::operator new[](100));
    must(once(0));
    std::string *s = new std::string[10];
    delete[] s;
    must(once(1));
}

CASE(nothrow_forms_call_plain_forms)
{
    ::operator delete(::operator new(100, std::nothrow), std::nothrow);
    must(once(0));
    ::operator delete[](::operator new[](100, std::nothrow), std::nothrow);
    must(once(1));
    int *i = new (std::nothrow) int(7);
    seen = i;
    delete i;
    must(once(2));
}

CASE(aligned_forms_do_not_call_plain_forms)
{
    const std::align_val_t wide{128};
    ::operator delete(::operator new(100, wide), wide);
    ::operator delete[](::operator new[](100, wide), size_t(100), wide);
    ::operator delete[](::operator new[](100, wide, std::nothrow), wide, std::nothrow);
    must(made == 0 && gone == 0);
}

/* Blocks that libstdc++ allocates and the program frees, and the reverse. */
CASE(libstdc_calls_plain_forms)
{
    for (int i = 0; i < 1000; i++) {
        std::ostringstream out;
        out << std::string(static_cast<size_t>(i), 'x') << i;
        std::string text = out.str();
        must(text.size() >= static_cast<size_t>(i));
    }
    must(made > 1000 && gone == made);
}
