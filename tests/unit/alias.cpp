// Which caches are merged and which must stay separate.
#include "catch.hpp"
#include "probe.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace
{
void nothing(void *) {}

unsigned aliases(const kmem_cache *cache, std::string *last)
{
    char names[8][32] = {};
    unsigned n = kmem_cache_aliases(cache, names, 8);
    if (n)
        *last = names[n - 1];
    return n;
}
} // namespace

TEST_CASE("caches with SLAB_MERGE and alike properties become one cache with several names")
{
    std::string last;
    kmem_cache *one = kmem_cache_create("one", 60, nullptr, SLAB_MERGE);
    kmem_cache *two = kmem_cache_create("two", 64, nullptr, SLAB_MERGE);
    kmem_cache *three = kmem_cache_create("three", 58, nullptr, SLAB_MERGE);
    REQUIRE(one != nullptr);
    CHECK(one == two);
    CHECK(one == three);
    CHECK(aliases(one, &last) == 2);
    CHECK(last == "three");
    CHECK(kmem_cache_aliases(one, nullptr, 0) == 2);

    char *object = static_cast<char *>(kmem_cache_alloc(one, GFP_KERNEL));
    std::memset(object, 1, 64);
    kmem_cache_free(one, object);
    object = static_cast<char *>(kmem_cache_zalloc(two, GFP_KERNEL)); // zeroes the size of the largest alias
    for (int i = 0; i < 64; i++)
        CHECK(object[i] == 0);

    CHECK(kmem_cache_destroy(three) == 0); // drops the alias, although an object is in use
    CHECK(aliases(one, &last) == 1);
    CHECK(last == "two");
    CHECK(kmem_cache_destroy(two) == 0);
    CHECK(aliases(one, &last) == 0);
    CHECK(kmem_cache_destroy(one) == -EBUSY);
    kmem_cache_free(one, object);
    probe_check(one);
    CHECK(kmem_cache_destroy(one) == 0);
}

TEST_CASE("caches that differ or lack SLAB_MERGE stay separate")
{
    kmem_cache_args constructed = {}, fixed = {}, aligned = {};
    constructed.ctor = nothing;
    fixed.sheaf_capacity = 5;
    aligned.align = 32;
    const struct {
        unsigned size;
        const kmem_cache_args *args;
        slab_flags_t flags;
    } others[] = {
        {64, nullptr, 0},
        {64, nullptr, SLAB_NO_MERGE},
        {64, nullptr, SLAB_MERGE | SLAB_NO_MERGE},
        {64, nullptr, SLAB_MERGE | SLAB_CONSISTENCY_CHECKS},
        {64, &constructed, SLAB_MERGE},
        {64, &fixed, SLAB_MERGE},
        {64, &aligned, SLAB_MERGE},
        {48, nullptr, SLAB_MERGE},
        {65, nullptr, SLAB_MERGE},
    };
    kmem_cache *one = kmem_cache_create("one", 64, nullptr, SLAB_MERGE);
    REQUIRE(one != nullptr);
    for (const auto &other : others) {
        kmem_cache *cache = kmem_cache_create("other", other.size, other.args, other.flags);
        REQUIRE(cache != nullptr);
        CHECK(cache != one);
        CHECK(kmem_cache_aliases(cache, nullptr, 0) == 0);
        CHECK(kmem_cache_destroy(cache) == 0);
    }
    CHECK(kmem_cache_aliases(one, nullptr, 0) == 0);
    CHECK(kmem_cache_destroy(one) == 0);
}

TEST_CASE("a debugged cache has no sheaves, and objects are conserved")
{
    kmem_cache *cache = kmem_cache_create("debugged", 40, nullptr, SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER);
    void *objects[500];
    REQUIRE(cache != nullptr);
    for (int round = 0; round < 3; round++) {
        REQUIRE(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 500, objects));
        probe_check(cache);
        probe_census census;
        probe_take_census(cache, &census);
        CHECK(census.in_use == 500);
        CHECK(census.out == 500);
        CHECK(kmem_cache_validate(cache) == 0);
        kmem_cache_free_bulk(cache, 500, objects);
        probe_check(cache);
    }
    CHECK(kmem_cache_validate(cache) == 0);
    CHECK(kmem_cache_destroy(cache) == 0);
}
