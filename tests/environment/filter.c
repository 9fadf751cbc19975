/* See filter.h. The filter is a BPF program that is assembled by hand. */
#define _GNU_SOURCE
#include "filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifndef SYS_rseq
#define SYS_rseq 334
#endif

static const struct {
    const char *name;
    long number;
} known[] = {
    {"rseq", SYS_rseq},
    {"membarrier", SYS_membarrier},
    {"getcpu", SYS_getcpu},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"get_mempolicy", SYS_get_mempolicy},
    {"sysinfo", SYS_sysinfo},
    {"mmap", SYS_mmap},
    {"mremap", SYS_mremap},
    {"munmap", SYS_munmap},
    {"madvise", SYS_madvise},
    {"mprotect", SYS_mprotect},
    {"openat", SYS_openat},
    {"getrandom", SYS_getrandom},
    {"prctl", SYS_prctl},
    {"gettid", SYS_gettid},
};

static const struct {
    const char *name;
    uint32_t value;
} errors[] = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}, {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL}};

enum { MOST = 16, LENGTH_AT = offsetof(struct seccomp_data, args[1]) };

static struct sock_filter code[16 * MOST];
static unsigned length;

static void add(unsigned short what, uint32_t k, unsigned yes, unsigned no)
{
    code[length++] = (struct sock_filter){what, (unsigned char)yes, (unsigned char)no, k};
}

static _Noreturn void unknown(const char *what, const char *word)
{
    fprintf(stderr, "%s: unknown %s; add it to the table in tests/environment/filter.c\n", word, what);
    exit(2);
}

static long number_of(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(known[i].name, name))
            return known[i].number;
    unknown("call", name);
}

static uint32_t error_of(const char *name)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (!strcmp(errors[i].name, name))
            return errors[i].value;
    unknown("error", name);
}

static void begin(void)
{
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/* BPF compares 32 bits at a time, so the length is compared in two halves. */
void filter_add(const char *rule)
{
    char text[64];
    uint32_t error = EPERM;
    unsigned long above = 0;
    if (!length)
        begin();
    if (length + 16 > sizeof(code) / sizeof(*code)) {
        fprintf(stderr, "%s: too many rules; raise MOST in tests/environment/filter.c\n", rule);
        exit(2);
    }
    snprintf(text, sizeof(text), "%s", rule);
    char *equals = strchr(text, '='), *greater = strchr(text, '>');
    if (equals) {
        *equals = 0;
        error = error_of(equals + 1);
    }
    if (greater) {
        *greater = 0;
        above = strtoul(greater + 1, NULL, 0);
    }
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number_of(text), 0, greater ? 6 : 1);
    if (greater) {
        add(BPF_LD | BPF_W | BPF_ABS, LENGTH_AT + 4, 0, 0);
        add(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)(above >> 32), 3, 0);
        add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(above >> 32), 0, 3);
        add(BPF_LD | BPF_W | BPF_ABS, LENGTH_AT, 0, 0);
        add(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)above, 0, 1);
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
}

int filter_install(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    if (!length)
        return 0;
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog filter = {(unsigned short)length, code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
}
