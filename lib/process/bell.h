/*
 * The bell wakes the helper thread. In a process with a record it is a word of the control area (sheaf/control.h), so
 * that clients can ring too; otherwise it is private. Who rings changes the word first, so that a ring that comes
 * just before the thread sleeps is not lost. No system call but futex(), which any sandbox that allows threads must
 * allow.
 */
#ifndef SHEAF_PROCESS_BELL_H
#define SHEAF_PROCESS_BELL_H

#include "platform/os/compiler.h"

/* The bell as it stands. The caller then looks whether there is anything to do, and passes the result to bell_wait().
 */
struct bell {
    const uint32_t *word;
    uint32_t seen;
    bool shared;
};
struct bell bell_read(void);

/* Sleep until somebody has rung since bell_read(), or for `ms`. May return early. Leaves errno alone. */
void bell_wait(struct bell bell, uint32_t ms);

/* Wake the thread. Any context. */
void bell_ring(void);

#endif
