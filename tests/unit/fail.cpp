// SHEAF_FAIL for a user's cache. Runs with SHEAF_FAIL=cache=failing,interval=3,verbose=0.
#include "catch.hpp"
#include "probe.h"

#include <cerrno>
#include <vector>

TEST_CASE("every third allocation of the cache fails, by any call, and no object is lost", "[fail]")
{
    kmem_cache *cache = kmem_cache_create("failing", 64, nullptr, 0);
    kmem_cache *other = kmem_cache_create("other", 64, nullptr, 0);
    REQUIRE(cache != nullptr);
    REQUIRE(other != nullptr);
    std::vector<void *> objects;
    for (int call = 1; call <= 9; call++) {
        errno = 0;
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);
        CHECK((object == nullptr) == (call % 3 == 0));
        CHECK(errno == (object ? 0 : ENOMEM));
        if (object)
            objects.push_back(object);
        void *fine = kmem_cache_alloc(other, GFP_KERNEL);
        REQUIRE(fine != nullptr);
        kmem_cache_free(other, fine);
    }
    slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10); // call 10
    REQUIRE(sheaf != nullptr);
    CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 30) == 0); // 11
    unsigned held = kmem_cache_sheaf_size(sheaf);
    CHECK(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, held + 20) == -ENOMEM); // 12
    CHECK(kmem_cache_sheaf_size(sheaf) == held);
    for (unsigned i = 0; i < held; i++) { // prefilled objects are guaranteed
        objects.push_back(kmem_cache_alloc_from_sheaf(cache, 0, sheaf));
        REQUIRE(objects.back() != nullptr);
    }
    kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
    void *five[5];
    CHECK_FALSE(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 5, five)); // 13 to 15
    REQUIRE(kmem_cache_reserve(cache, 2) == 0);
    for (int call = 16; call <= 18; call++) {
        objects.push_back(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_MEMALLOC));
        REQUIRE(objects.back() != nullptr); // the third one comes from the reserve
    }
    probe_census census;
    probe_take_census(cache, &census);
    CHECK(census.in_use == objects.size());
    CHECK(census.reserve_taken == 1);
    probe_check(cache);
    for (void *object : objects)
        kmem_cache_free(cache, object);
    CHECK(kmem_cache_destroy(cache) == 0);
    CHECK(kmem_cache_destroy(other) == 0);
}
