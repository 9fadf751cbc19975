// Free objects in sheaves and barns pin only a limited amount of memory in slabs, and free pages inside slabs are
// returned. Nothing here depends on time: frees keep the bounds.
#include "catch.hpp"
#include "probe.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>
#include <unistd.h>

constexpr size_t mib = 1 << 20;

// Allocates 120 MiB in blocks of 64 to 1563 bytes.
static std::vector<void *> burst()
{
    std::mt19937 random(1);
    std::vector<void *> blocks(150000);
    for (auto &block : blocks) {
        block = sheaf_malloc(64 + random() % 1500);
        REQUIRE(block);
    }
    return blocks;
}

static void check_burst(std::vector<void *> &blocks)
{
    uint64_t peak = probe().slab_bytes;
    REQUIRE(peak >= 110 * mib);
    probe_forget_learned();
    for (void *block : blocks)
        sheaf_free(block);
    CHECK(probe().slab_bytes <= 10 * mib);
    CHECK(probe().warm_slab_bytes <= 6 * mib);
    CHECK(probe().barn_bytes <= 6 * mib);
    probe_check_all();
    sheaf_malloc_trim();
}

TEST_CASE("a burst freed in order leaves little memory in slabs", "[sheaves]")
{
    sheaf_malloc_trim();
    auto blocks = burst();
    check_burst(blocks);
}

TEST_CASE("a burst freed in reverse order leaves little memory in slabs", "[sheaves]")
{
    sheaf_malloc_trim();
    auto blocks = burst();
    std::reverse(blocks.begin(), blocks.end());
    check_burst(blocks);
}

TEST_CASE("a burst freed in random order leaves little memory in slabs", "[sheaves]")
{
    sheaf_malloc_trim();
    auto blocks = burst();
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
    check_burst(blocks);
}

TEST_CASE("a burst that ends during a step of decay is noticed after it", "[sheaves]")
{
    sheaf_malloc_trim();
    auto blocks = burst();
    uint64_t peak = probe().slab_bytes;
    probe_forget_learned();
    probe_hold_remote_drains();
    while (probe().slab_bytes > peak * 15 / 32) { // less than half, and more than an eighth less than that
        sheaf_free(blocks.back());
        blocks.pop_back();
    }
    probe_allow_remote_drains();
    uint64_t before = probe().remote_drains;
    while (probe().remote_drains == before && probe().slab_bytes > peak * 29 / 64) {
        sheaf_free(blocks.back());
        blocks.pop_back();
    }
    CHECK(probe().remote_drains > before);
    for (void *block : blocks)
        sheaf_free(block);
    sheaf_malloc_trim();
}

TEST_CASE("a burst that recurs keeps its sheaves", "[sheaves]")
{
    sheaf_malloc_trim();
    auto blocks = burst();
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
    probe_forget_learned();
    uint64_t before = probe().remote_drains;
    for (void *block : blocks)
        sheaf_free(block);
    CHECK(probe().remote_drains > before);
    blocks = burst();
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
    before = probe().remote_drains;
    probe_learn_to_keep();
    for (void *block : blocks)
        sheaf_free(block);
    CHECK(probe().remote_drains == before);
    probe_forget_learned();
    sheaf_malloc_trim();
}

TEST_CASE("all barns together hold little more than the limit of one barn", "[sheaves]")
{
    sheaf_malloc_trim();
    for (size_t size = 512; size <= 1024; size += 64)
        for (int round = 0; round < 4; round++) { // lets the barns' limits grow
            std::vector<void *> blocks(4000);
            for (auto &block : blocks)
                block = sheaf_malloc(size);
            for (void *block : blocks)
                sheaf_free(block);
        }
    CHECK(probe().barn_bytes <= 6 * mib);
    sheaf_malloc_trim();
}

TEST_CASE("a decay step frees a cache's empty slab", "[sheaves]")
{
    kmem_cache *cache = kmem_cache_create("empty-slab", 200, nullptr, 0);
    kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
    probe_remote_drain(cache); // empties the sheaves; one empty slab is kept
    REQUIRE(probe_slabs(cache) == 1);
    probe_decay();
    CHECK(probe_slabs(cache) == 0);
    kmem_cache_destroy(cache);
}

// Allocates and writes 24 MiB of objects and frees all but every 20th.
struct thinned {
    kmem_cache *cache;
    size_t size;
    std::vector<unsigned char *> objects;

    thinned(const char *name, size_t bytes, void (*ctor)(void *)) : size(bytes)
    {
        kmem_cache_args args = {};
        args.ctor = ctor;
        cache = kmem_cache_create(name, static_cast<unsigned>(bytes), &args, 0);
        std::vector<unsigned char *> all(24 * mib / bytes);
        for (size_t i = 0; i < all.size(); i++) {
            all[i] = static_cast<unsigned char *>(kmem_cache_alloc(cache, GFP_KERNEL));
            memset(all[i], static_cast<int>(i % 251), bytes);
        }
        for (size_t i = 0; i < all.size(); i++)
            if (i % 20 == 0)
                objects.push_back(all[i]);
            else
                kmem_cache_free(cache, all[i]);
    }

    bool intact() const
    {
        for (size_t k = 0; k < objects.size(); k++)
            if (!std::all_of(objects[k], objects[k] + size, [&](unsigned char c) { return c == k * 20 % 251; }))
                return false;
        return true;
    }

    void end()
    {
        for (void *object : objects)
            kmem_cache_free(cache, object);
        probe_check(cache);
        CHECK(kmem_cache_destroy(cache) == 0);
    }
};

// The objects that stay in use are so far apart that pages of 4 KiB between them are free; of 16 KiB nearly none is.
static bool slabs_have_pages()
{
    return sysconf(_SC_PAGESIZE) == 4096;
}

TEST_CASE("free pages inside slabs of sparse caches are returned", "[sheaves]")
{
    if (!slabs_have_pages()) {
        WARN("pages are too large for the load");
        return;
    }
    for (size_t size : {1000, 3000, 10000}) {
        sheaf_malloc_trim();
        thinned load("thinned", size, nullptr);
        REQUIRE(probe().slab_bytes >= 16 * mib);
        uint64_t before = probe().hole_bytes;
        probe_decay_sparse(false);
        CHECK(probe().hole_bytes == before);
        probe_decay_sparse(true);
        uint64_t gone = probe().hole_bytes - before;
        CHECK(gone >= 8 * mib);
        probe_decay_sparse(true); // finds no further pages
        CHECK(probe().hole_bytes - before == gone);
        CHECK(load.intact());
        probe_check(load.cache);
        // New objects, some of which lie in these slabs, do not overlap the live ones.
        std::vector<void *> more(20 * mib / size);
        for (auto &object : more)
            memset(object = kmem_cache_alloc(load.cache, GFP_KERNEL), 0xee, size);
        CHECK(load.intact());
        for (void *object : more)
            kmem_cache_free(load.cache, object);
        load.end();
    }
}

TEST_CASE("no more holes are made in a cache that soon uses its holes again", "[sheaves]")
{
    if (!slabs_have_pages()) {
        WARN("pages are too large for the load");
        return;
    }
    sheaf_malloc_trim();
    thinned load("wanted-again", 3000, nullptr);
    uint64_t gone[16];
    for (auto &now : gone) {
        uint64_t before = probe().hole_bytes;
        probe_decay_sparse(true);
        now = probe().hole_bytes - before;
        std::vector<void *> more(22 * mib / 3000);
        for (auto &object : more)
            object = kmem_cache_alloc(load.cache, GFP_KERNEL);
        for (void *object : more)
            kmem_cache_free(load.cache, object);
    }
    CHECK(gone[0] > 0);
    CHECK(std::count(gone, gone + 16, 0u) >= 12);
    load.end();
}

// With large objects, a few objects in a sheaf can pin a whole slab of up to 256 KiB.
TEST_CASE("a burst of all sizes leaves few pages in slabs", "[sheaves]")
{
    sheaf_malloc_trim();
    std::vector<void *> blocks;
    uint64_t before = probe().hole_bytes;
    for (int round = 0; round < 150; round++)
        for (size_t size = 1024; size <= 32768; size += 512) {
            blocks.push_back(sheaf_malloc(size));
            REQUIRE(blocks.back());
            memset(blocks.back(), 1, size);
        }
    REQUIRE(probe().slab_bytes >= 130 * mib);
    probe_forget_learned();
    for (void *block : blocks)
        sheaf_free(block);
    CHECK(probe().slab_bytes <= 19 * mib);
    CHECK(probe().hole_bytes - before >= mib / 8);
    probe_check_all();
    sheaf_malloc_trim();
}

static unsigned constructed;

static void construct(void *object)
{
    memset(object, 0x5a, 3000);
    constructed++;
}

TEST_CASE("no holes are made in caches with a constructor", "[sheaves]")
{
    sheaf_malloc_trim();
    thinned load("constructed", 3000, construct);
    uint64_t before = probe().hole_bytes;
    probe_decay_sparse(true);
    probe_decay_sparse(true);
    CHECK(probe().hole_bytes == before);
    load.end();
}
