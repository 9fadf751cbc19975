// The standing reserve of a cache.
#include "starved.hpp"

#include <atomic>
#include <cerrno>
#include <thread>

TEST_CASE("the reserve serves allocations with __GFP_MEMALLOC when memory is exhausted", "[reserve]")
{
    for (unsigned capacity : {0u, 32u}) {
        Cache c(64, capacity);
        Hog hog(2);
        unsigned most = 2 * probe_slab_objects(c.cache);
        REQUIRE(kmem_cache_reserve(c.cache, 50) == 0);
        CHECK(c.census().in_reserve == 50);
        auto all = exhaust(c.cache);
        CHECK(all.size() == most - 50);
        CHECK(c.alloc() == nullptr);
        // Installs a main sheaf with room, to which later frees must not go.
        for (void *again = nullptr; !again;) {
            c.free(all.back());
            all.pop_back();
            again = c.alloc();
            auto rest = again ? std::vector<void *>() : exhaust(c.cache); // this thread has moved to another CPU
            all.insert(all.end(), rest.begin(), rest.end());
            if (again)
                all.push_back(again);
        }
        std::vector<void *> emergency;
        for (int i = 0; i < 50; i++) {
            CHECK(c.alloc() == nullptr);
            emergency.push_back(c.alloc(__GFP_MEMALLOC));
            REQUIRE(emergency.back() != nullptr);
            probe_check(c.cache);
        }
        CHECK(c.census().reserve_taken == 50);
        errno = 0;
        CHECK(c.alloc(__GFP_MEMALLOC) == nullptr);
        CHECK(errno == ENOMEM);
        // Frees refill the reserve first, so the next 50 objects are not available without the flag.
        for (int i = 0; i < 50; i++) {
            c.free(all.back());
            all.pop_back();
            CHECK(c.census().in_reserve == static_cast<uint64_t>(i) + 1);
            CHECK(c.alloc() == nullptr);
        }
        c.free(all.back());
        all.pop_back();
        auto one = exhaust(c.cache);
        CHECK(one.size() == 1);
        c.free_all(one);
        c.free_all(all);
        c.free_all(emergency);
        CHECK(c.census().in_use == 0);
        CHECK(c.census().in_reserve == 50);
    }
}

TEST_CASE("sheaves are used again once the reserve is refilled", "[reserve][sheaves]")
{
    Cache c(64, 32);
    Hog hog(1);
    REQUIRE(kmem_cache_reserve(c.cache, 4) == 0);
    auto all = exhaust(c.cache);
    all.push_back(c.alloc(__GFP_MEMALLOC));
    REQUIRE(all.back() != nullptr);
    for (int i = 0; i < 4; i++) {
        c.free(all.back());
        all.pop_back();
    }
    CHECK(c.census().in_reserve == 4);
    uint64_t fast = c.census().allocs_fast;
    for (int i = 0; i < 100; i++)
        c.free(c.alloc());
    CHECK(c.census().allocs_fast - fast > 80);
    c.free_all(all);
}

TEST_CASE("new slabs refill the reserve, and its size can change", "[reserve]")
{
    Cache c(64, 32);
    Hog hog(1);
    unsigned most = probe_slab_objects(c.cache);
    CHECK(kmem_cache_reserve(c.cache, most + 1) == -ENOMEM);
    CHECK(c.census().in_reserve == 0);
    CHECK(c.census().out == 0);
    REQUIRE(kmem_cache_reserve(c.cache, 10) == 0);
    CHECK(kmem_cache_reserve(c.cache, most + 1) == -ENOMEM);
    CHECK(c.census().in_reserve == 10);
    auto all = exhaust(c.cache);
    for (int i = 0; i < 10; i++)
        all.push_back(c.alloc(__GFP_MEMALLOC));
    CHECK(c.census().in_reserve == 0);
    hog.leave(1);
    for (int i = 0; i < 12; i++)
        all.push_back(c.alloc());
    CHECK(c.census().in_reserve == 10);
    REQUIRE(kmem_cache_reserve(c.cache, 3) == 0);
    CHECK(c.census().in_reserve == 3);
    probe_check(c.cache);
    c.free_all(all);
    REQUIRE(kmem_cache_reserve(c.cache, 0) == 0);
    CHECK(c.census().in_use == 0);
    CHECK(c.census().in_reserve == 0);
}

TEST_CASE("bulks and prefilled sheaves may use the reserve", "[reserve]")
{
    Cache c(64, 32);
    Hog hog(1);
    REQUIRE(kmem_cache_reserve(c.cache, 60) == 0);
    auto all = exhaust(c.cache);
    std::vector<void *> bulk(61);
    CHECK(!kmem_cache_alloc_bulk(c.cache, GFP_KERNEL, 1, bulk.data()));
    CHECK(!kmem_cache_alloc_bulk(c.cache, __GFP_MEMALLOC, 61, bulk.data()));
    CHECK(c.census().in_reserve == 60);
    CHECK(kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, 10) == nullptr);
    slab_sheaf *sheaf = kmem_cache_prefill_sheaf(c.cache, __GFP_MEMALLOC, 20);
    REQUIRE(sheaf != nullptr);
    CHECK(c.census().in_reserve == 40);
    CHECK(kmem_cache_alloc_bulk(c.cache, __GFP_MEMALLOC, 40, bulk.data()));
    CHECK(c.census().in_reserve == 0);
    c.give_back(sheaf);
    CHECK(c.census().in_reserve == 20);
    kmem_cache_free_bulk(c.cache, 40, bulk.data());
    CHECK(c.census().in_reserve == 60);
    probe_check(c.cache);
    c.free_all(all);
}

TEST_CASE("threads that use the reserve neither lose nor duplicate objects", "[reserve]")
{
    Cache c(64, 32);
    Hog hog(1);
    REQUIRE(kmem_cache_reserve(c.cache, 16) == 0);
    auto all = exhaust(c.cache);
    std::atomic<unsigned> served{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++) // each holds one object at a time, so 16 are enough
        threads.emplace_back([&] {
            for (int i = 0; i < 5000; i++) {
                void *a = kmem_cache_alloc(c.cache, __GFP_MEMALLOC);
                if (!a)
                    std::abort();
                *static_cast<void **>(a) = &a;
                std::this_thread::yield();
                if (*static_cast<void **>(a) != &a)
                    std::abort(); // two owners
                kmem_cache_free(c.cache, a);
                served++;
            }
        });
    for (auto &t : threads)
        t.join();
    CHECK(served == 20000);
    probe_check(c.cache);
    CHECK(c.census().in_use == all.size());
    c.free_all(all);
}
