#include "refuse.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSE_MAX 16

static const struct {
    const char *name;
    int number;
} calls[] = {
    {"rseq", SYS_rseq},           {"membarrier", SYS_membarrier}, {"madvise", SYS_madvise},
    {"getrandom", SYS_getrandom}, {"openat", SYS_openat},         {"munmap", SYS_munmap},
    {"mmap", SYS_mmap},           {"mremap", SYS_mremap},         {"mprotect", SYS_mprotect},
    {"brk", SYS_brk},             {"futex", SYS_futex},           {"sched_getaffinity", SYS_sched_getaffinity},
    {"getcpu", SYS_getcpu},       {"prctl", SYS_prctl},           {"clock_gettime", SYS_clock_gettime},
};

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOMEM", ENOMEM}, {"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"EINVAL", EINVAL}, {"EACCES", EACCES}};

int refuse_call_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].number;
    return -1;
}

int refuse_error_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].number;
    return -1;
}

static bool is_counted(const struct refusal *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].pass > 0)
            return true;
    return false;
}

/* The filter: a jump per call; refused at once, or passed to the supervisor when some calls are to succeed first. */
static int install(const struct refusal *list, size_t count, bool counted)
{
    struct sock_filter code[2 * REFUSE_MAX + 2];
    unsigned short length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        uint32_t verdict =
            list[i].pass ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | ((uint32_t)list[i].error & SECCOMP_RET_DATA);
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)list[i].call, 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = length, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    unsigned flags = counted ? SECCOMP_FILTER_FLAG_NEW_LISTENER : SECCOMP_FILTER_FLAG_TSYNC;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

static void answer(int listener, struct refusal *list, size_t count)
{
    struct seccomp_notif request;
    struct seccomp_notif_resp response;
    memset(&request, 0, sizeof(request));
    memset(&response, 0, sizeof(response));
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0)
        return;
    response.id = request.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    for (size_t i = 0; i < count; i++)
        if (list[i].call == request.data.nr && list[i].pass-- <= 0) {
            response.flags = 0;
            response.error = -list[i].error;
        }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

/* Counts and answers until no filtered process is left. */
static void supervise(int listener, const struct refusal *given, size_t count)
{
    struct refusal list[REFUSE_MAX];
    memcpy(list, given, count * sizeof(*given));
    for (;;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (poll(&ready, 1, -1) < 0 || (ready.revents & (POLLHUP | POLLERR)))
            _exit(0);
        if (ready.revents & POLLIN)
            answer(listener, list, count);
    }
}

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

static int send_descriptor(int socket, int descriptor)
{
    union control control;
    memset(&control, 0, sizeof(control));
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

static int receive_descriptor(int socket)
{
    union control control;
    char byte;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

/* The supervisor is started before the filter, so that it is not filtered itself, and is nobody's child. */
static int start_supervisor(const struct refusal *list, size_t count)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    pid_t pid = _Fork();
    if (pid < 0)
        return -1;
    if (pid == 0) {
        if (_Fork() != 0)
            _exit(0);
        signal(SIGPIPE, SIG_IGN);
        close(pair[1]);
        int listener = receive_descriptor(pair[0]);
        if (listener < 0)
            _exit(0);
        for (int other = 0; other < 3; other++)
            close(other);
        supervise(listener, list, count);
    }
    waitpid(pid, NULL, 0);
    close(pair[0]);
    return pair[1];
}

int refuse(const struct refusal *list, size_t count)
{
    if (count > REFUSE_MAX) {
        errno = E2BIG;
        return -1;
    }
    if (!is_counted(list, count))
        return install(list, count, false) == 0 ? 0 : -1;
    int socket = start_supervisor(list, count);
    if (socket < 0)
        return -1;
    int listener = install(list, count, true);
    if (listener < 0)
        return -1;
    int result = send_descriptor(socket, listener);
    close(listener);
    close(socket);
    return result;
}
