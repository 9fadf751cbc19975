/* C++ programs that are linked with libsheaf-malloc: the operators, and what happens when memory runs out. */
#include "../cases.h"

#include <cstdint>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

struct alignas(256) wide {
    char bytes[300];
};

CASE(objects_come_from_sheaf)
{
    std::size_t before = mallinfo2().uordblks;
    std::vector<std::string> texts;
    for (int i = 0; i < 1000; i++)
        texts.emplace_back(static_cast<std::size_t>(i), 'x');
    must(mallinfo2().uordblks > before + 400000);
}

CASE(aligned_objects)
{
    wide *one = new wide, *several = new wide[3], *nothrow = new (std::nothrow) wide;
    bool good = ((reinterpret_cast<std::uintptr_t>(one) | reinterpret_cast<std::uintptr_t>(several) |
                  reinterpret_cast<std::uintptr_t>(nothrow)) &
                 255) == 0;
    delete one;
    delete[] several;
    delete nothrow;
    must(good);
}

static volatile std::size_t too_much = SIZE_MAX / 4;

template <typename Function> static bool throws_bad_alloc(Function function)
{
    try {
        function();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

CASE(failure_throws_bad_alloc)
{
    must(throws_bad_alloc([] { ::operator delete(::operator new(too_much)); }) &&
         throws_bad_alloc([] { delete[] new char[too_much]; }) && throws_bad_alloc([] {
             ::operator delete(::operator new(too_much, std::align_val_t(64)), std::align_val_t(64));
         }));
}

CASE(nothrow_returns_null)
{
    must(!::operator new(too_much, std::nothrow) && !::operator new[](too_much, std::nothrow));
}

static int handled;

static void handler()
{
    if (++handled == 3)
        throw std::bad_alloc();
}

CASE(new_handler_is_called)
{
    std::set_new_handler(handler);
    bool good = throws_bad_alloc([] { ::operator delete(::operator new(too_much)); }) && handled == 3;
    handled = 0;
    good &= !::operator new(too_much, std::nothrow) && handled == 3;
    std::set_new_handler(nullptr);
    must(good);
}
