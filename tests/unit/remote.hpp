// Threads work on a cache while another thread repeatedly takes over its slots.
#pragma once
#include "probe.h"

#include <atomic>
#include <thread>
#include <vector>

// Calls `work` with the thread's number in each of `count` threads.
template <typename Work> void among_remote_drains(kmem_cache *cache, unsigned count, Work work)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; t++)
        threads.emplace_back(work, t);
    std::thread taker([&] {
        while (!stop)
            probe_remote_drain(cache);
    });
    for (auto &t : threads)
        t.join();
    stop = true;
    taker.join();
}
