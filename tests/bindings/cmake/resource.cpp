/* Fills a map from caches and prints the sum of its values. */
#include <sheaf/memory_resource.hpp>

#include <iostream>
#include <map>

int main()
{
    sheaf::memory_resource nodes("nodes");
    std::pmr::map<int, long> map(&nodes);
    long sum = 0;
    for (int i = 1; i <= 1000; i++)
        map[i] = i;
    for (const auto &entry : map)
        sum += entry.second;
    std::cout << sum << '\n';
}
