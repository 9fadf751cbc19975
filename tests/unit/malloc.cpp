// Size classes and large blocks.
#include "catch.hpp"
#include "probe.h"

#include <cstring>
#include <vector>

/* The largest power of two that divides n. */
static size_t alignment_of(size_t n)
{
    return n & -n;
}

TEST_CASE("each request gets the smallest class that holds it")
{
    const uint16_t *sizes;
    size_t classes = probe_classes(&sizes), n = 0;
    for (size_t i = 0; i < classes; i++)
        for (; n <= sizes[i]; n++)
            REQUIRE(probe_class_size(n) == sizes[i]);
}

TEST_CASE("the table of classes keeps its rules")
{
    const uint16_t *sizes;
    size_t classes = probe_classes(&sizes);
    REQUIRE(sizes[0] == 8);
    for (size_t i = 1; i < classes; i++) {
        REQUIRE(sizes[i] > sizes[i - 1]);
        REQUIRE(sizes[i] % 16 == 0);
        /* An object for a size that was rounded up to a multiple of an alignment is aligned. */
        for (size_t n = sizes[i - 1] + size_t{1}; n < sizes[i]; n++)
            REQUIRE(sizes[i] % alignment_of(n) == 0);
    }
    for (size_t i = 0; i < classes; i++) { /* a sampled object is no smaller, and aligned alike */
        REQUIRE(probe_sampled_size(sizes[i]) >= sizes[i]);
        REQUIRE(probe_sampled_size(sizes[i]) % alignment_of(sizes[i]) == 0);
    }
}

TEST_CASE("realloc keeps contents between all kinds of blocks")
{
    const size_t sizes[] = {1, 8, 100, 1000, 5000, 32768, 32769, 70000, 200000, 1 << 20, 5 << 20};
    for (size_t from : sizes)
        for (size_t to : sizes) {
            auto *p = static_cast<unsigned char *>(sheaf_malloc(from));
            for (size_t i = 0; i<from; i += from> 4096 ? 997 : 1)
                p[i] = static_cast<unsigned char>(i * 7 + from);
            p = static_cast<unsigned char *>(sheaf_realloc(p, to));
            REQUIRE(sheaf_malloc_usable_size(p) >= to);
            for (size_t i = 0; i<(from < to ? from : to); i += from> 4096 ? 997 : 1)
                REQUIRE(p[i] == static_cast<unsigned char>(i * 7 + from));
            p[to - 1] = 1;
            sheaf_free(p);
        }
    CHECK(probe().large_slices == 0);
    probe_check_all();
}

TEST_CASE("calloc zeroes reused large blocks")
{
    for (int round = 0; round < 3; round++) {
        auto *dirty = static_cast<unsigned char *>(sheaf_malloc(300000));
        std::memset(dirty, 0xff, 300000);
        sheaf_free(dirty);
        auto *p = static_cast<unsigned char *>(sheaf_calloc(300000, 1));
        for (size_t i = 0; i < 300000; i++)
            REQUIRE(p[i] == 0);
        sheaf_free(p);
    }
}

TEST_CASE("aligned_alloc serves all alignments, and impossible sizes fail")
{
    for (size_t align = 1; align <= (size_t{1} << 30); align *= 2)
        for (size_t n : {size_t{1}, align, align + 1}) {
            if (n > (size_t{1} << 28))
                continue;
            void *p = sheaf_aligned_alloc(align, n);
            REQUIRE(p != nullptr);
            REQUIRE(reinterpret_cast<uintptr_t>(p) % align == 0);
            std::memset(p, 1, n < 4096 ? n : 4096);
            sheaf_free(p);
        }
    CHECK(sheaf_aligned_alloc(3, 8) == nullptr);
    CHECK(sheaf_malloc(SIZE_MAX) == nullptr);
    CHECK(sheaf_calloc(SIZE_MAX / 2, 3) == nullptr);
}

TEST_CASE("adjacent free runs are merged and serve a block of their total size")
{
    sheaf_malloc_trim(); // empties the span caches
    std::vector<void *> blocks;
    for (int i = 0; i < 64; i++)
        blocks.push_back(sheaf_malloc(100000));
    for (size_t i = 0; i < blocks.size(); i += 2)
        sheaf_free(blocks[i]);
    for (size_t i = 1; i < blocks.size(); i += 2)
        sheaf_free(blocks[i]);
    CHECK(probe().large_slices == 0);
    sheaf_malloc_trim();
    void *all = sheaf_malloc(64 * 131072);
    CHECK(all == blocks[0]);
    sheaf_free(all);
}

TEST_CASE("large blocks from a span cache are counted and zeroed like others")
{
    sheaf_malloc_trim();
    for (size_t n : {33000, 65536, 131072, 200000, 262144}) {
        auto *p = static_cast<unsigned char *>(sheaf_malloc(n));
        REQUIRE(p);
        uint64_t slices = probe().large_slices, allocs = probe().large_allocs, frees = probe().large_frees;
        for (int i = 0; i < 100; i++) {
            std::memset(p, 0xff, n);
            sheaf_free(p);
            CHECK(probe().large_slices == 0);
            p = static_cast<unsigned char *>(sheaf_calloc(1, n));
            REQUIRE(p);
            for (size_t k = 0; k < n; k += 509)
                REQUIRE(p[k] == 0);
            REQUIRE(p[n - 1] == 0);
        }
        CHECK(probe().large_slices == slices);
        CHECK(probe().large_allocs == allocs + 100);
        CHECK(probe().large_frees == frees + 100);
        sheaf_free(p);
    }
    uint64_t allocs = probe().large_allocs, frees = probe().large_frees;
    sheaf_malloc_trim();
    CHECK(probe().warm_bytes == 0);
    CHECK(probe().large_allocs == allocs);
    CHECK(probe().large_frees == frees);
    CHECK(allocs == frees);
}

TEST_CASE("trim returns free memory and keeps the contents of blocks in use")
{
    auto *kept = static_cast<unsigned char *>(sheaf_malloc(1 << 20));
    std::memset(kept, 0x5a, 1 << 20);
    std::vector<void *> blocks;
    for (int i = 0; i < 3000; i++)
        blocks.push_back(std::memset(sheaf_malloc(5000), 1, 5000));
    for (void *p : blocks)
        sheaf_free(p);
    CHECK(sheaf_malloc_trim() == 1);
    CHECK(probe().warm_bytes == 0);
    for (size_t i = 0; i < 1 << 20; i += 511)
        REQUIRE(kept[i] == 0x5a);
    sheaf_free(kept);
    probe_check_all();
}
