// Memory is returned to the system without a trim, by growth and by traffic. tests/conformance tests return by
// age.
#include "catch.hpp"
#include "probe.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

static std::vector<void *> take(kmem_cache *cache, size_t n)
{
    std::vector<void *> objects(n);
    for (auto &o : objects)
        o = kmem_cache_alloc(cache, GFP_KERNEL);
    return objects;
}

static void give(kmem_cache *cache, const std::vector<void *> &objects)
{
    for (void *o : objects)
        kmem_cache_free(cache, o);
}

// Allocates, writes and frees a large block.
static void use_block(size_t bytes)
{
    void *block = sheaf_malloc(bytes);
    REQUIRE(block);
    memset(block, 1, bytes);
    sheaf_free(block);
}

constexpr size_t mib = 1 << 20;

// Uses a block repeatedly until all of it stays warm.
static void learn(size_t bytes)
{
    for (int round = 0; round < 1000 && probe().warm_bytes < bytes; round++)
        use_block(bytes);
    REQUIRE(probe().warm_bytes >= bytes);
}

TEST_CASE("large memory stays warm only if it is soon used again", "[sheaves]")
{
    sheaf_malloc_trim();
    use_block(24 * mib);
    CHECK(probe().warm_bytes <= 8 * mib);
    learn(24 * mib);
    uint64_t before = probe().purged_bytes;
    for (int round = 0; round < 10; round++)
        use_block(24 * mib);
    CHECK(probe().purged_bytes - before <=
          48 * mib); // normally 0; other load may delay a round until the memory has been returned
    sheaf_malloc_trim();
    CHECK(probe().warm_bytes == 0);
}

// Blocks of random size in random order. They are not written, because memory that was in use counts as resident.
struct churn {
    std::vector<void *> places = std::vector<void *>(20);
    uint64_t seed = 1, bytes = 0;

    uint64_t random(uint64_t below)
    {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return (seed >> 33) % below;
    }

    void step()
    {
        void *&place = places[random(places.size())];
        size_t size = 5 * mib + random(20 * mib);
        sheaf_free(place);
        place = sheaf_malloc(size);
        REQUIRE(place);
        bytes += size;
    }

    void end()
    {
        for (void *&place : places)
            sheaf_free(std::exchange(place, nullptr));
    }
};

TEST_CASE("large blocks that are allocated and freed in random order stay warm", "[sheaves]")
{
    sheaf_malloc_trim();
    churn load;
    for (int i = 0; i < 200; i++)
        load.step();
    uint64_t before = load.bytes, purged = probe().purged_bytes;
    for (int i = 0; i < 1000; i++)
        load.step();
    CHECK(probe().purged_bytes - purged <= (load.bytes - before) / 10);
    // The last free leaves at most 68 MiB and 3/8 of the memory that was in use, which was 20 blocks of 25 MiB.
    load.end();
    CHECK(probe().warm_bytes <= (68 + 500 * 3 / 8) * mib);
    sheaf_malloc_trim();
    CHECK(probe().warm_bytes == 0);
}

TEST_CASE("growth returns as much memory that has been free for a while", "[sheaves]")
{
    sheaf_malloc_trim();
    learn(24 * mib);
    uint64_t before = probe().warm_bytes;
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    kmem_cache *cache = kmem_cache_create("growing", 8192, nullptr, 0);
    auto objects = take(cache, 16 * mib / 8192);
    CHECK(probe().warm_bytes <=
          before - 14 * mib); // memory is returned in steps of a MiB, so the last step may be due
    give(cache, objects);
    kmem_cache_destroy(cache);
}

TEST_CASE("traffic in one cache drains the barn of an unused one", "[sheaves]")
{
    kmem_cache *old = kmem_cache_create("went-out-of-use", 1024, nullptr, 0);
    kmem_cache *busy = kmem_cache_create("in-use", 1024, nullptr, 0);
    give(old, take(old, 400));
    probe_census census;
    probe_take_census(old, &census);
    REQUIRE(census.in_barns > 0);
    // This takes much less than the decay time, but several steps, which are at least 16 ms apart.
    for (int round = 0; round < 5000 && census.in_barns + census.in_sheaves > 0; round++) {
        give(busy, take(busy, 1024));
        probe_take_census(old, &census);
    }
    CHECK(census.in_barns == 0);
    CHECK(census.in_sheaves == 0);
    probe_take_census(busy, &census);
    CHECK(census.in_barns > 0); // its objects are in use, so they stay
    probe_check(old);
    probe_check(busy);
    kmem_cache_destroy(old);
    kmem_cache_destroy(busy);
}
