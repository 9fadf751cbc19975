// How much free memory is kept: the bound at each free, what is learned and forgotten, and the helper thread's
// rounds.
#include "catch.hpp"
#include "probe.h"

#include <cstring>
#include <memory>
#include <vector>

constexpr size_t mib = 1 << 20;
constexpr uint32_t units_of_mib = 16;
constexpr uint64_t least = 2; // MiB

// One account by itself; the test sets the time.
struct account {
    std::unique_ptr<keep, void (*)(keep *)> account_of;
    uint32_t now = 1000000, given = 0;

    explicit account(uint32_t share = 8) : account_of(probe_keep_new(64 * units_of_mib, share), probe_keep_delete) {}

    uint64_t limit(uint32_t in_use = 0) const { return probe_keep_limit(account_of.get(), in_use) / units_of_mib; }

    // A load allocates `most` units and frees them. Those above the limit are returned and needed again `pause` ms
    // later.
    void swing(uint32_t most, uint32_t pause)
    {
        probe_keep_age(account_of.get(), most, 0, now);
        probe_keep_warm(account_of.get(), 0);
        uint32_t stays = uint32_t(probe_keep_limit(account_of.get(), 0));
        stays = stays < most ? stays : most;
        probe_keep_warm(account_of.get(), stays);
        probe_keep_age(account_of.get(), 0, stays, now);
        if (most > stays)
            probe_keep_gave_back(account_of.get(), most - stays, now);
        given += most - stays;
        now += pause;
        for (uint32_t missed = stays; missed < most; missed += units_of_mib)
            probe_keep_missed(account_of.get(), units_of_mib, now);
    }
};

TEST_CASE("at first 2 MiB and a share of the memory in use are kept", "[keep]")
{
    account a;
    CHECK(a.limit() == least);
    CHECK(a.limit(160 * units_of_mib) == least + 10);
    CHECK(probe_keep_fallen(a.account_of.get(), 160 * units_of_mib) == least * units_of_mib + 40); // after a burst
}

TEST_CASE("a swing that recurs within half a second is learned", "[keep]")
{
    for (uint32_t pause : {20u, 200u, 450u}) {
        account a;
        a.swing(100 * units_of_mib, pause);
        a.swing(100 * units_of_mib, pause);
        CHECK(a.limit() >= 100);
    }
    account rare;
    for (int i = 0; i < 5; i++)
        rare.swing(100 * units_of_mib, 2000);
    CHECK(rare.limit() == least);
}

TEST_CASE("a few misses do not raise the limit", "[keep]")
{
    account a;
    for (int i = 0; i < 100; i++) { // 1 MiB each 64 ms
        probe_keep_gave_back(a.account_of.get(), units_of_mib, a.now);
        a.now += 64;
        probe_keep_missed(a.account_of.get(), units_of_mib, a.now);
    }
    CHECK(a.limit() == least);
}

TEST_CASE("large blocks keep a smaller share of the peak", "[keep]")
{
    account a(3);
    for (int i = 0; i < 5; i++)
        a.swing(400 * units_of_mib, 20);
    CHECK(a.limit() <= 64 + 400 * 3 / 8);
    CHECK(a.limit() > 64 + 100);
}

TEST_CASE("a limit that is used is not forgotten", "[keep]")
{
    account a;
    for (int i = 0; i < 10; i++)
        a.swing(100 * units_of_mib, 200);
    a.given = 0;
    for (int i = 0; i < 50; i++)
        a.swing(100 * units_of_mib, 200);
    CHECK(a.given == 0);
}

TEST_CASE("the peak covers the last half second", "[keep]")
{
    account a;
    for (int i = 0; i < 5; i++)
        a.swing(100 * units_of_mib, 20);
    for (int i = 0; i < 2; i++) {
        a.now += 300;
        probe_keep_age(a.account_of.get(), 2 * units_of_mib, 0, a.now);
    }
    CHECK(a.limit() >= 64);
    CHECK(a.limit() <= 66);
}

TEST_CASE("a limit and a peak that are no longer used are forgotten", "[keep]")
{
    account a;
    for (int i = 0; i < 5; i++)
        a.swing(100 * units_of_mib, 20);
    REQUIRE(a.limit() >= 100);
    for (int i = 0; i < 4; i++) { // no more misses
        a.swing(2 * units_of_mib, 500);
    }
    CHECK(a.limit() <= 70); // of 164
    for (int i = 0; i < 40; i++)
        a.swing(2 * units_of_mib, 500);
    CHECK(a.limit() <= 5);
}

TEST_CASE("after a long pause the limit is forgotten at once", "[keep]")
{
    account a;
    for (int i = 0; i < 5; i++)
        a.swing(100 * units_of_mib, 20);
    a.now += 60000;
    probe_keep_age(a.account_of.get(), 0, 0, a.now);
    CHECK(a.limit() == least);
}

// ---- in the region ----

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
        CHECK(probe_warm_slab_bytes() <= 5 * mib); // more than 2 MiB, because no window is entirely free
    }
    sheaf_malloc_trim();
    CHECK(probe_warm_slab_bytes() == 0);
}

TEST_CASE("memory is returned in whole windows while there are any", "[keep]")
{
    probe_forget();
    probe_cheap_windows();
    auto blocks = burst(100 * mib, 8000);
    uint64_t before = probe_purged_bytes();
    unsigned broken = probe_broken_windows();
    give(blocks);
    CHECK(probe_purged_bytes() - before > 80 * mib);
    CHECK(probe_broken_windows() - broken <= 4); // the last frees may break a few, as no whole window is free
}

TEST_CASE("a burst leaves at most a share of the live memory", "[keep]")
{
    probe_forget();
    auto live = burst(64 * mib, 1000);
    give(burst(100 * mib, 1000));
    CHECK(probe_warm_slab_bytes() <= (2 + 64 * 9 / 8 / 16 + 2) * mib + mib);
    give(live);
    sheaf_malloc_trim();
}

// Repeats a burst until all of its memory stays warm. This takes a few rounds, or more if other load delays them.
static void learn_bursts()
{
    probe_forget();
    for (int i = 0; i < 1000 && probe_warm_slab_bytes() < 38 * mib; i++)
        give(burst(40 * mib, 1000));
    REQUIRE(probe_warm_slab_bytes() >= 38 * mib);
}

TEST_CASE("memory of repeated bursts stays warm", "[keep]")
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

TEST_CASE("a large block that shrinks in place leaves little warm memory", "[keep]")
{
    probe_forget();
    void *block = sheaf_malloc(100 * mib);
    memset(block, 1, 100 * mib);
    block = sheaf_realloc(block, mib);
    CHECK(probe_warm_bytes() <= 8 * mib);
    sheaf_free(block);
    sheaf_malloc_trim();
}

TEST_CASE("the helper thread's rounds return all free memory and end", "[keep]")
{
    learn_bursts();
    unsigned rounds = probe_helper_rounds(100);
    CHECK(rounds < 20);
    CHECK(probe_warm_bytes() == 0);
    CHECK(probe_helper_rounds(100) < 10); // no memory is left to return
}

TEST_CASE("a free by the dynamic loader starts no helper thread", "[keep]")
{
    CHECK(probe_helper_spares_loader());
}
