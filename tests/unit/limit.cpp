// The memory limit of a control group, read from simulated file systems, and the budgets that depend on it.
#include "catch.hpp"
#include "probe.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace
{
class Root
{
    std::filesystem::path path_;
    std::string text_;

  public:
    Root() : path_(std::filesystem::temp_directory_path() / ("sheaf-root." + std::to_string(getpid()))), text_(path_)
    {
        std::filesystem::create_directories(path_);
        probe_cgroup_root(text_.c_str());
    }
    ~Root()
    {
        probe_cgroup_root("");
        std::filesystem::remove_all(path_);
    }
    Root(const Root &) = delete;
    Root &operator=(const Root &) = delete;

    void write(const std::string &name, const std::string &text) const
    {
        auto file = path_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
};
} // namespace

TEST_CASE("without control groups there is no limit", "[limit]")
{
    Root root;
    CHECK(probe_cgroup_limit() == SIZE_MAX);
    root.write("proc/self/cgroup", "");
    CHECK(probe_cgroup_limit() == SIZE_MAX);
    root.write("proc/self/cgroup", "nonsense\n\n:\n::\n5:memory\n");
    CHECK(probe_cgroup_limit() == SIZE_MAX);
}

TEST_CASE("the lowest limit on the path to the root applies", "[limit]")
{
    Root root;
    root.write("proc/self/cgroup", "0::/system.slice/web/worker\n");
    CHECK(probe_cgroup_limit() == SIZE_MAX);
    root.write("sys/fs/cgroup/system.slice/web/worker/memory.max", "max\n");
    CHECK(probe_cgroup_limit() == SIZE_MAX);
    root.write("sys/fs/cgroup/system.slice/web/memory.max", "268435456\n");
    CHECK(probe_cgroup_limit() == 268435456);
    root.write("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
    CHECK(probe_cgroup_limit() == 268435456);
    root.write("sys/fs/cgroup/memory.max", "67108864\n");
    CHECK(probe_cgroup_limit() == 67108864);
}

TEST_CASE("in a container the root group's limit applies", "[limit]")
{
    Root root;
    root.write("sys/fs/cgroup/memory.max", "67108864\n");
    root.write("proc/self/cgroup", "0::/\n");
    CHECK(probe_cgroup_limit() == 67108864);
    root.write("proc/self/cgroup", "0::/docker/0123abcd\n"); // the host's path, which does not exist here
    CHECK(probe_cgroup_limit() == 67108864);
}

TEST_CASE("limits of control groups version 1 apply", "[limit]")
{
    Root root;
    root.write("proc/self/cgroup", "5:cpu,memory,pids:/jobs/17\n4:notmemory:/other\n0::/\n");
    root.write("sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", "33554432\n");
    root.write("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n");
    CHECK(probe_cgroup_limit() == 33554432);
    root.write("sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(probe_cgroup_limit() == 9223372036854771712u);
    root.write("sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", "99999999999999999999999\n");
    CHECK(probe_cgroup_limit() == SIZE_MAX);
    root.write("sys/fs/cgroup/unified/memory.max", "4096\n");
    CHECK(probe_cgroup_limit() == 4096);
}

TEST_CASE("budgets depend on the limit", "[limit]")
{
    constexpr size_t mib = 1 << 20;
    probe_budgets wide = probe_limit(size_t(1) << 40, 0), narrow = probe_limit(64 * mib, 0);
    CHECK(wide.kept_at_most == 64 * mib);
    CHECK(narrow.kept_at_most == 4 * mib);
    CHECK(narrow.rcu == 4 * mib);
    CHECK(narrow.slot <= mib);
    CHECK(narrow.slot < wide.slot);
}

TEST_CASE("budgets set by the user do not depend on the limit", "[limit]")
{
    probe_budgets wide = probe_limit(size_t(1) << 40, 1), narrow = probe_limit(64 << 20, 1);
    CHECK(narrow.slot == wide.slot);
    CHECK(narrow.rcu == wide.rcu);
    CHECK(narrow.kept_at_most == wide.kept_at_most);
}
