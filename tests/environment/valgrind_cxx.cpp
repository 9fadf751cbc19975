/* The same in C++, with each operator; `mixed` deletes an array by the operator for single objects. */
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

struct alignas(64) Wide {
    char text[64];
    ~Wide() { text[0] = 0; } // arrays of it have their length before them, and their delete knows the size
};

struct Throws {
    explicit Throws(bool now)
    {
        if (now)
            throw std::runtime_error("thrown by a constructor");
    }
};

struct alignas(64) WideThrows : Throws {
    using Throws::Throws;
};

template <class What, class How> void thrown(How how)
{
    try {
        delete how();
    } catch (const std::runtime_error &) {
    }
}

void operators()
{
    const auto wide = std::align_val_t(64);
    const auto &quiet = std::nothrow;
    ::operator delete(::operator new(10));
    ::operator delete(::operator new(10), std::size_t(10));
    ::operator delete(::operator new(10, quiet), quiet);
    ::operator delete[](::operator new[](10));
    ::operator delete[](::operator new[](10), std::size_t(10));
    ::operator delete[](::operator new[](10, quiet), quiet);
    ::operator delete(::operator new(10, wide), wide);
    ::operator delete(::operator new(10, wide), std::size_t(10), wide);
    ::operator delete(::operator new(10, wide, quiet), wide, quiet);
    ::operator delete[](::operator new[](10, wide), wide);
    ::operator delete[](::operator new[](10, wide), std::size_t(10), wide);
    ::operator delete[](::operator new[](10, wide, quiet), wide, quiet);
}

void plain()
{
    operators();
    std::vector<std::string> texts;
    std::map<int, std::unique_ptr<std::string>> numbered;
    for (int i = 0; i < 1000; i++) {
        texts.push_back(std::string(i % 100, 'x'));
        numbered[i % 50] = std::make_unique<std::string>(texts.back());
    }
    delete new Wide;
    delete[] new Wide[4];
    delete[] new std::string[10];
    thrown<Throws>([] { return new Throws(true); });
    thrown<Throws>([] { return new (std::nothrow) Throws(true); });
    thrown<WideThrows>([] { return new WideThrows(true); });
    thrown<WideThrows>([] { return new (std::nothrow) WideThrows(true); });
}

int *volatile sink;

} // namespace

int main(int argc, char **argv)
{
    plain();
    const std::string fault = argc > 1 ? argv[1] : "plain";
    if (fault == "lost") {
        sink = new int[10];
        sink = nullptr;
    } else if (fault == "beyond") {
        sink = new int[10];
        sink[10] = 1;
        delete[] sink;
    } else if (fault == "mixed") {
        sink = new int[10];
        ::operator delete(sink);
    }
    std::puts("done");
    return 0;
}
