// Threads that work on a cache while its slots are taken over again and again.
#pragma once
#include "probe.h"

#include <atomic>
#include <thread>
#include <vector>

// `work` is called with the number of the thread.
template <typename Work> void among_takeovers(kmem_cache *cache, unsigned count, Work work)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; t++)
        threads.emplace_back(work, t);
    std::thread taker([&] {
        while (!stop)
            probe_takeover(cache);
    });
    for (auto &t : threads)
        t.join();
    stop = true;
    taker.join();
}
