// Memory goes back without being asked: by growth and by traffic. (By age: tests/conformance.)
#include "catch.hpp"
#include "probe.h"

#include <chrono>
#include <cstring>
#include <thread>
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

// A block of large memory, written and given back.
static void use_block(size_t bytes)
{
    void *block = sheaf_malloc(bytes);
    REQUIRE(block);
    memset(block, 1, bytes);
    sheaf_free(block);
}

constexpr size_t mib = 1 << 20;

// A large block is freed, and a while later another that does not lie beside it: what is still resident then.
static uint64_t kept_of(size_t bytes)
{
    void *block = sheaf_malloc(bytes), *between = sheaf_malloc(300000), *other = sheaf_malloc(mib);
    REQUIRE((block && between && other));
    memset(block, 1, bytes);
    sheaf_free(block);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    sheaf_free(other);
    uint64_t kept = probe_warm_bytes();
    sheaf_free(between);
    return kept;
}

TEST_CASE("large memory stays only where it is missed soon", "[sheaves]")
{
    sheaf_malloc_trim();
    CHECK(kept_of(24 * mib) <= 8 * mib);
    // What comes and goes at once stays, and so does after some rounds what is missed as soon as it went back.
    use_block(24 * mib);
    CHECK(probe_warm_bytes() >= 24 * mib);
    uint64_t kept = 0;
    for (int round = 0; round < 100 && kept < 24 * mib; round++)
        kept = kept_of(24 * mib);
    CHECK(kept >= 24 * mib);
    sheaf_malloc_trim();
    CHECK(probe_warm_bytes() == 0);
}

TEST_CASE("new memory is paid for with what has been free for a while", "[sheaves]")
{
    sheaf_malloc_trim();
    for (int round = 0; round < 1000 && probe_warm_bytes() < 24 * mib; round++)
        use_block(24 * mib); // until so much is kept
    uint64_t before = probe_warm_bytes();
    REQUIRE(before >= 24 * mib);
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    kmem_cache *cache = kmem_cache_create("growing", 8192, nullptr, 0);
    auto objects = take(cache, 16 * mib / 8192);
    CHECK(probe_warm_bytes() <= before - 14 * mib); // what was not a MiB yet is still owed
    give(cache, objects);
    kmem_cache_destroy(cache);
}

TEST_CASE("what a cache left in its barn goes back when others make traffic", "[sheaves]")
{
    kmem_cache *old = kmem_cache_create("went-out-of-use", 1024, nullptr, 0);
    kmem_cache *busy = kmem_cache_create("in-use", 1024, nullptr, 0);
    give(old, take(old, 400));
    probe_census census;
    probe_take_census(old, &census);
    REQUIRE(census.in_barns > 0);
    // Much less than the decay time, but some steps, which are 16 ms apart at least.
    for (int round = 0; round < 5000 && census.in_barns + census.in_sheaves > 0; round++) {
        give(busy, take(busy, 1024));
        probe_take_census(old, &census);
    }
    CHECK(census.in_barns == 0);
    CHECK(census.in_sheaves == 0);
    probe_take_census(busy, &census);
    CHECK(census.in_barns > 0); // it uses what it has there
    probe_check(old);
    probe_check(busy);
    kmem_cache_destroy(old);
    kmem_cache_destroy(busy);
}
