/* sheaf::memory_resource: containers, sizes and alignments, threads, what remains; the program is linked with
 * libsheaf. */
#include "../cases.h"

#include <sheaf/memory_resource.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

CASE(containers_hold_their_contents)
{
    sheaf::memory_resource resource("containers");
    std::pmr::map<int, std::pmr::string> map(&resource);
    std::pmr::unordered_map<std::pmr::string, std::pmr::vector<int>> table(&resource);
    std::pmr::list<long> list(&resource);
    std::pmr::deque<std::pmr::string> deque(&resource);
    for (int i = 0; i < 20000; i++) {
        map.emplace(i, std::string(static_cast<std::size_t>(i) % 300, 'x'));
        table[std::pmr::string(std::to_string(i % 1000), &resource)].push_back(i);
        list.push_back(i);
        deque.emplace_back(std::to_string(i));
    }
    must(map.size() == 20000 && map.at(299).size() == 299 && map.at(299).get_allocator().resource() == &resource);
    must(table.size() == 1000 && table.at("7").back() == 19007);
    must(std::count_if(list.begin(), list.end(), [](long n) { return n % 2; }) == 10000);
    must(deque[12345] == "12345");
    std::pmr::map<int, std::pmr::string> moved(std::move(map)), copied(moved, std::pmr::new_delete_resource());
    must(copied == moved && copied.get_allocator().resource() != &resource);
}

/* All blocks stay until the end, so none overlaps another; each is aligned and keeps its bytes. */
CASE(blocks_are_aligned_and_apart)
{
    sheaf::memory_resource resource;
    struct block {
        unsigned char *object;
        std::size_t bytes, align;
    };
    std::vector<block> blocks;
    for (std::size_t align = 1; align <= 1 << 16; align *= 2)
        for (std::size_t bytes = 0; bytes < 10000; bytes += bytes < 300 ? 1 : 97)
            blocks.push_back({static_cast<unsigned char *>(resource.allocate(bytes, align)), bytes, align});
    for (const block &b : blocks) {
        must(reinterpret_cast<std::uintptr_t>(b.object) % b.align == 0);
        std::fill_n(b.object, b.bytes, static_cast<unsigned char>(b.bytes + b.align));
    }
    for (const block &b : blocks) {
        must(std::all_of(b.object, b.object + b.bytes,
                         [&](unsigned char c) { return c == static_cast<unsigned char>(b.bytes + b.align); }));
        resource.deallocate(b.object, b.bytes, b.align);
    }
}

/* Small objects lie densely: a cache of exactly their size serves them. */
CASE(small_requests_take_their_size)
{
    sheaf::memory_resource resource;
    for (std::size_t bytes : {16, 32, 48, 112, 144, 320}) {
        std::vector<std::uintptr_t> at;
        for (int i = 0; i < 1000; i++)
            at.push_back(reinterpret_cast<std::uintptr_t>(resource.allocate(bytes, 8)));
        std::sort(at.begin(), at.end());
        int neighbours = 0;
        for (std::size_t i = 1; i < at.size(); i++)
            neighbours += at[i] - at[i - 1] == bytes;
        must(neighbours > 900);
        for (std::uintptr_t p : at)
            resource.deallocate(reinterpret_cast<void *>(p), bytes, 8);
    }
}

CASE(memory_is_not_libcs)
{
    sheaf::memory_resource resource;
    void *small = resource.allocate(100, 8), *large = resource.allocate(100000, 64);
    must(small && sheaf_malloc_usable_size(large) >= 100000);
    resource.deallocate(small, 100, 8);
    resource.deallocate(large, 100000, 64);
}

CASE(only_the_same_resource_is_equal)
{
    sheaf::memory_resource one("one"), other("one");
    must(one == one && one != other && !one.is_equal(*std::pmr::new_delete_resource()));
    std::pmr::vector<int> from({1, 2, 3}, &one), to(&other);
    to = std::move(from); /* element by element */
    must(to.get_allocator().resource() == &other && to[2] == 3);
}

CASE(too_large_a_request_throws)
{
    sheaf::memory_resource resource;
    for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2}) {
        bool thrown = false;
        try {
            resource.deallocate(resource.allocate(bytes, 8), bytes, 8);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        must(thrown);
    }
}

/* Caches are created by whichever thread comes first, and objects are freed by other threads. */
CASE(threads_share_a_resource)
{
    for (int round = 0; round < 20; round++) {
        sheaf::memory_resource resource("threads");
        std::vector<std::pmr::list<std::pmr::string>> lists;
        for (int i = 0; i < 4; i++)
            lists.emplace_back(&resource);
        auto each = [&](auto work) {
            std::vector<std::thread> threads;
            for (std::size_t i = 0; i < lists.size(); i++)
                threads.emplace_back([&, i] { work(i); });
            for (std::thread &thread : threads)
                thread.join();
        };
        each([&](std::size_t i) {
            for (std::size_t n = 0; n < 2000; n++)
                lists[i].emplace_back(n % 500, static_cast<char>('a' + i));
        });
        each([&](std::size_t i) {
            std::size_t other = (i + 1) % lists.size(), n = 0;
            for (const std::pmr::string &s : lists[other]) {
                must(s.size() == n % 500);
                must(s.find_first_not_of(static_cast<char>('a' + other)) == s.npos);
                n++;
            }
            lists[other].clear();
        });
    }
}

/* The destructor reports an object that was not deallocated, and leaves it. */
CASE(what_was_not_deallocated_stays)
{
    char *left;
    int ends[2];
    char text[1000] = {};
    must(pipe(ends) == 0);
    fflush(stderr);
    int saved = dup(2);
    must(saved >= 0 && dup2(ends[1], 2) == 2);
    {
        sheaf::memory_resource resource("left-over");
        left = static_cast<char *>(resource.allocate(40, 8));
        strcpy(left, "contents");
    }
    must(dup2(saved, 2) == 2 && read(ends[0], text, sizeof(text) - 1) > 0);
    must(strstr(text, "left-over-48") && !strcmp(left, "contents"));
}

CASE(shrinking_keeps_contents)
{
    sheaf::memory_resource resource;
    std::pmr::set<int> set(&resource);
    for (int i = 0; i < 10000; i++)
        set.insert(i);
    for (int i = 0; i < 10000; i += 2)
        set.erase(i);
    resource.shrink();
    must(set.size() == 5000 && *set.rbegin() == 9999);
    for (int i = 0; i < 10000; i++)
        set.insert(i);
    must(set.size() == 10000);
}
