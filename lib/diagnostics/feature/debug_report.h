/*
 * Reports on debugged objects: what is wrong, the damaged bytes, the stacks of the allocation, of the free and of
 * the thread that found it, and what was done about it. They go to standard error, or to the file of
 * SHEAF_DEBUG_LOG.
 *
 * Reports are written without malloc and stdio. The caller may hold the lock of remote drains and no other. Symbols
 * come from dladdr(), which takes the dynamic linker's lock, and under the lock of remote drains from tables of
 * symbols.
 */
#ifndef SHEAF_FEATURE_DEBUG_REPORT_H
#define SHEAF_FEATURE_DEBUG_REPORT_H

#include "diagnostics/feature/debug.h"
#include "platform/os/message.h"

/* Damaged bytes: from `first` to before `end`, of `length` bytes at `at` that should all be `byte`. */
struct damage {
    const char *at;
    size_t length, first, end;
    int byte;
};

struct debug_report {
    const char *kind;                  /* "double free of" */
    const void *pointer;               /* the pointer that was misused, or the object */
    const char *cache;                 /* its name */
    const struct debug_object *record; /* NULL: nothing is known */
    const char *object;                /* start of the user's object */
    const struct damage *damage;       /* NULL: none */
    const char *done;                  /* the last line: what was done about it; NULL: none */
};

/* Write a report. debug_report() then aborts, unless SHEAF_DEBUG_ACTION=continue is set; debug_report_only()
 * returns. */
void debug_report(const struct debug_report *report);
void debug_report_only(const struct debug_report *report);

/* hooks.report: a report on misuse of memory that is not debugged. */
void debug_report_misuse(const char *kind, const void *p, const char *what, bool ignored);

/* Write the lines of a stack of the depot, or of an array of return addresses, each after `indent`. */
void debug_write_stack(uint32_t stack, const char *indent);

void debug_write_pcs(const uintptr_t *pcs, unsigned depth, const char *indent);

/* Compose the line of a frame, after `indent`. */
void debug_frame(struct message *m, uintptr_t pc, const char *indent);

/* Write one line to the destination of reports. errno is untouched. */
void debug_write(struct message *m);

/* Write lines to the destination of reports. To a file they go in one write(), so that reports of several processes
 * do not mix; debug_writes_to_file() tells whether it is one. */
void debug_write_lines(const char *lines, size_t length);
bool debug_writes_to_file(void);

/* Open the file for reports, if SHEAF_DEBUG_LOG names one. */
void debug_report_start(void);

#endif
