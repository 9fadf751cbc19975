// Prefilled sheaves.
#include "starved.hpp"
#include "remote.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

TEST_CASE("a prefilled sheaf yields at least the requested number of distinct objects", "[prefill]")
{
    for (unsigned capacity : {0u, 1u, 32u, 509u})
        for (unsigned n : {1u, 5u, 13u, 14u, 100u, 253u, 254u, 509u, 510u, 1500u}) {
            Cache c(64, capacity);
            slab_sheaf *sheaf = c.prefill(n);
            unsigned held = kmem_cache_sheaf_size(sheaf);
            CHECK(c.census().in_prefilled == held);
            CHECK(c.census().in_use == 0);
            probe_check(c.cache);
            std::set<void *> seen;
            for (unsigned i = 0; i < held; i++) {
                void *object = c.from(sheaf);
                REQUIRE(object != nullptr);
                std::memset(object, 0xa5, 64);
                seen.insert(object);
                REQUIRE(kmem_cache_sheaf_size(sheaf) == held - i - 1);
            }
            CHECK(seen.size() == held);
            errno = 0;
            CHECK(c.from(sheaf) == nullptr);
            CHECK(errno == ENOMEM);
            CHECK(c.census().in_use == held);
            CHECK(c.census().in_prefilled == 0);
            probe_check(c.cache);
            for (void *object : seen)
                c.free(object);
            c.give_back(sheaf);
            CHECK(c.census().in_use == 0);
        }
}

TEST_CASE("returned sheaves serve the next prefill without access to slabs", "[prefill][sheaves]")
{
    Cache c(128, 32);
    c.give_back(c.prefill(20));
    uint64_t refilled = c.census().refilled;
    for (int i = 0; i < 1000; i++) {
        slab_sheaf *sheaf = c.prefill(20);
        c.free(c.from(sheaf));
        c.give_back(sheaf);
    }
    probe_census census = c.census();
    // Each round moves an object from the sheaf to the main sheaf, so the spare must be filled up from time to
    // time.
    CHECK(census.prefill_fast + census.prefill_slow == 1001);
    CHECK(census.prefill_fast > 850);
    CHECK(census.return_fast + census.return_slow == 1001);
    CHECK(census.return_fast > 850);
    CHECK(census.refilled - refilled < 1000);
    CHECK(census.prefill_oversize == 0);
}

TEST_CASE("a slot's sheaves grow to the size of prefills, up to the cache's capacity", "[prefill][sheaves]")
{
    Cache c(64);
    int64_t budget = probe().budget_used;
    for (int i = 0; i < 10; i++)
        c.give_back(c.prefill(200));
    CHECK(c.census().prefill_fast >= 7); // a migration may make one or two of them slow
    CHECK(probe().budget_used >= budget + 2 * 253 * 64);
    kmem_cache_shrink(c.cache);
    CHECK(probe().budget_used == budget);
    CHECK(c.census().prefill_oversize == 0);
    c.give_back(c.prefill(254));
    CHECK(c.census().prefill_oversize == 1);
}

TEST_CASE("oversize sheaves are flushed to slabs when they are returned", "[prefill]")
{
    Cache c(64, 32);
    slab_sheaf *sheaf = c.prefill(2000);
    CHECK(kmem_cache_sheaf_size(sheaf) == 2000);
    CHECK(c.census().prefill_oversize == 1);
    c.give_back(sheaf);
    CHECK(c.census().return_slow == 1);
    CHECK(c.census().in_sheaves == 0);
    CHECK(c.census().in_barns == 0);
    CHECK(c.census().out == 0);
}

TEST_CASE("a cache without sheaves can prefill", "[prefill]")
{
    Cache c(64);
    probe_set_capacity(c.cache, 0);
    for (unsigned n : {1u, 13u, 600u}) {
        slab_sheaf *sheaf = c.prefill(n);
        CHECK(kmem_cache_sheaf_size(sheaf) == n);
        void *object = c.from(sheaf);
        c.give_back(sheaf);
        CHECK(c.census().out == 1);
        c.free(object);
        CHECK(c.census().out == 0);
    }
    CHECK(c.census().prefill_oversize == 3);
}

TEST_CASE("refill can exceed the prefilled number and the capacity", "[prefill]")
{
    for (unsigned capacity : {0u, 32u}) {
        Cache c(64, capacity);
        slab_sheaf *sheaf = c.prefill(10);
        std::vector<void *> taken;
        for (unsigned n : {5u, 10u, 30u, 31u, 200u, 600u, 1200u, 20u, 1800u}) {
            unsigned had = kmem_cache_sheaf_size(sheaf);
            REQUIRE(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &sheaf, n) == 0);
            CHECK(kmem_cache_sheaf_size(sheaf) >= n);
            if (n <= had)
                CHECK(kmem_cache_sheaf_size(sheaf) == had);
            CHECK(c.census().in_prefilled == kmem_cache_sheaf_size(sheaf));
            probe_check(c.cache);
            for (unsigned i = 0; i < n / 2; i++) {
                taken.push_back(c.from(sheaf));
                REQUIRE(taken.back() != nullptr);
            }
        }
        CHECK(std::set<void *>(taken.begin(), taken.end()).size() == taken.size());
        CHECK(c.census().in_use == taken.size());
        c.give_back(sheaf);
        c.free_all(taken);
    }
}

TEST_CASE("many small refills of one sheaf need no further memory for sheaves", "[prefill]")
{
    Cache c(64, 32);
    slab_sheaf *sheaf = c.prefill(32);
    uint64_t cut = 0;
    for (int i = 0; i < 5000; i++) {
        c.free(c.from(sheaf));
        REQUIRE(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &sheaf, 32) == 0);
        REQUIRE(kmem_cache_sheaf_size(sheaf) == 32);
        if (i == 100)
            cut = probe().sheaf_bytes;
    }
    CHECK(probe().sheaf_bytes == cut);
    c.give_back(sheaf);
}

TEST_CASE("prefill yields at least the requested number of objects or takes none", "[prefill]")
{
    for (unsigned capacity : {0u, 32u}) {
        Cache c(64, capacity);
        Hog hog(2);
        unsigned most = 2 * probe_slab_objects(c.cache);
        auto all = exhaust(c.cache);
        CHECK(all.size() == most);
        for (unsigned n : {1u, 10u, 1000u}) {
            errno = 0;
            CHECK(kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, n) == nullptr);
            CHECK(errno == ENOMEM);
            CHECK(c.census().in_use == most);
        }
        // Free objects are found wherever they are, and no more can be prefilled than are free.
        for (unsigned n : {1u, 7u, 32u, 33u, 520u}) {
            for (unsigned i = 0; i < n; i++)
                c.free(all[i]);
            CHECK(kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, n + 1) == nullptr);
            CHECK(c.census().in_prefilled == 0);
            CHECK(c.census().in_use == most - n);
            probe_check(c.cache);
            slab_sheaf *sheaf = c.prefill(n);
            CHECK(kmem_cache_sheaf_size(sheaf) == n);
            CHECK(c.alloc() == nullptr);
            for (unsigned i = 0; i < n; i++)
                all[i] = c.from(sheaf);
            c.give_back(sheaf);
        }
        c.free_all(all);
    }
}

TEST_CASE("a refill that fails leaves the sheaf unchanged", "[prefill]")
{
    Cache c(64, 32);
    Hog hog(2);
    unsigned most = 2 * probe_slab_objects(c.cache);
    slab_sheaf *sheaf = c.prefill(20);
    slab_sheaf *big = c.prefill(700);
    unsigned held = kmem_cache_sheaf_size(sheaf);
    auto all = exhaust(c.cache);
    for (int i = 0; i < 5; i++) {
        c.free(all.back());
        all.pop_back();
    }
    for (unsigned n : {held + 6, 40u, 500u, 5000u, ~0u}) {
        slab_sheaf *before = sheaf;
        CHECK(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &sheaf, n) == -ENOMEM);
        CHECK(sheaf == before);
        CHECK(kmem_cache_sheaf_size(sheaf) == held);
        CHECK(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &big, n + 700 < n ? n : n + 700) == -ENOMEM);
        CHECK(kmem_cache_sheaf_size(big) == 700);
        probe_check(c.cache);
    }
    CHECK(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &sheaf, held + 5) == 0);
    std::set<void *> seen(all.begin(), all.end());
    while (void *object = c.from(sheaf))
        seen.insert(object);
    while (void *object = c.from(big))
        seen.insert(object);
    CHECK(seen.size() == most);
    c.give_back(sheaf);
    c.give_back(big);
    for (void *object : seen)
        c.free(object);
}

TEST_CASE("prefill checks its arguments, and prefilled objects can be zeroed", "[prefill]")
{
    Cache c(200);
    errno = 0;
    CHECK(kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, 0) == nullptr);
    CHECK(errno == EINVAL);
    errno = 0;
    CHECK(kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, ~0u) == nullptr);
    CHECK(errno == ENOMEM);
    kmem_cache_return_sheaf(c.cache, GFP_KERNEL, nullptr);
    slab_sheaf *sheaf = c.prefill(50);
    std::vector<void *> objects;
    for (int i = 0; i < 50; i++) {
        objects.push_back(c.from(sheaf));
        std::memset(objects.back(), 0xff, 200);
    }
    c.give_back(sheaf);
    c.free_all(objects);
    sheaf = c.prefill(50);
    static const char zeros[200] = {};
    for (int i = 0; i < 50; i++) {
        objects[static_cast<size_t>(i)] = c.from(sheaf, __GFP_ZERO);
        CHECK(std::memcmp(objects[static_cast<size_t>(i)], zeros, 200) == 0);
    }
    c.give_back(sheaf);
    c.free_all(objects);
}

TEST_CASE("destroy fails while a prefilled sheaf is not returned", "[prefill]")
{
    kmem_cache *cache = kmem_cache_create("lent", 64, nullptr, 0);
    slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 3);
    CHECK(kmem_cache_destroy(cache) == -EBUSY);
    void *object = kmem_cache_alloc_from_sheaf(cache, 0, sheaf);
    REQUIRE(object != nullptr);
    kmem_cache_free(cache, object);
    kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
    CHECK(kmem_cache_destroy(cache) == 0);
}

TEST_CASE("misuse of a prefilled sheaf ends the process", "[prefill]")
{
    for (int kind = 0; kind < 3; kind++) {
        Cache c(64), other(64);
        slab_sheaf *sheaf = c.prefill(4);
        pid_t pid = fork();
        if (pid == 0) {
            close(2);
            std::signal(SIGABRT, SIG_DFL);
            if (kind != 1)
                c.give_back(sheaf);
            if (kind == 0)
                c.give_back(sheaf);
            if (kind == 1)
                other.give_back(sheaf);
            if (kind == 2)
                c.from(sheaf);
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGABRT);
        c.give_back(sheaf);
    }
}

TEST_CASE("after a fork, parent and child can both use the sheaf", "[prefill]")
{
    Cache c(64, 32);
    slab_sheaf *sheaf = c.prefill(600);
    void *mine = c.from(sheaf);
    pid_t pid = fork();
    if (pid == 0) {
        bool good = kmem_cache_sheaf_size(sheaf) == 599;
        for (int i = 0; i < 599; i++)
            if (void *object = c.from(sheaf))
                std::memset(object, 1, 64);
            else
                good = false;
        kmem_cache_free(c.cache, mine);
        c.give_back(sheaf);
        probe_check(c.cache);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
    CHECK(kmem_cache_sheaf_size(sheaf) == 599);
    c.give_back(sheaf);
    c.free(mine);
}

namespace
{
kmem_cache *in_handler;
std::atomic<int> handled, refused;

void prefill_in_handler(int)
{
    int saved = errno;
    slab_sheaf *sheaf = kmem_cache_prefill_sheaf(in_handler, GFP_NOWAIT, 20);
    if (sheaf) {
        for (int i = 0; i < 20; i++) {
            void *object = kmem_cache_alloc_from_sheaf(in_handler, 0, sheaf);
            if (!object)
                std::abort();
            *static_cast<void **>(object) = object;
            kmem_cache_free(in_handler, object);
        }
        kmem_cache_return_sheaf(in_handler, GFP_NOWAIT, sheaf);
    } else {
        refused++;
    }
    handled++;
    errno = saved;
}
} // namespace

TEST_CASE("signal handlers may prefill while they interrupt a prefill", "[prefill]")
{
    Cache c(64, 32);
    in_handler = c.cache;
    handled = refused = 0;
    std::signal(SIGUSR1, prefill_in_handler);
    std::atomic<bool> stop{false};
    std::atomic<unsigned> rounds{0};
    pthread_t victim = pthread_self();
    std::thread sender([&] { // waits for each handler and a round, otherwise the victim might only run handlers
        for (int sent = 0; !stop; sent++) {
            unsigned before = rounds;
            for (volatile unsigned wait = static_cast<unsigned>(sent) * 2777 % 20000; wait > 0;)
                wait = wait - 1;
            pthread_kill(victim, SIGUSR1);
            while ((handled <= sent || rounds == before) && !stop)
                sched_yield();
        }
    });
    for (unsigned i = 0; i < 3000 || handled < 300; i++) {
        slab_sheaf *sheaf = c.prefill(i % 3 ? 20 : 100);
        void *a = c.from(sheaf), *b = c.from(sheaf);
        REQUIRE(a != b);
        REQUIRE(kmem_cache_refill_sheaf(c.cache, GFP_KERNEL, &sheaf, 25 + i % 50) == 0);
        c.give_back(sheaf);
        c.free(a);
        c.free(b);
        rounds++;
    }
    stop = true;
    sender.join();
    std::signal(SIGUSR1, SIG_DFL);
    CHECK(handled >= 300);
    CHECK(refused < handled);
    CHECK(c.census().in_use == 0);
    CHECK(c.census().in_prefilled == 0);
}

TEST_CASE("threads prefill, exchange sheaves and free during remote drains", "[prefill]")
{
    Cache c(64, 32);
    static std::atomic<slab_sheaf *> passed;
    among_remote_drains(c.cache, 6, [&](unsigned t) {
        unsigned long x = t * 7919 + 1;
        for (int i = 0; i < 20000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul;
            unsigned n = 1 + static_cast<unsigned>(x >> 33) % (i % 50 ? 40 : 1200);
            slab_sheaf *sheaf = kmem_cache_prefill_sheaf(c.cache, GFP_KERNEL, n);
            if (!sheaf)
                std::abort();
            void *objects[8];
            unsigned k = n < 8 ? n : 8;
            for (unsigned j = 0; j < k; j++) {
                objects[j] = kmem_cache_alloc_from_sheaf(c.cache, 0, sheaf);
                if (!objects[j])
                    std::abort();
                *static_cast<void **>(objects[j]) = &objects[j];
            }
            if (slab_sheaf *other = passed.exchange(sheaf))
                kmem_cache_return_sheaf(c.cache, GFP_KERNEL, other);
            for (unsigned j = 0; j < k; j++) {
                if (*static_cast<void **>(objects[j]) != &objects[j])
                    std::abort(); // two owners
                kmem_cache_free(c.cache, objects[j]);
            }
        }
    });
    c.give_back(passed.exchange(nullptr));
    CHECK(c.census().in_use == 0);
    CHECK(c.census().in_prefilled == 0);
}
