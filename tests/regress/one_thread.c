/*
 * A program with one thread and a record does not notice the helper thread: not where the system refuses something to
 * processes with several threads, not where it gives up rights, and not in a sandbox of its own that kills for
 * clone().
 */
#define _GNU_SOURCE
#include "../helped.h"
#include "recorded.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sched.h>
#include <sys/syscall.h>

static void work_until_helped(void)
{
    while (threads(getpid()) < 2)
        work_a_while(NULL);
}

/* What the system allows to processes with one thread only. */
PART(part_name_spaces)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(syscall(SYS_unshare, CLONE_NEWUSER) == 0 ? 0 : 1);
    int status;
    must(waitpid(pid, &status, 0) == pid);
    if (status)
        _exit(CASE_SKIPPED);
    int mine = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    must(mine >= 0);
    for (int i = 0; i < 3; i++) { /* for each call the helper thread is there again */
        work_until_helped();
        must(i == 2 || setns(mine, CLONE_NEWNS) == 0 || errno == EPERM);
    }
    must(unshare(CLONE_NEWUSER) == 0);
}

/* As setpriv(1) does. libc aborts if setresgid() succeeds in one thread and fails in another. */
extern int capset(cap_user_header_t header, cap_user_data_t data);
PART(part_gives_up_rights)
{
    if (getuid() != 0)
        _exit(CASE_SKIPPED);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[2] = {0};
    rights[0].effective = rights[0].permitted = 1u << CAP_SETGID;
    for (int i = 0; i < 3; i++) { /* before each step the helper thread is there */
        work_until_helped();
        if (i == 0)
            must(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && setresuid(1234, 1234, 1234) == 0);
        if (i == 1)
            must(capset(&header, rights) == 0);
    }
    must(setresgid(1234, 1234, 1234) == 0);
}

static void burst(void)
{
    enum { BLOCKS = 40000, SIZE = 1000 };
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        must((blocks[i] = memset(malloc(SIZE), 1, SIZE)));
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

/* The filter ends the process for each new thread, but not for what the allocator needs. */
PART(part_sandbox)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};
    work_until_helped();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(CASE_SKIPPED);
    for (int i = 0; i < 20; i++) {
        burst();
        work_a_while(NULL);
        client_pause(); /* a helper that was refused would be tried again later */
    }
    must(threads(getpid()) == 1);
}

static void alone(const char *part)
{
    if (!helper_by_default())
        _exit(CASE_SKIPPED);
    make_records(records, sizeof(records));
    must(chmod(records, 0777) == 0);
    pid_t pid = start(part, "");
    int status = -1;
    must(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    must(remove_records(records) > 0);
    if (WEXITSTATUS(status) == CASE_SKIPPED)
        _exit(CASE_SKIPPED);
    must(WEXITSTATUS(status) == 0);
}

CASE(single_name_spaces)
{
    alone("part_name_spaces");
}

CASE(single_gives_up_rights)
{
    alone("part_gives_up_rights");
}

CASE(single_sandbox)
{
    alone("part_sandbox");
}
