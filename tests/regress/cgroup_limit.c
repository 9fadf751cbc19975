/*
 * The limit of the control group is read under a seccomp filter that was there at the start of the process, and not
 * under one that the program installed. Includes internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "platform/config/config.h"
#include "platform/os/cgroup.h"
#include "sheaf/malloc.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MIB    (1ul << 20)
#define LIMIT  (64 * MIB)
#define BUDGET (LIMIT / 16) /* of what waits for grace periods: SHARE_OF_RCU in process/limit.c */

static char root[64];

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        must(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void take_away(void)
{
    static const char *const names[] = {"/proc/self/cgroup", "/proc/self", "/proc", "/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup",    "/sys/fs",    "/sys",  ""};
    char path[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s%s", root, names[i]);
        must(remove(path) == 0);
    }
}

/* Puts the process into a simulated control group. */
static void enter_group(void)
{
    snprintf(root, sizeof(root), "/tmp/regress-limit.%d", getpid());
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "67108864\n");
    cgroup_root = root;
}

/* Installs a filter that kills for opening files, or one that allows all. Returns false if it is refused. */
static bool install(bool kills, bool no_new_privs)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(rules) / sizeof(*rules), rules};
    if (no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

static void start_allocator(void)
{
    void *p = sheaf_malloc(1);
    must(p);
    sheaf_free(p);
    must(sheaf_config.rcu_limit > BUDGET);
}

static void grow(void)
{
    enum { BLOCKS = 64 };
    static void *blocks[BLOCKS * 32];
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
        must((blocks[i] = sheaf_malloc(MIB / 32)));
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
        sheaf_free(blocks[i]);
}

static void expect(bool limited)
{
    must((sheaf_config.rcu_limit == BUDGET) == limited);
}

CASE(limit_without_filter)
{
    start_allocator();
    enter_group();
    grow();
    expect(true);
    take_away();
}

/* The filter kills, so it is installed after the simulated group was made, and a child grows the heap under it. */
CASE(limit_with_own_filter)
{
    start_allocator();
    if (cgroup_sandbox_at_start == (CGROUP_FILTER | CGROUP_NO_NEW_PRIVS))
        _exit(CASE_SKIPPED); /* this process is in a sandbox where its own filter cannot be recognized */
    enter_group();
    pid_t child = fork();
    if (!child) {
        if (!install(true, true))
            _exit(CASE_SKIPPED);
        grow();
        expect(false);
        _exit(0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    take_away();
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    must(!"survived its own filter");
}

CASE(limit_with_inherited_filter)
{
    if (!install(false, true))
        _exit(CASE_SKIPPED);
    execute_part("limit_without_filter");
}

/* As in a container: the filter was installed with privileges, and without no_new_privs. */
CASE(limit_in_a_container)
{
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) || !install(false, false))
        _exit(CASE_SKIPPED);
    execute_part("limit_without_filter");
}

CASE(limit_with_own_filter_in_a_container)
{
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) || !install(false, false))
        _exit(CASE_SKIPPED);
    execute_part("limit_with_own_filter");
}

/* Switches the look at limits on, as in the preloaded object. */
void sheaf_configure(struct sheaf_config *config)
{
    config->helper = HELPER_AUTO;
}
