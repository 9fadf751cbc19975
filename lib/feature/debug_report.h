/*
 * Reports on debugged objects: what is wrong, the bytes, who allocated, who freed, who found it, and what was done.
 * Put together without malloc or stdio. Symbols come from dladdr(), which takes the dynamic linker's lock; where
 * the lock of takeovers is held, which is the only one of ours that may be, they are left out. To standard error, or
 * to the file of SHEAF_DEBUG_LOG.
 */
#ifndef SHEAF_FEATURE_DEBUG_REPORT_H
#define SHEAF_FEATURE_DEBUG_REPORT_H

#include "feature/debug.h"
#include "os/message.h"

/* Damaged bytes: [first, end) at `at`, of a stretch of `length` that should hold `byte`. */
struct damage {
    const char *at;
    size_t length, first, end;
    int byte;
};

struct debug_report {
    const char *kind;                  /* "double free of" */
    const void *pointer;               /* as misused */
    const char *cache;                 /* its name */
    const struct debug_object *record; /* NULL: nothing is known */
    const char *object;                /* where the user's part begins */
    const struct damage *damage;       /* NULL: none */
    const char *done;                  /* what was repaired */
};

/* Write it. Returns where the options say so, else the process ends. */
void debug_report(const struct debug_report *report);
void debug_report_only(const struct debug_report *report);

/* hooks.report. */
void debug_report_misuse(const char *kind, const void *p, const char *what, bool ignored);

/* The lines of a stack, each after `indent`. */
void debug_write_stack(uint32_t stack, const char *indent);

void debug_write_pcs(const uintptr_t *pcs, unsigned depth, const char *indent);

/* One line to where reports go. */
void debug_write(struct message *m);

/* Open the file for reports, if one was asked for. */
void debug_report_start(void);

#endif
