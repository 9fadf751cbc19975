// For the tests of prefilled sheaves and of the reserve: a cache, and a hog that uses up its memory.
#pragma once
#include "catch.hpp"
#include "probe.h"

#include <vector>

namespace
{
// Allocates objects until none is left, also from the sheaves of CPUs on which this thread ran before.
inline std::vector<void *> exhaust(kmem_cache *cache)
{
    std::vector<void *> all;
    size_t before;
    do {
        before = all.size();
        kmem_cache_shrink(cache);
        while (void *object = kmem_cache_alloc(cache, GFP_KERNEL))
            all.push_back(object);
    } while (all.size() > before);
    return all;
}

struct Cache {
    kmem_cache *cache;
    explicit Cache(unsigned size, unsigned capacity = 0)
    {
        kmem_cache_args args{};
        args.sheaf_capacity = capacity;
        cache = kmem_cache_create("prefill", size, &args, 0);
        REQUIRE(cache != nullptr);
    }
    ~Cache()
    {
        probe_check(cache);
        CHECK(kmem_cache_destroy(cache) == 0);
    }
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;

    probe_census census() const
    {
        probe_census c;
        probe_take_census(cache, &c);
        return c;
    }
    slab_sheaf *prefill(unsigned n) const
    {
        slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, n);
        REQUIRE(sheaf != nullptr);
        REQUIRE(kmem_cache_sheaf_size(sheaf) >= n);
        return sheaf;
    }
    void *from(slab_sheaf *sheaf, gfp_t flags = 0) const { return kmem_cache_alloc_from_sheaf(cache, flags, sheaf); }
    void give_back(slab_sheaf *sheaf) const { kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf); }
    void *alloc(gfp_t flags = 0) const { return kmem_cache_alloc(cache, flags); }
    void free(void *object) const { kmem_cache_free(cache, object); }
    void free_all(const std::vector<void *> &objects) const
    {
        for (void *object : objects)
            free(object);
    }
};

// Allocates all memory of the region except some slices, each of which is enough for one slab of small objects.
class Hog
{
    kmem_cache *cache_;
    std::vector<void *> held_;

  public:
    explicit Hog(unsigned slices) : cache_(kmem_cache_create("hog", 8192, nullptr, 0))
    {
        REQUIRE(cache_ != nullptr);
        INFO("run with SHEAF_REGION=8388608");
        REQUIRE(probe().region_slices <= 1024);
        held_ = exhaust(cache_);
        leave(slices);
    }
    ~Hog()
    {
        for (void *object : held_)
            kmem_cache_free(cache_, object);
        CHECK(kmem_cache_destroy(cache_) == 0);
    }
    Hog(const Hog &) = delete;
    Hog &operator=(const Hog &) = delete;

    // Frees `slices` more slices.
    void leave(unsigned slices)
    {
        while (slices--) {
            auto slice = reinterpret_cast<uintptr_t>(held_.back()) >> 16;
            std::vector<void *> rest;
            for (void *object : held_)
                if (reinterpret_cast<uintptr_t>(object) >> 16 == slice)
                    kmem_cache_free(cache_, object);
                else
                    rest.push_back(object);
            held_ = rest;
        }
        kmem_cache_shrink(cache_);
    }
};
} // namespace
