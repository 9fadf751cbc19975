/*
 * Single-line messages, composed without malloc, stdio or locks. Safe in signal handlers. Text that exceeds the
 * buffer is cut off.
 */
#ifndef SHEAF_OS_MESSAGE_H
#define SHEAF_OS_MESSAGE_H

#include "platform/os/compiler.h"

struct message {
    char text[480];
    size_t length;
};

void message_text(struct message *m, const char *text);
void message_pointer(struct message *m, const void *p); /* in the format of printf's %p */
void message_number(struct message *m, uint64_t n);
void message_hex(struct message *m, uint64_t n, unsigned digits);
/* Writes to standard error, with a newline, in one write() so that lines of threads do not mix. */
void message_write(struct message *m);
void message_write_to(struct message *m, int file);

/* Writes lines that were composed before, in one write() if the system takes them. Safe in signal handlers. */
void message_write_lines(int file, const char *lines, size_t length);

#endif
