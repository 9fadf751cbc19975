// The kmem_cache interface and the conservation of objects.
#include "catch.hpp"
#include "probe.h"
#include "remote.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace
{
struct Cache {
    kmem_cache *cache;
    explicit Cache(unsigned size, const kmem_cache_args *args = nullptr, slab_flags_t flags = 0)
        : cache(kmem_cache_create("test", size, args, flags))
    {
        REQUIRE(cache != nullptr);
    }
    ~Cache() { kmem_cache_destroy(cache); }
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;
};

std::vector<void *> take(kmem_cache *cache, size_t n)
{
    std::vector<void *> objects;
    for (size_t i = 0; i < n; i++) {
        objects.push_back(kmem_cache_alloc(cache, GFP_KERNEL));
        REQUIRE(objects.back() != nullptr);
    }
    return objects;
}

uint64_t in_use(kmem_cache *cache)
{
    probe_census census;
    probe_take_census(cache, &census);
    return census.in_use;
}
} // namespace

TEST_CASE("objects are distinct, aligned and writable to the end")
{
    for (unsigned size : {1u, 8u, 16u, 24u, 100u, 256u, 1000u, 4096u, 8192u, 9000u, 32768u}) {
        Cache c(size);
        auto objects = take(c.cache, 300);
        std::set<void *> seen(objects.begin(), objects.end());
        CHECK(seen.size() == objects.size());
        for (void *o : objects) {
            CHECK(reinterpret_cast<uintptr_t>(o) % (size < 16 ? 8 : 16) == 0);
            std::memset(o, 0xa5, size);
        }
        probe_check(c.cache);
        for (void *o : objects)
            kmem_cache_free(c.cache, o);
        probe_check(c.cache);
        CHECK(in_use(c.cache) == 0);
    }
}

TEST_CASE("counts are exact on the fast path and on the slow path")
{
    Cache c(64);
    for (size_t round = 0; round < 5; round++) {
        auto objects = take(c.cache, 10000);
        probe_census census;
        probe_take_census(c.cache, &census);
        CHECK(census.in_use == 10000);
        CHECK(census.allocs == 10000 * (round + 1));
        CHECK(census.out == census.in_use + census.in_sheaves + census.in_barns);
        for (void *o : objects)
            kmem_cache_free(c.cache, o);
        probe_take_census(c.cache, &census);
        CHECK(census.in_use == 0);
        CHECK(census.frees == census.allocs);
    }
    for (int i = 0; i < 100000; i++) // makes the word's count overflow into the counters many times
        kmem_cache_free(c.cache, kmem_cache_alloc(c.cache, GFP_KERNEL));
    probe_census census;
    probe_take_census(c.cache, &census);
    CHECK(census.allocs == 50000 + 100000);
    CHECK(census.frees == census.allocs);
    probe_check(c.cache);
}

TEST_CASE("a fixed capacity is kept", "[sheaves]")
{
    for (unsigned capacity : {1u, 5u, 32u, 64u, 128u, 256u, 509u}) {
        kmem_cache_args args{};
        args.sheaf_capacity = capacity;
        Cache c(64, &args);
        void *o = kmem_cache_alloc(c.cache, GFP_KERNEL);
        probe_census census;
        probe_take_census(c.cache, &census);
        CHECK(census.refilled == capacity);
        kmem_cache_free(c.cache, o);
        auto objects = take(c.cache, 3 * capacity);
        for (void *p : objects)
            kmem_cache_free(c.cache, p);
        probe_check(c.cache);
    }
}

TEST_CASE("zalloc zeroes dirty objects")
{
    Cache c(200);
    auto objects = take(c.cache, 100);
    for (void *o : objects) {
        std::memset(o, 0xff, 200);
        kmem_cache_free(c.cache, o);
    }
    static const char zeros[200] = {};
    for (int i = 0; i < 100; i++) {
        void *o = kmem_cache_zalloc(c.cache, GFP_KERNEL);
        CHECK(std::memcmp(o, zeros, 200) == 0);
        objects[static_cast<size_t>(i)] = o;
    }
    for (void *o : objects)
        kmem_cache_free(c.cache, o);
}

TEST_CASE("the constructor runs once for an object and its state survives free")
{
    static std::atomic<int> constructed;
    constructed = 0;
    kmem_cache_args args{};
    args.ctor = [](void *o) {
        std::memset(o, 0x11, 48);
        constructed++;
    };
    Cache c(48, &args);
    for (int round = 0; round < 10; round++) {
        auto objects = take(c.cache, 500);
        for (void *o : objects) {
            CHECK(static_cast<unsigned char *>(o)[47] == 0x11);
            kmem_cache_free(c.cache, o);
        }
    }
    CHECK(constructed >= 500);
    CHECK(constructed < 500 + 600); // far fewer calls than the 5000 allocations
}

TEST_CASE("bulk free accepts objects of several caches")
{
    Cache a(64), b(512);
    std::vector<void *> objects(2000);
    REQUIRE(kmem_cache_alloc_bulk(a.cache, GFP_KERNEL, 1000, objects.data()));
    REQUIRE(kmem_cache_alloc_bulk(b.cache, GFP_KERNEL, 1000, objects.data() + 1000));
    CHECK(in_use(a.cache) == 1000);
    kmem_cache_free_bulk(nullptr, objects.size(), objects.data());
    CHECK(in_use(a.cache) == 0);
    CHECK(in_use(b.cache) == 0);
    probe_check(a.cache);
    probe_check(b.cache);
}

TEST_CASE("bulks of whole sheaves and slabs yield distinct objects and exact counts", "[bulk]")
{
    for (unsigned capacity : {0u, 32u}) {
        kmem_cache_args args = {};
        args.sheaf_capacity = capacity;
        Cache c(48, &args);
        for (size_t n : {1u, 15u, 16u, 100u, 253u, 1000u, 5000u, 20000u}) {
            auto single = take(c.cache, 7); /* leaves a partly filled sheaf */
            std::vector<void *> objects(n);
            REQUIRE(kmem_cache_alloc_bulk(c.cache, GFP_KERNEL, n, objects.data()));
            std::set<void *> seen(objects.begin(), objects.end());
            seen.insert(single.begin(), single.end());
            CHECK(seen.size() == n + 7);
            for (void *o : objects)
                std::memset(o, 0xa5, 48);
            probe_check(c.cache);
            CHECK(in_use(c.cache) == n + 7);
            kmem_cache_free_bulk(n % 2 ? c.cache : nullptr, n, objects.data());
            for (void *o : single)
                kmem_cache_free(c.cache, o);
            probe_check(c.cache);
            CHECK(in_use(c.cache) == 0);
        }
        std::vector<void *> zeroed(3000);
        REQUIRE(kmem_cache_alloc_bulk(c.cache, GFP_KERNEL | __GFP_ZERO, zeroed.size(), zeroed.data()));
        for (void *o : zeroed) {
            auto bytes = static_cast<const char *>(o);
            CHECK(std::count(bytes, bytes + 48, 0) == 48);
        }
        kmem_cache_free_bulk(c.cache, zeroed.size(), zeroed.data());
    }
}

TEST_CASE("bulks, single calls and remote drains in threads neither lose nor duplicate objects", "[bulk]")
{
    Cache c(64);
    std::atomic<int> running{3};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&, t] {
            std::vector<void *> objects(700);
            for (size_t i = 0; i < 2000; i++) {
                size_t n = 1 + (i * 37 + static_cast<size_t>(t) * 111) % objects.size();
                if (!kmem_cache_alloc_bulk(c.cache, GFP_KERNEL, n, objects.data()))
                    abort();
                for (size_t k = 0; k < n; k++)
                    *static_cast<void **>(objects[k]) = objects.data() + k;
                for (size_t k = 0; k < n; k++)
                    if (*static_cast<void **>(objects[k]) != objects.data() + k)
                        abort(); /* the object has two owners */
                if (i % 3)
                    kmem_cache_free_bulk(c.cache, n, objects.data());
                else
                    for (size_t k = 0; k < n; k++)
                        kmem_cache_free(c.cache, objects[k]);
            }
            running--;
        });
    while (running)
        probe_remote_drain(c.cache);
    for (auto &thread : threads)
        thread.join();
    probe_check(c.cache);
    CHECK(in_use(c.cache) == 0);
}

TEST_CASE("destroy fails while objects are in use")
{
    kmem_cache *cache = kmem_cache_create("leaky", 64, nullptr, 0);
    void *o = kmem_cache_alloc(cache, GFP_KERNEL);
    CHECK(kmem_cache_destroy(cache) == -EBUSY);
    std::memset(o, 1, 64);
    kmem_cache_free(cache, o);
    CHECK(kmem_cache_destroy(cache) == 0);
    CHECK(kmem_cache_destroy(nullptr) == 0);
}

TEST_CASE("shrink frees all slabs when no object is in use")
{
    Cache c(1000);
    auto objects = take(c.cache, 5000);
    CHECK(kmem_cache_shrink(c.cache) == 1);
    for (void *o : objects)
        kmem_cache_free(c.cache, o);
    CHECK(kmem_cache_shrink(c.cache) == 0);
    probe_check(c.cache);
}

TEST_CASE("create rejects invalid arguments")
{
    errno = 0;
    CHECK(kmem_cache_create("x", 0, nullptr, 0) == nullptr);
    CHECK(kmem_cache_create("x", 0, nullptr, SLAB_HWCACHE_ALIGN) == nullptr);
    CHECK(errno == EINVAL);
    CHECK(kmem_cache_create(nullptr, 8, nullptr, 0) == nullptr);
    CHECK(kmem_cache_create("x", 32769, nullptr, 0) == nullptr);
    kmem_cache_args args{};
    args.align = 3;
    CHECK(kmem_cache_create("x", 64, &args, 0) == nullptr);
    args.align = 0;
    args.sheaf_capacity = 510;
    CHECK(kmem_cache_create("x", 64, &args, 0) == nullptr);
}

TEST_CASE("objects have the requested alignment")
{
    kmem_cache_args args{};
    args.align = 1024;
    Cache aligned(40, &args);
    for (void *o : take(aligned.cache, 50)) {
        CHECK(reinterpret_cast<uintptr_t>(o) % 1024 == 0);
        kmem_cache_free(aligned.cache, o);
    }
    Cache lines(100, nullptr, SLAB_HWCACHE_ALIGN);
    for (void *o : take(lines.cache, 50)) {
        CHECK(reinterpret_cast<uintptr_t>(o) % 64 == 0);
        kmem_cache_free(lines.cache, o);
    }
    CHECK(kmem_cache_size(lines.cache) == 100);
}

TEST_CASE("exchanges between threads and remote drains neither lose nor duplicate objects")
{
    Cache c(64);
    constexpr size_t boxes = 256;
    static std::atomic<void *> mailbox[boxes];
    among_remote_drains(c.cache, 8, [&](unsigned t) {
        unsigned long x = t * 7919 + 1;
        for (int i = 0; i < 150000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul;
            void *o = kmem_cache_alloc(c.cache, GFP_KERNEL);
            *static_cast<void **>(o) = o;
            void *old = mailbox[(x >> 33) % boxes].exchange(o);
            if (!old)
                continue;
            if (*static_cast<void **>(old) != old)
                std::abort(); // two owners
            *static_cast<void **>(old) = nullptr;
            kmem_cache_free(c.cache, old);
        }
    });
    probe_check(c.cache);
    for (auto &box : mailbox)
        if (void *o = box.exchange(nullptr))
            kmem_cache_free(c.cache, o);
    CHECK(in_use(c.cache) == 0);
    probe_check(c.cache);
}

TEST_CASE("typesafe caches cannot be created without libsheaf-rcu", "[cache]")
{
    errno = 0;
    CHECK(kmem_cache_create("typesafe", 64, nullptr, SLAB_TYPESAFE_BY_RCU) == nullptr);
    CHECK(errno == ENOTSUP);
}
