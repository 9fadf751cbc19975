// How much free memory is kept: the bound at each free, what is learned and forgotten, and the helper thread's
// rounds.
#include "catch.hpp"
#include "probe.h"

#include <cstring>
#include <vector>

constexpr size_t mib = 1 << 20;

static std::vector<void *> burst(size_t bytes, size_t size)
{
    std::vector<void *> blocks(bytes / size);
    for (auto &block : blocks) {
        block = sheaf_malloc(size);
        REQUIRE(block);
        memset(block, 1, 16);
    }
    return blocks;
}

static void give(const std::vector<void *> &blocks)
{
    for (void *block : blocks)
        sheaf_free(block);
}

// The bound holds as soon as the last free returns, without a later call.
TEST_CASE("a burst of small blocks leaves little warm memory", "[keep]")
{
    for (size_t size : {200, 1000, 8000}) {
        probe_forget();
        give(burst(100 * mib, size));
        CHECK(probe().warm_slab_bytes <= 5 * mib); // more than 2 MiB, because no window is entirely free
    }
    sheaf_malloc_trim();
    CHECK(probe().warm_slab_bytes == 0);
}

TEST_CASE("a burst leaves at most a share of the live memory", "[keep]")
{
    probe_forget();
    auto live = burst(64 * mib, 1000);
    give(burst(100 * mib, 1000));
    CHECK(probe().warm_slab_bytes <= (2 + 64 * 9 / 8 / 16 + 2) * mib + mib);
    give(live);
    sheaf_malloc_trim();
}

// Repeats a burst until all of its memory stays warm. This takes a few rounds, or more if other load delays them.
static void learn_bursts()
{
    probe_forget();
    for (int i = 0; i < 1000 && probe().warm_slab_bytes < 38 * mib; i++)
        give(burst(40 * mib, 1000));
    REQUIRE(probe().warm_slab_bytes >= 38 * mib);
}

TEST_CASE("memory of repeated bursts stays warm", "[keep]")
{
    learn_bursts();
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100 && least; i++) {
        uint64_t before = probe().purged_bytes;
        give(burst(40 * mib, 1000));
        uint64_t purged = probe().purged_bytes - before;
        least = purged < least ? purged : least;
    }
    CHECK(least <= 4 * mib);
    sheaf_malloc_trim();
}

TEST_CASE("a large block that shrinks in place leaves little warm memory", "[keep]")
{
    probe_forget();
    void *block = sheaf_malloc(100 * mib);
    memset(block, 1, 100 * mib);
    block = sheaf_realloc(block, mib);
    CHECK(probe().warm_bytes <= 8 * mib);
    sheaf_free(block);
    sheaf_malloc_trim();
}

TEST_CASE("the helper thread's rounds return all free memory and end", "[keep]")
{
    learn_bursts();
    unsigned rounds = probe_helper_rounds(100);
    CHECK(rounds < 20);
    CHECK(probe().warm_bytes == 0);
    CHECK(probe_helper_rounds(100) < 10); // no memory is left to return
}

TEST_CASE("a free by the dynamic loader starts no helper thread", "[keep]")
{
    CHECK(probe_helper_spares_loader());
}
