// The C++ operators: new, delete with and without the size, aligned new. The functions call the operators directly,
// because the compiler may remove a pair of new and delete expressions.
#include "operators.h"

#include <memory>
#include <new>
#include <vector>

namespace
{

struct alignas(64) line {
    uint64_t words[16];
};

void *taken(void *p, size_t size)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    *static_cast<uint64_t *>(p) = size;
    return p;
}

struct object {
    uint64_t words[6];
};

} // namespace

uint64_t new_and_delete(size_t size, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++)
        ::operator delete(taken(::operator new(size), size));
    return ops;
}

uint64_t new_and_sized_delete(uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++)
        ::operator delete(taken(::operator new(sizeof(object)), sizeof(object)), sizeof(object));
    return ops;
}

uint64_t new_batches(size_t count, uint64_t ops)
{
    uint64_t done = 0;
    std::vector<std::unique_ptr<object>> objects(count);
    for (; done < ops; done += count) {
        for (auto &place : objects)
            place = std::make_unique<object>();
        for (auto &place : objects)
            place.reset();
    }
    return done;
}

uint64_t aligned_new_and_delete(uint64_t ops)
{
    constexpr std::align_val_t alignment{alignof(line)};
    for (uint64_t i = 0; i < ops; i++)
        ::operator delete(taken(::operator new(sizeof(line), alignment), sizeof(line)), sizeof(line), alignment);
    return ops;
}
