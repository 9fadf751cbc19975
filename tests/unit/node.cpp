// Memory nodes, pretended: CPU n is of node n modulo their number, and memory is not placed. So the test says what is
// true on any machine of two CPUs; where memory really lies is asked in tests/numa.
#include "probe.h"
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#else
#include "catch.hpp"
#endif

#include <atomic>
#include <csignal>
#include <sched.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

bool run_on(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

// All of `what` on that CPU; false: there is none.
template <class F> bool on_cpu(unsigned cpu, F what)
{
    bool there = false;
    std::thread([&] {
        there = run_on(cpu);
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

// Objects of node 0 that node 1 has freed; false: the machine has one CPU.
static bool hand_over(struct kmem_cache *cache, size_t n)
{
    std::vector<void *> objects;
    on_cpu(0, [&] { objects = take(cache, n); });
    bool two = on_cpu(1, [&] { kmem_cache_free_bulk(cache, objects.size(), objects.data()); });
    if (!two)
        kmem_cache_free_bulk(cache, objects.size(), objects.data());
    return two;
}

TEST_CASE("what is freed on another node comes home in whole sheaves and is used there again", "[node]")
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

TEST_CASE("an outbound sheaf that does not fill goes home by age", "[node]")
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

TEST_CASE("a freed outbound object that is freed again is not lost sight of", "[node]")
{
    Cache c(64, 253);
    std::vector<void *> objects;
    on_cpu(0, [&] { objects = take(c.cache, 1); });
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // Catch2's would tell
        close(2);
        kmem_cache_free(c.cache, objects[0]);
        kmem_cache_free(c.cache, objects[0]);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status)); // in an outbound sheaf or a main one, as this thread's CPU will have it
    kmem_cache_free(c.cache, objects[0]);
}

TEST_CASE("a node can be asked for", "[node]")
{
    Cache c(256, 29);
    std::vector<void *> mine, other;
    on_cpu(0, [&] {
        for (int i = 0; i < 500; i++) {
            mine.push_back(kmem_cache_alloc_node(c.cache, 0, 0));
            other.push_back(kmem_cache_alloc_node(c.cache, __GFP_THISNODE | __GFP_ZERO, 1));
        }
        mine.push_back(kmem_cache_alloc_node(c.cache, 0, NUMA_NO_NODE));
        mine.push_back(kmem_cache_alloc_node(c.cache, 0, 99)); // there is none: as without
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

TEST_CASE("a prefilled sheaf keeps its node wherever it is used", "[node]")
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

TEST_CASE("caches are made and destroyed past the numbers that have siblings", "[node]")
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

TEST_CASE("hand-over between nodes under decay and forks loses nothing", "[node]")
{
    Cache c(96);
    std::atomic<void *> box[64] = {};
    std::atomic<bool> stop{false};
    auto work = [&](unsigned cpu) {
        run_on(cpu);
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
