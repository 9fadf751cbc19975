// A program that loads neither libdl nor libpthread where libc has them apart, so that the object has to do without
// dlsym().
#include <cstddef>
#include <new>

static int handled;
static const std::size_t huge = std::size_t(1) << 62; // more than the address space

static void give_up()
{
    handled++;
    throw std::bad_alloc();
}

static bool throws()
{
    try {
        void *volatile p = ::operator new(huge);
        ::operator delete(p);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

int main()
{
    bool right = throws() && handled == 0;
    std::set_new_handler(give_up);
    right = right && throws() && handled == 1;
    // libstdc++'s own operator catches what the handler throws; the object finds it behind its own.
    void *volatile p = ::operator new(huge, std::nothrow);
    right = right && !p && handled == 2;
    return !right;
}
