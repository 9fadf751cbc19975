// Threads index the words of their part of a generated text, in maps of strings and vectors. The maps are then
// merged, words are looked up, and everything is destroyed.
#include "operators.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{

using postings = std::vector<uint32_t>;
using part = std::unordered_map<std::string, postings>;

uint64_t next_random(uint64_t &state)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DULL >> 32;
}

// Few words are frequent and many are rare. Many are too long for the small-string buffer of std::string.
std::string word(uint64_t &state)
{
    const uint64_t rarity = next_random(state) % 16;
    uint64_t number = next_random(state) % (16ULL << rarity);
    std::string made;
    do {
        made += "kalirumesotani"[number % 14];
        made += "aeiou"[number % 5];
        number /= 14;
    } while (number != 0);
    if (rarity > 10)
        made += "-of-the-longer-kind";
    return made;
}

void index_part(part &found, uint64_t seed, uint64_t words)
{
    std::vector<std::string> sentence;
    for (uint64_t i = 0; i < words; i++) {
        sentence.push_back(word(seed));
        if (sentence.size() == 20 || i + 1 == words) {
            for (auto &said : sentence)
                found[std::move(said)].push_back(static_cast<uint32_t>(i));
            sentence.clear();
        }
    }
}

} // namespace

uint64_t build_index(unsigned threads, uint64_t words)
{
    std::vector<part> parts(threads);
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; i++)
        running.emplace_back(index_part, std::ref(parts[i]), i + 1, words / threads + 1);
    for (auto &thread : running)
        thread.join();

    std::map<std::string, std::shared_ptr<postings>> whole;
    for (auto &one : parts) {
        for (auto &[text, places] : one) {
            auto &all = whole[text];
            if (!all)
                all = std::make_shared<postings>();
            all->insert(all->end(), places.begin(), places.end());
        }
        one.clear();
    }
    uint64_t seed = 1, found = 0;
    for (uint64_t i = 0; i < words / 10; i++)
        found += whole.count(word(seed) + (i % 2 != 0U ? "" : "?"));
    return found != 0 || words < 100 ? words / threads * threads + threads : 0;
}
