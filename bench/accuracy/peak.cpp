// A C++ program whose memory rises and falls: 40 rounds churn strings and vectors of which few are live at a time. In
// the tenth round site_fill inserts 160 000 strings into a map, which the twentieth round clears.
//
// The truth is what the containers had requested from their allocators at the moment when that was most. The
// allocators count it for each site and call operator new.
#include "truth.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace
{

enum Place { FILL, CHURN, PLACES };

std::array<std::size_t, PLACES> held, at_peak;
std::size_t peak;

void count(Place place, std::size_t bytes)
{
    held[place] += bytes;
    if (held[FILL] + held[CHURN] > peak) {
        peak = held[FILL] + held[CHURN];
        at_peak = held;
    }
}

template <class T, Place P> struct Counted {
    using value_type = T;
    template <class U> struct rebind {
        using other = Counted<U, P>;
    };

    Counted() = default;
    template <class U> Counted(const Counted<U, P> &) {}

    T *allocate(std::size_t n)
    {
        T *p = std::allocator<T>().allocate(n);
        count(P, n * sizeof(T));
        return p;
    }

    void deallocate(T *p, std::size_t n)
    {
        held[P] -= n * sizeof(T);
        std::allocator<T>().deallocate(p, n);
    }

    bool operator==(const Counted &) const { return true; }
    bool operator!=(const Counted &) const { return false; }
};

template <Place P> using String = std::basic_string<char, std::char_traits<char>, Counted<char, P>>;
using Map = std::map<int, String<FILL>, std::less<int>, Counted<std::pair<const int, String<FILL>>, FILL>>;

SITE std::size_t site_churn(std::uint32_t seed)
{
    std::size_t sum = 0;
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1664525 + 1013904223;
        String<CHURN> text(20 + (seed >> 16) % 400, 'x');
        std::vector<int, Counted<int, CHURN>> numbers((seed >> 16) % 200);
        sum += text.size() + numbers.size();
    }
    return sum;
}

SITE void site_fill(Map &map, int strings)
{
    for (int i = 0; i < strings; i++)
        map[i * 7919] = String<FILL>(100 + static_cast<std::size_t>(i) % 300, 'y');
}

} // namespace

int main()
{
    std::size_t sum = 0;
    Map map;
    for (std::uint32_t round = 0; round < 40; round++) {
        if (round == 10)
            site_fill(map, 160000);
        sum += site_churn(round);
        for (std::uint32_t i = 0; i < 40; i++)
            sum += site_churn(i);
        if (round == 20)
            map.clear();
    }
    truth_peak("site_fill", at_peak[FILL]);
    truth_peak("site_churn", at_peak[CHURN]);
    truth_ready();
    std::exit(sum == 0);
}
