// Simulated memory nodes: CPU n belongs to node n modulo their number, and memory is not bound to nodes, so that
// the test runs on any machine with two CPUs. tests/numa checks where memory really lies.
#include "../pin.h"
#include "probe.h"
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#else
#include "catch.hpp"
#endif

#include <atomic>
#include <csignal>

#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

// Runs `what` in a thread on a CPU. Returns false if there is no such CPU.
template <class F> bool on_cpu(unsigned cpu, F what)
{
    bool there = false;
    std::thread([&] {
        there = pin(cpu);
        if (there)
            what();
    }).join();
    return there;
}

struct Cache {
    struct kmem_cache *cache;
    explicit Cache(unsigned size, unsigned capacity = 0)
    {
        struct kmem_cache_args args = {};
        args.sheaf_capacity = capacity;
        cache = kmem_cache_create("nodes", size, &args, 0);
        REQUIRE(cache != nullptr);
    }
    ~Cache() { CHECK(kmem_cache_destroy(cache) == 0); }
};

std::vector<void *> take(struct kmem_cache *cache, size_t n)
{
    std::vector<void *> all;
    for (size_t i = 0; i < n; i++)
        all.push_back(kmem_cache_alloc(cache, 0));
    return all;
}

bool all_of_node(const std::vector<void *> &objects, unsigned node)
{
    for (void *p : objects)
        if (probe_node_of(p) != node)
            return false;
    return true;
}

} // namespace

TEST_CASE("a thread gets objects of its own node", "[node]")
{
    Cache c(64);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        std::vector<void *> objects;
        if (!on_cpu(cpu, [&] { objects = take(c.cache, 5000); }))
            continue;
        CHECK(objects.size() == 5000);
        CHECK(all_of_node(objects, cpu));
        on_cpu(cpu, [&] {
            for (void *p : objects)
                kmem_cache_free(c.cache, p);
        });
        probe_check_all();
    }
    CHECK(probe_node_counter(c.cache, PROBE_REMOTE_FREE) == 0);
}

// Allocates objects on node 0 and frees them on node 1. Returns false if the machine has only one CPU.
static bool hand_over(struct kmem_cache *cache, size_t n)
{
    std::vector<void *> objects;
    on_cpu(0, [&] { objects = take(cache, n); });
    bool two = on_cpu(1, [&] { kmem_cache_free_bulk(cache, objects.size(), objects.data()); });
    if (!two)
        kmem_cache_free_bulk(cache, objects.size(), objects.data());
    return two;
}

TEST_CASE("objects freed on another node return home in whole sheaves and are reused there", "[node]")
{
    const unsigned capacity = 29, n = 29 * 100;
    Cache c(128, capacity);
    if (!hand_over(c.cache, n))
        return;
    CHECK(probe_node_counter(c.cache, PROBE_REMOTE_FREE) == n);
    uint64_t home = probe_node_counter(c.cache, PROBE_OUTBOUND_BARN);
    CHECK(home > 0);
    CHECK(home + probe_node_counter(c.cache, PROBE_OUTBOUND_FLUSH) == n / capacity);
    probe_check_all();
    std::vector<void *> again;
    on_cpu(0, [&] { again = take(c.cache, n); });
    CHECK(all_of_node(again, 0));
    probe_check_all();
    kmem_cache_free_bulk(c.cache, again.size(), again.data());
}

TEST_CASE("an outbound sheaf that is not full returns home by age", "[node]")
{
    Cache c(64, 253);
    if (!hand_over(c.cache, 10))
        return;
    CHECK(probe_outbound(c.cache) == 10);
    CHECK(probe_node_counter(c.cache, PROBE_OUTBOUND_BARN) == 0);
    probe_check_all();
    probe_decay();
    CHECK(probe_outbound(c.cache) == 0);
    CHECK(probe_node_counter(c.cache, PROBE_OUTBOUND_BARN) == 1);
    probe_check_all();
}

TEST_CASE("a double free of an object in an outbound sheaf is found", "[node]")
{
    Cache c(64, 253);
    std::vector<void *> objects;
    on_cpu(0, [&] { objects = take(c.cache, 1); });
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // Catch2's handler would report it as a failure
        close(2);
        kmem_cache_free(c.cache, objects[0]);
        kmem_cache_free(c.cache, objects[0]);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status)); // in an outbound sheaf or in the main one, depending on this thread's CPU
    kmem_cache_free(c.cache, objects[0]);
}

TEST_CASE("kmem_cache_alloc_node returns objects of the requested node", "[node]")
{
    Cache c(256, 29);
    std::vector<void *> mine, other;
    on_cpu(0, [&] {
        for (int i = 0; i < 500; i++) {
            mine.push_back(kmem_cache_alloc_node(c.cache, 0, 0));
            other.push_back(kmem_cache_alloc_node(c.cache, __GFP_THISNODE | __GFP_ZERO, 1));
        }
        mine.push_back(kmem_cache_alloc_node(c.cache, 0, NUMA_NO_NODE));
        mine.push_back(kmem_cache_alloc_node(c.cache, 0, 99)); // an unknown node is ignored
    });
    CHECK(all_of_node(mine, 0));
    CHECK(all_of_node(other, 1));
    CHECK(probe_node_counter(c.cache, PROBE_ALLOC_NODE) == 500);
    for (unsigned char *p : {static_cast<unsigned char *>(other[0]), static_cast<unsigned char *>(other[499])})
        CHECK((p[0] | p[255]) == 0);
    probe_check_all();
    kmem_cache_free_bulk(c.cache, mine.size(), mine.data());
    kmem_cache_free_bulk(nullptr, other.size(), other.data());
    probe_check_all();
}

TEST_CASE("a prefilled sheaf holds objects of its node even if it is refilled on another one", "[node]")
{
    Cache c(64, 29);
    struct slab_sheaf *sheaf = nullptr;
    std::vector<void *> objects;
    on_cpu(0, [&] { sheaf = kmem_cache_prefill_sheaf(c.cache, 0, 20); });
    REQUIRE(sheaf != nullptr);
    on_cpu(1, [&] {
        for (int i = 0; i < 15; i++)
            objects.push_back(kmem_cache_alloc_from_sheaf(c.cache, 0, sheaf));
        CHECK(kmem_cache_refill_sheaf(c.cache, 0, &sheaf, 40) == 0);
        CHECK(kmem_cache_sheaf_size(sheaf) >= 40);
    });
    CHECK(all_of_node(objects, 0));
    probe_check_all();
    on_cpu(1, [&] { kmem_cache_return_sheaf(c.cache, 0, sheaf); });
    kmem_cache_free_bulk(c.cache, objects.size(), objects.data());
    probe_check_all();
}

TEST_CASE("caches with and without siblings can be created until numbers run out", "[node]")
{
    std::vector<struct kmem_cache *> caches;
    while (struct kmem_cache *cache = kmem_cache_create("many", 32, nullptr, 0)) {
        void *p = kmem_cache_alloc(cache, 0);
        REQUIRE(p != nullptr);
        kmem_cache_free(cache, p);
        caches.push_back(cache);
    }
    CHECK(caches.size() > 900);
    probe_check_all();
    for (struct kmem_cache *cache : caches)
        CHECK(kmem_cache_destroy(cache) == 0);
}

TEST_CASE("exchanges between nodes during decay and forks lose no object", "[node]")
{
    Cache c(96);
    std::atomic<void *> box[64] = {};
    std::atomic<bool> stop{false};
    auto work = [&](unsigned cpu) {
        pin(cpu);
        for (unsigned i = 0; !stop; i = i * 1664525 + 1013904223) {
            void *p = kmem_cache_alloc(c.cache, 0);
            void *old = box[(i >> 16) % 64].exchange(p);
            if (old)
                kmem_cache_free(c.cache, old);
        }
    };
    std::thread one(work, 0), two(work, 1);
    for (int i = 0; i < 30; i++) {
        probe_decay();
        pid_t child = fork();
        if (child == 0) {
            void *p = kmem_cache_alloc(c.cache, 0);
            kmem_cache_free(c.cache, p);
            probe_decay();
            _exit(p ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    stop = true;
    one.join();
    two.join();
    probe_check_all();
    for (auto &p : box)
        kmem_cache_free(c.cache, p.load());
    probe_check_all();
}
