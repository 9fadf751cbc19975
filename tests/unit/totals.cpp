// The totals, from which mallinfo2(), malloc_stats() and records are made, account for every byte.
#include "catch.hpp"
#include "probe.h"

#include <cstring>
#include <vector>

// Returns the totals, after checking that the caches' counts add up to the slabs' bytes, which the region counts
// itself.
static probe_totals conserved()
{
    probe_totals t;
    probe_take_totals(&t);
    CHECK(t.in_use + t.cached + t.set_aside + t.free_in_slabs + t.slab_rest == t.slab_bytes);
    CHECK(t.large == probe().large_slices << 16);
    CHECK(t.span_cache <= t.warm);
    return t;
}

TEST_CASE("live and free bytes add up to the bytes of slabs", "[totals]")
{
    sheaf_malloc_trim();
    probe_totals before = conserved();
    std::vector<void *> blocks;
    for (size_t i = 0; i < 20000; i++)
        blocks.push_back(std::memset(sheaf_malloc(16 + i * 7 % 40000), 1, 16));
    probe_totals full = conserved();
    uint64_t asked = 0;
    for (size_t i = 0; i < blocks.size(); i++)
        asked += 16 + i * 7 % 40000;
    CHECK(full.in_use + full.large >= before.in_use + before.large + asked);
    for (size_t i = 0; i < blocks.size(); i += 2)
        sheaf_free(blocks[i]);
    probe_totals half = conserved();
    CHECK(half.in_use < full.in_use);
    CHECK(half.cached + half.free_in_slabs > before.cached); // tiny mode has no sheaves
    for (size_t i = 1; i < blocks.size(); i += 2)
        sheaf_free(blocks[i]);
    probe_totals empty = conserved();
    CHECK(empty.in_use == before.in_use);
    CHECK(empty.large == before.large);
    sheaf_malloc_trim();
    probe_totals after = conserved();
    CHECK(after.cached == 0);
    CHECK(after.warm == 0);
}

TEST_CASE("objects in prefilled sheaves and reserves are counted as set aside", "[totals]")
{
    kmem_cache *cache = kmem_cache_create("totals", 1000, nullptr, 0);
    REQUIRE(cache);
    probe_totals before = conserved();
    REQUIRE(kmem_cache_reserve(cache, 50) == 0);
    slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 20);
    REQUIRE(sheaf);
    probe_totals with = conserved();
    CHECK(with.set_aside >= before.set_aside + 70 * 1000);
    CHECK(with.in_use == before.in_use);
    kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
    REQUIRE(kmem_cache_reserve(cache, 0) == 0);
    CHECK(conserved().set_aside == before.set_aside);
    kmem_cache_destroy(cache);
}

TEST_CASE("a span in a span cache counts as bytes of the span cache, not as in use", "[totals]")
{
    sheaf_malloc_trim();
    probe_totals before = conserved();
    REQUIRE(before.span_cache == 0);
    sheaf_free(sheaf_malloc(60000));
    probe_totals after = conserved();
    CHECK(after.large == before.large);
    CHECK((after.span_cache == 65536 || after.span_cache == 0)); // 0 if the options disable the span cache
    sheaf_malloc_trim();
    CHECK(conserved().span_cache == 0);
}
