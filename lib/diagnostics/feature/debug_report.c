#define _GNU_SOURCE
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/feature/depot.h"
#include "cache/remote.h"
#include "platform/os/libc.h"
#include "platform/os/object.h"
#include "platform/os/objects.h"
#include "platform/os/unwind.h"
#include "platform/os/syscall.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DUMP_BYTES 64 /* most bytes of the damage that are shown */
#define DUMP_LINE  16
#define WAIT_TRIES 1000

/* ---- destination ---- */

/*
 * The file is opened when debugging starts, at a descriptor number above those that programs use. Some programs
 * close all descriptors, and the number may then belong to another file; so each report first compares device and
 * inode.
 */
static struct {
    int file;
    dev_t device;
    ino_t inode;
} report_log = {.file = -1};

/* fstat(), whose symbol is from glibc 2.33. The kernel's struct stat is libc's. */
static long file_status(int file, struct stat *now)
{
    return sys_call3(SYS_fstat, file, (long)now, 0);
}

static bool log_is_ours(void)
{
    struct stat now;
    return report_log.file >= 0 && !file_status(report_log.file, &now) && now.st_dev == report_log.device &&
           now.st_ino == report_log.inode;
}

static void log_open(void)
{
    struct stat now;
    long file = sys_call(SYS_openat, AT_FDCWD, (long)sheaf_config.debug_log,
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600, 0, 0);
    if (file < 0)
        return;
    long high = sys_call3(SYS_fcntl, file, F_DUPFD_CLOEXEC, 300);
    if (high >= 0) {
        sys_call3(SYS_close, file, 0, 0);
        file = high;
    }
    report_log.file = (int)file;
    if (!file_status(report_log.file, &now)) {
        report_log.device = now.st_dev;
        report_log.inode = now.st_ino;
    }
}

void debug_report_start(void)
{
    if (!sheaf_config.debug_log || log_is_ours())
        return;
    int saved = errno;
    log_open();
    if (report_log.file < 0) {
        struct message m = {.length = 0};
        message_text(&m, "sheaf: SHEAF_DEBUG_LOG=");
        message_text(&m, sheaf_config.debug_log);
        message_text(&m, ": cannot be opened; reports go to standard error");
        message_write(&m);
    }
    errno = saved;
}

bool debug_writes_to_file(void)
{
    int saved = errno;
    if (sheaf_config.debug_log && !log_is_ours())
        log_open();
    bool ours = log_is_ours();
    errno = saved;
    return ours;
}

void debug_write(struct message *m)
{
    message_write_to(m, debug_writes_to_file() ? report_log.file : STDERR_FILENO);
}

void debug_write_lines(const char *lines, size_t length)
{
    message_write_lines(debug_writes_to_file() ? report_log.file : STDERR_FILENO, lines, length);
}

/*
 * Keeps the reports of two threads apart. Nothing else depends on it, so it is given up where waiting could take
 * forever: in a signal handler that interrupted a report, and after WAIT_TRIES yields, because the owner may not
 * exist in a forked child.
 */
static _Atomic uint64_t reporter;

static bool report_enter(void)
{
    for (int i = 0; i < WAIT_TRIES; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&reporter, &none, lock_self()))
            return true;
        if (none == lock_self())
            return false;
        sched_yield();
    }
    return false;
}

/* ---- lines ---- */

/*
 * dladdr() waits for the dynamic linker's lock, and the holder of that may be waiting for the lock of remote drains
 * (a constructor that calls malloc_trim). So under the lock of remote drains the object is found by a function that
 * takes no lock, and the symbol in the object's own table. The same happens without dladdr(), which programs of glibc
 * before 2.34 have if they load libdl. With musl, whose lock a signal handler cannot take again, nothing locks.
 */
#ifdef __GLIBC__
static bool find_symbol(uintptr_t pc, Dl_info *info)
{
    bool may_lock = !lock_held_by_self(lock_of(LOCK_DRAIN));
    if (likely(may_lock) && libc_has(dladdr))
        return dladdr((void *)pc, info) && info->dli_fname;
    struct dl_find_object object;
    bool found = libc_has_find_object() ? _dl_find_object((void *)pc, &object) == 0
                                        : may_lock && unwind_find((void *)pc, &object) == 0;
    if (found && object.dlfo_link_map) {
        const char *name = object.dlfo_link_map->l_name;
        *info = (Dl_info){.dli_fname = name && *name ? name : program_invocation_name,
                          .dli_fbase = object.dlfo_map_start};
        uintptr_t base = object.dlfo_link_map->l_addr;
        const ElfW(Sym) *symbol = object_symbol_at(base, object.dlfo_link_map->l_ld, pc, &info->dli_sname);
        info->dli_saddr = symbol ? (void *)(base + symbol->st_value) : NULL;
        return true;
    }
    return false;
}
#else
static bool find_symbol(uintptr_t pc, Dl_info *info)
{
    struct dl_find_object found;
    if (!objects_find_any(pc, &found) || !found.dlfo_link_map)
        return false;
    const struct link_map *map = found.dlfo_link_map;
    const ElfW(Sym) *symbol = object_symbol_at(map->l_addr, map->l_ld, pc, &info->dli_sname);
    info->dli_fname = libc_is_program(map) && libc_program() ? libc_program() : map->l_name;
    info->dli_fbase = found.dlfo_map_start;
    info->dli_saddr = symbol ? (void *)(map->l_addr + symbol->st_value) : NULL;
    return true;
}
#endif

void debug_frame(struct message *m, uintptr_t pc, const char *indent)
{
    Dl_info info;
    message_text(m, "sheaf: ");
    message_text(m, indent);
    /* after a call that does not return, the return address may lie beyond the end of the function */
    bool known = find_symbol(pc - 1, &info);
    if (known && info.dli_sname) {
        message_text(m, info.dli_sname);
        message_text(m, "+");
        message_pointer(m, (void *)(pc - (uintptr_t)info.dli_saddr));
        message_text(m, " ");
    }
    if (known) {
        message_text(m, "(");
        message_text(m, info.dli_fname);
        message_text(m, "+");
        message_pointer(m, (void *)(pc - (uintptr_t)info.dli_fbase));
        message_text(m, ")");
    } else {
        message_pointer(m, (void *)pc);
    }
}

void debug_write_pcs(const uintptr_t *pcs, unsigned depth, const char *indent)
{
    for (unsigned i = 0; i < depth; i++) {
        struct message m = {.length = 0};
        debug_frame(&m, pcs[i], indent);
        debug_write(&m);
    }
}

void debug_write_stack(uint32_t stack, const char *indent)
{
    const struct depot_stack *known = depot_stack(stack);
    if (known)
        debug_write_pcs(known->pcs, known->depth, indent);
}

static void write_ago(struct message *m, uint64_t time)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t us = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - time) / 1000;
    message_text(m, ", ");
    message_number(m, us / 1000000);
    message_text(m, ".");
    for (uint64_t digit = 100000; digit; digit /= 10)
        message_number(m, us % 1000000 / digit % 10);
    message_text(m, " s ago");
}

static void write_track(const char *what, const struct track *track, uint64_t call)
{
    struct message m = {.length = 0};
    if (!track->time)
        return;
    message_text(&m, "sheaf:   ");
    message_text(&m, what);
    message_text(&m, " by thread ");
    message_number(&m, track->thread);
    write_ago(&m, track->time);
    if (call) {
        message_text(&m, ", allocation ");
        message_number(&m, call);
    }
    message_text(&m, track->stack ? ":" : "");
    debug_write(&m);
    debug_write_stack(track->stack, "    ");
}

static void write_object(const struct debug_report *report)
{
    static const char *const states[] = {"in a slab that was released", "free", "in use", "in use"};
    struct message m = {.length = 0};
    uint32_t state = atomic_load_explicit(&report->record->state, memory_order_relaxed);
    message_text(&m, "sheaf:   object ");
    message_pointer(&m, report->object);
    message_text(&m, " of ");
    message_number(&m, report->record->size);
    message_text(&m, " bytes, ");
    message_text(&m, states[state < array_size(states) ? state : 0]);
    if (report->pointer != report->object) {
        bool behind = (const char *)report->pointer > report->object;
        size_t distance = behind ? (size_t)((const char *)report->pointer - report->object)
                                 : (size_t)(report->object - (const char *)report->pointer);
        message_text(&m, "; the pointer is ");
        message_number(&m, distance);
        message_text(&m, behind ? " bytes past its start" : " bytes before its start");
    }
    debug_write(&m);
}

/* ---- bytes ---- */

static void write_dump_line(const char *at, size_t n)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf:     ");
    message_pointer(&m, at);
    message_text(&m, " ");
    for (size_t i = 0; i < n; i++) {
        message_text(&m, " ");
        message_hex(&m, (unsigned char)at[i], 2);
    }
    message_text(&m, "  |");
    for (size_t i = 0; i < n; i++) {
        char c[2] = {at[i] >= 32 && at[i] < 127 ? at[i] : '.', 0};
        message_text(&m, c);
    }
    message_text(&m, "|");
    debug_write(&m);
}

static void write_damage(const struct damage *damage, const char *object)
{
    struct message m = {.length = 0};
    const char *bad = damage->at + damage->first;
    message_text(&m, "sheaf:   ");
    message_number(&m, damage->end - damage->first);
    message_text(&m, damage->end - damage->first == 1 ? " byte, " : " bytes, ");
    message_number(&m, bad < object ? (size_t)(object - bad) : (size_t)(bad - object));
    message_text(&m, bad < object ? " before the object's start" : " past the object's start");
    message_text(&m, ", should all be ");
    message_hex(&m, (unsigned)damage->byte, 2);
    message_text(&m, ":");
    debug_write(&m);
    size_t n = damage->end - damage->first < DUMP_BYTES ? damage->end - damage->first : DUMP_BYTES;
    for (size_t i = 0; i < n; i += DUMP_LINE)
        write_dump_line(bad + i, damage->length - damage->first - i < DUMP_LINE ? damage->length - damage->first - i
                                                                                : DUMP_LINE);
}

/* ---- whole reports ---- */

static void write_finder(void)
{
    struct message m = {.length = 0};
    uintptr_t pcs[STACK_MOST];
    message_text(&m, "sheaf:   found by thread ");
    message_number(&m, (uint64_t)sys_call3(SYS_gettid, 0, 0, 0));
    message_text(&m, " of process ");
    message_number(&m, (uint64_t)sys_call3(SYS_getpid, 0, 0, 0));
    message_text(&m, ":");
    debug_write(&m);
    debug_write_pcs(pcs, stack_walk(pcs, STACK_MOST), "    ");
}

static void write_line(const char *before, const char *text)
{
    struct message m = {.length = 0};
    message_text(&m, before);
    message_text(&m, text);
    debug_write(&m);
}

void debug_report_only(const struct debug_report *report)
{
    bool alone = report_enter();
    struct message m = {.length = 0};
    message_text(&m, "sheaf: ");
    message_text(&m, report->kind);
    message_text(&m, " ");
    message_pointer(&m, report->pointer);
    message_text(&m, " (");
    message_text(&m, report->cache);
    message_text(&m, ")");
    debug_write(&m);
    if (report->record) {
        write_object(report);
        if (report->damage)
            write_damage(report->damage, report->object);
        write_track("allocated", &report->record->allocated, report->record->call);
        write_track("freed", &report->record->freed, 0);
    }
    write_finder();
    if (report->done)
        write_line("sheaf:   ", report->done);
    if (alone)
        atomic_store(&reporter, 0);
}

void debug_report(const struct debug_report *report)
{
    struct debug_report last = *report;
    if (sheaf_config.debug_go_on) {
        debug_report_only(report);
        return;
    }
    last.done = "the process aborts; set SHEAF_DEBUG_ACTION=continue to repair the damage and continue";
    debug_report_only(&last);
    abort();
}

void debug_report_misuse(const char *kind, const void *p, const char *what, bool ignored)
{
    struct debug_report report = {.kind = kind, .pointer = p, .cache = what, .done = ignored ? "ignored" : NULL};
    debug_report_only(&report);
}
