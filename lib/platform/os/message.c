#define _GNU_SOURCE
#include "platform/os/message.h"
#include "platform/os/syscall.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

void message_text(struct message *m, const char *text)
{
    while (*text && m->length < sizeof(m->text) - 1)
        m->text[m->length++] = *text++;
}

static void message_digits(struct message *m, uint64_t n, unsigned base)
{
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = 0;
    do {
        digits[--at] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n);
    message_text(m, digits + at);
}

void message_number(struct message *m, uint64_t n)
{
    message_digits(m, n, 10);
}

void message_hex(struct message *m, uint64_t n, unsigned digits)
{
    char text[2] = "";
    while (digits--) {
        text[0] = "0123456789abcdef"[n >> 4 * digits & 15];
        message_text(m, text);
    }
}

void message_pointer(struct message *m, const void *p)
{
    if (!p) {
        message_text(m, "(nil)");
        return;
    }
    message_text(m, "0x");
    message_digits(m, (uintptr_t)p, 16);
}

void message_write(struct message *m)
{
    message_write_to(m, 2);
}

/*
 * A message must not end the program because standard error is a closed pipe or a file at its size limit. The
 * signal that the write raises in this thread is therefore blocked and consumed, unless one was pending before.
 */
void message_write_lines(int file, const char *lines, size_t length)
{
    const uint64_t raised = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);
    uint64_t old = 0, waiting = 0;
    struct timespec at_once = {0};
    long written = 0;
    sys_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&raised, (long)&old, sizeof(old), 0, 0);
    sys_call3(SYS_rt_sigpending, (long)&waiting, sizeof(waiting), 0);
    while (length && (written = sys_call3(SYS_write, file, (long)lines, (long)length)) > 0) {
        lines += written;
        length -= (size_t)written;
    }
    if (written < 0 && !(waiting & raised))
        sys_call(SYS_rt_sigtimedwait, (long)&raised, 0, (long)&at_once, sizeof(raised), 0, 0);
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof(old), 0, 0);
}

void message_write_to(struct message *m, int file)
{
    m->text[m->length++] = '\n';
    message_write_lines(file, m->text, m->length);
    m->length = 0;
}

noinline_cold void sheaf_assert_failed(const char *what, const char *file, int line)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: assertion failed: ");
    message_text(&m, what);
    message_text(&m, " at ");
    message_text(&m, file);
    message_text(&m, ":");
    message_number(&m, (uint64_t)line);
    message_write(&m);
    abort();
}
