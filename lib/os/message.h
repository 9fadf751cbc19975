/* One line on standard error, put together without malloc, stdio or locks; safe in signal handlers. */
#ifndef SHEAF_OS_MESSAGE_H
#define SHEAF_OS_MESSAGE_H

#include "os/compiler.h"

struct message {
    char text[480];
    size_t length;
};

void message_text(struct message *m, const char *text);
void message_pointer(struct message *m, const void *p); /* as printf's %p writes it */
void message_number(struct message *m, uint64_t n);
void message_hex(struct message *m, uint64_t n, unsigned digits);
void message_write(struct message *m); /* adds the newline; one write() so that lines of threads do not mix */
void message_write_to(struct message *m, int file);

#endif
