// What stays of free memory: the bound at a free, what is learned and forgotten, and the rounds of the helper thread.
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

// No call follows, and no time passes: both kinds of a burst are bounded when its last free returns.
TEST_CASE("a burst of small blocks leaves little", "[keep]")
{
    for (size_t size : {200, 1000, 8000}) {
        probe_forget();
        give(burst(100 * mib, size));
        CHECK(probe_warm_slab_bytes() <= 5 * mib); // a window more than 2, where no window is whole
    }
    sheaf_malloc_trim();
    CHECK(probe_warm_slab_bytes() == 0);
}

TEST_CASE("a burst over live memory leaves a share of it", "[keep]")
{
    probe_forget();
    auto live = burst(64 * mib, 1000);
    give(burst(100 * mib, 1000));
    CHECK(probe_warm_slab_bytes() <= (2 + 64 * 9 / 8 / 16 + 2) * mib + mib);
    give(live);
    sheaf_malloc_trim();
}

// Until all of it stays; it takes few rounds, more where this process has to wait for half a second in between.
static void learn_bursts()
{
    probe_forget();
    for (int i = 0; i < 1000 && probe_warm_slab_bytes() < 38 * mib; i++)
        give(burst(40 * mib, 1000));
    REQUIRE(probe_warm_slab_bytes() >= 38 * mib);
}

TEST_CASE("bursts in turn are learned and stay", "[keep]")
{
    learn_bursts();
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100 && least; i++) {
        uint64_t before = probe_purged_bytes();
        give(burst(40 * mib, 1000));
        uint64_t purged = probe_purged_bytes() - before;
        least = purged < least ? purged : least;
    }
    CHECK(least <= 4 * mib);
    sheaf_malloc_trim();
}

TEST_CASE("a large block that shrinks in place leaves little", "[keep]")
{
    probe_forget();
    void *block = sheaf_malloc(100 * mib);
    memset(block, 1, 100 * mib);
    block = sheaf_realloc(block, mib);
    CHECK(probe_warm_bytes() <= 8 * mib);
    sheaf_free(block);
    sheaf_malloc_trim();
}

TEST_CASE("rounds of the helper thread give all of it back, and end", "[keep]")
{
    learn_bursts();
    unsigned rounds = probe_helper_rounds(100);
    CHECK(rounds < 20);
    CHECK(probe_warm_bytes() == 0);
    CHECK(probe_helper_rounds(100) < 10); // nothing is left
}

TEST_CASE("a free by the dynamic loader starts no helper thread", "[keep]")
{
    CHECK(probe_helper_spares_loader());
}
