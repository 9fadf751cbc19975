#define _GNU_SOURCE
#include "preload/record_file.h"
#include "platform/config/config.h"
#include "platform/os/cpu.h"
#include "platform/os/file.h"
#include "platform/os/libc.h"
#include "platform/os/message.h"
#include "memory/space/internal.h"
#include "platform/os/syscall.h"
#include "platform/os/text.h"
#include "platform/os/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

struct record_file record_file;
static char *mapping; /* the place of all parts; NULL: not mapped */
static size_t mapped; /* bytes */
static large_table char path[512];

/* The text of the file; sheaf/record.h describes its lines. */
#define FIELD_LINE(part, type, name, array) part " " #type " " #name #array "\n"
#define HEADER_LINE(type, name, array)      FIELD_LINE("header", type, name, array)
#define ENTRY_LINE(type, name, array)       FIELD_LINE("entry", type, name, array)
static const char description[] = SHEAF_RECORD_HEADER(HEADER_LINE) SHEAF_RECORD_CACHE(ENTRY_LINE)
#define SHEAF_SLOT_COUNTERS(name, help) "counter " #name "\n"
#include "cache/slot/counters.def"
#undef SHEAF_SLOT_COUNTERS
#define SHEAF_CACHE_GAUGES(name, help) "gauge " #name "\n"
#include "cache/slot/counters.def"
#undef SHEAF_CACHE_GAUGES
#define SHEAF_PROCESS_VALUES(name, help) "value " #name "\n"
#include "cache/slot/counters.def"
#undef SHEAF_PROCESS_VALUES
#define SHEAF_COUNTER_SUMS(name, sum, help) "cache " #name " = " #sum "\n"
#include "cache/slot/counters.def"
#undef SHEAF_COUNTER_SUMS
#define SHEAF_CACHE_SUMS(name, sum, help) "cache " #name " = " #sum "\n"
#include "cache/slot/counters.def"
#undef SHEAF_CACHE_SUMS
#define SHEAF_PROCESS_SUMS(name, sum, help) "process " #name " = " #sum "\n"
#include "cache/slot/counters.def"
#undef SHEAF_PROCESS_SUMS
    ;

#define HEADER_BYTES(type, name, array) +sizeof(((struct sheaf_record_header *)0)->name)
#define ENTRY_BYTES(type, name, array)  +sizeof(((struct sheaf_record_cache *)0)->name)
_Static_assert(SHEAF_RECORD_HEADER(HEADER_BYTES) == sizeof(struct sheaf_record_header) &&
                   SHEAF_RECORD_CACHE(ENTRY_BYTES) == sizeof(struct sheaf_record_cache),
               "the structures have no gaps");
_Static_assert(CACHE_GAUGES <= array_size(((struct sheaf_record_cache *)0)->gauges), "gauges fit the record");

enum {
    TEXT_AT = sizeof(struct sheaf_record_header),
    CHECKED_END = TEXT_AT + sizeof(description) - 1,
};
_Static_assert(CHECKED_END <= RECORD_VALUES_AT && PROCESS_VALUES * 8 <= RECORD_CACHES_AT - RECORD_VALUES_AT,
               "the parts of the file do not overlap");

/* ---- layout ---- */

/* Parts that are mapped or confirmed by themselves begin a page, and the profile area a page of the largest size. */
#define PART_ALIGN (64ul << 10)

static uint64_t control_at(void)
{
    return round_up(RECORD_CACHES_AT + record_file.caches * sizeof(struct sheaf_record_cache), space.page_size);
}

static uint64_t window_at(void)
{
    return control_at() + round_up(sizeof(struct sheaf_control), space.page_size);
}

struct sheaf_control *record_control(void)
{
    return (struct sheaf_control *)(void *)record_at(control_at());
}

char *record_window(void)
{
    return record_at(window_at());
}

static uint64_t file_size(void)
{
    return record_file.slots_at + record_file.slots * record_slot_stride();
}

static uint64_t profile_at(void)
{
    return round_up(file_size(), PART_ALIGN);
}

/* Where the profile area is mapped: behind the counters of all slots, those that the file lacks included. Unlike
 * profile_at() it does not depend on the CPUs that are online, so that a child's file takes the same place. */
static uint64_t profile_mapped_at(void)
{
    return round_up(record_file.slots_at + space.slots * record_slot_stride(), PART_ALIGN);
}

/*
 * One more than the number of the last online CPU. The file is a list such as 0-3,8-11, whose last number is the
 * largest.
 */
static unsigned cpus_online(void)
{
    char text[1024];
    unsigned last = 0;
    file_read("/sys/devices/system/cpu/online", text, sizeof(text));
    for (const char *at = text; *at; at++)
        last = *at < '0' || *at > '9' ? (at[1] ? 0 : last) : last * 10 + (unsigned)(*at - '0');
    return last + 1 > cpu_allowed_count ? last + 1 : cpu_allowed_count;
}

static void plan(void)
{
    record_file.caches = numa.count * COUNTER_GROUP;
    record_file.slots = slot_reachable(cpus_online());
    record_file.slots_at = round_up(window_at() + SHEAF_WINDOW_BYTES, PART_ALIGN);
}

/* ---- the header ---- */

uint64_t record_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void program_name(char *into, size_t size)
{
    const char *file = libc_program();
    const char *slash = file ? strrchr(file, '/') : NULL;
    snprintf(into, size, "%s", slash ? slash + 1 : file ? file : "unknown");
}

static const char *mode_name(void)
{
    static const char *const mode_names[] = {"lock", "rseq mm_cid", "rseq cpu_id", "rseq own"};
    return mode_names[slot_mode];
}

uint32_t record_checksum(const char *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* Process numbers are reused. A number and its start time are not, within one boot and one PID namespace. */
static void identify_process(struct sheaf_record_header *h)
{
    char text[1024];
    struct stat namespace;
    if (file_read("/proc/self/stat", text, sizeof(text))) {
        char *at = strrchr(text, ')'); /* the name, in parentheses, may contain anything */
        for (int field = 2; at && field < 22; field++)
            at = strchr(at + 1, ' ');
        const char *number = at ? at + 1 : "";
        uint64_t start = 0;
        text_number(&number, false, &start);
        h->process_start = start;
    }
    if (sys_call(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/ns/pid", (long)&namespace, 0, 0, 0) == 0)
        h->pid_namespace = namespace.st_ino;
    if (file_read("/proc/sys/kernel/random/boot_id", text, sizeof(text)))
        snprintf(h->boot_id, sizeof(h->boot_id), "%.*s", (int)strcspn(text, "\n"), text);
}

static void fill_header(struct sheaf_record_header *h, const char *program)
{
    struct utsname system;
    *h = (struct sheaf_record_header){
        .version = SHEAF_RECORD_VERSION,
        .checked_size = CHECKED_END,
        .text_offset = TEXT_AT,
        .file_size = file_size(),
        .values_offset = RECORD_VALUES_AT,
        .caches_offset = RECORD_CACHES_AT,
        .slots_offset = record_file.slots_at,
        .cache_max = record_file.caches,
        .cache_stride = sizeof(struct sheaf_record_cache),
        .slot_max = record_file.slots,
        .slot_stride = (uint32_t)record_slot_stride(),
        .counter_stride = COUNTER_STRIDE,
        .pid = (uint32_t)getpid(),
        .parent_pid = (uint32_t)getppid(),
        .start_time_ns = record_now_ns(),
        .mode = slot_mode,
        .fold_interval = 0u - slot_fold_start,
        .page_size = (uint32_t)space.page_size,
        .control_offset = control_at(),
        .window_offset = window_at(),
        .profile_offset = record_file.profile ? profile_at() : 0,
        .profile_size = record_file.profile ? SHEAF_PROFILE_BYTES : 0,
    };
    snprintf(h->mode_name, sizeof(h->mode_name), "%s", mode_name());
    snprintf(h->sheaf_version, sizeof(h->sheaf_version), "%s", SHEAF_VERSION);
    snprintf(h->program, sizeof(h->program), "%.127s", program);
    if (uname(&system) == 0)
        snprintf(h->kernel, sizeof(h->kernel), "%.60s %.60s", system.release, system.machine);
    identify_process(h);
    memcpy(record_at(TEXT_AT), description, sizeof(description) - 1);
    h->checksum = record_checksum(record_at(SHEAF_RECORD_CHECKED_FROM), CHECKED_END - SHEAF_RECORD_CHECKED_FROM);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(h->magic, SHEAF_RECORD_MAGIC, sizeof(h->magic)); /* last: a reader sees a complete header or none */
}

/* ---- creation ---- */

void record_complain(const char *what, const char *advice)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: no record in ");
    message_text(&m, sheaf_config.record);
    message_text(&m, ": ");
    message_text(&m, what);
    message_text(&m, advice);
    message_write(&m);
}

/* If the process already executed the same program before, the name gets a running number. */
static int create_file(const char *program)
{
    for (int i = 0; i < 1000; i++) {
        if (i)
            snprintf(path, sizeof(path), "%s/%s.%d.%d.sheaf", sheaf_config.record, program, (int)getpid(), i);
        else
            snprintf(path, sizeof(path), "%s/%s.%d.sheaf", sheaf_config.record, program, (int)getpid());
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/*
 * Allocates blocks on disk for what will be written: if there are none, writing to a mapped page raises SIGBUS,
 * which would end the program. They cover the header and malloc's caches in all slots that online CPUs can use,
 * because a program that starts on one CPU may later run on others. File systems without this call are assumed to
 * have room.
 */
static bool allocate(int fd, off_t from, off_t size)
{
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, from, size) == 0 ||
           (errno != ENOSPC && errno != EDQUOT && errno != EFBIG);
}

/* The numbers of malloc's caches, and with a profile area those of their sampled caches, end here. */
static unsigned caches_end(void)
{
    return record_file.reach_profile ? SAMPLED_END : CACHE_GAP;
}

static bool has_room(int fd)
{
    uint64_t page = space.page_size;
    bool room = allocate(fd, 0, RECORD_CACHES_AT) && allocate(fd, (off_t)control_at(), (off_t)page);
    for (unsigned first = 0; room && first < record_file.caches; first += COUNTER_GROUP) {
        uint64_t caches_at = RECORD_CACHES_AT + first * sizeof(struct sheaf_record_cache);
        unsigned end = first ? CACHE_GAP : caches_end();
        room = allocate(fd, (off_t)caches_at, (off_t)(end * sizeof(struct sheaf_record_cache)));
        for (unsigned slot = 0; room && slot < record_file.slots; slot++) {
            uint64_t counters_at = record_file.slots_at + slot * record_slot_stride() + first * COUNTER_STRIDE;
            room = allocate(fd, (off_t)counters_at, (off_t)end * COUNTER_STRIDE);
        }
    }
    return room;
}

/* Whether the file has memory for an array of which the part for sampled caches is about to be used. */
static bool confirm_sampled(uint64_t offset, size_t size)
{
    uint64_t from = offset + CACHE_GAP * size, to = offset + SAMPLED_END * size;
    from -= from % space.page_size;
    return vm_populate(record_at(from), round_up(to - from, space.page_size));
}

bool record_file_has_sampled(void)
{
    bool room = confirm_sampled(RECORD_CACHES_AT, sizeof(struct sheaf_record_cache));
    for (unsigned slot = 0; room && slot < record_file.slots; slot++)
        room = confirm_sampled(record_file.slots_at + slot * record_slot_stride(), COUNTER_STRIDE);
    return room;
}

/*
 * Beyond the limit of file size a signal would end the program. Where the file cannot reach the end of the profile
 * area, it ends before that area.
 */
static bool extend(int fd)
{
    struct rlimit most;
    uint64_t limit = getrlimit(RLIMIT_FSIZE, &most) == 0 ? most.rlim_cur : UINT64_MAX;
    if (limit < file_size()) {
        errno = EFBIG;
        return false;
    }
    uint64_t end = profile_at() + SHEAF_PROFILE_BYTES;
    bool whole = record_file.reach_profile && limit >= end && ftruncate(fd, (off_t)end) == 0;
    return (whole || ftruncate(fd, (off_t)file_size()) == 0) && has_room(fd);
}

/* ---- mapping ---- */

/*
 * Reserves the place of all parts. The profile area is left out where it makes the mapping too large, as with
 * RLIMIT_AS. A forked child has the place already.
 */
static bool reserve(void)
{
    static const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (mapping)
        return true;
    size_t least = profile_mapped_at(), most = least + SHEAF_PROFILE_BYTES;
    char *at = mmap(NULL, mapped = most, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        at = mmap(NULL, mapped = least, PROT_NONE, flags, -1, 0);
    mapping = at == MAP_FAILED ? NULL : at;
    if (mapping)
        internal_note(mapping, mapped); /* the profile area has the addresses of samples */
    return mapping;
}

/* Maps [from, to) of the place: the file from `offset` on, or memory if `fd` is -1. */
static bool map_part(uint64_t from, uint64_t to, int fd, uint64_t offset)
{
    int flags = MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    return from >= to ||
           mmap(mapping + from, to - from, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset) != MAP_FAILED;
}

/*
 * Maps the file, behind it memory for the counters of all slots that it lacks, and then the profile area: an access
 * to a mapped page behind the end of a file raises SIGBUS. The file never becomes shorter than it is at the start,
 * and only CPUs that are brought online later touch that memory.
 */
static bool map_all(int fd)
{
    uint64_t end = round_up(file_size(), space.page_size), profile = profile_mapped_at();
    if (!reserve() || !map_part(0, file_size(), fd, 0) || !map_part(end, profile, -1, 0))
        return false;
    bool place = mapped > profile && map_part(profile, mapped, fd, profile_at());
    record_file.profile = place ? mapping + profile : NULL;
    return true;
}

/* Leaves no part of a file mapped, neither of this process nor of its parent. */
static void unmap_all(bool child)
{
    if (mapping && !(child && map_part(0, mapped, -1, 0))) {
        munmap(mapping, mapped);
        mapping = NULL;
    }
    record_file.profile = NULL;
}

/* No strerror(): within malloc, libc may hold the lock of locales. */
static const char *error_text(int error)
{
    static char text[24];
#ifdef __GLIBC__
    if (libc_has(strerrordesc_np))
        return strerrordesc_np(error);
#endif
    snprintf(text, sizeof(text), "error %d", error);
    return text;
}

static const char wants[] = "; set SHEAF_RECORD to a writable directory with room for some MiB";

bool record_file_open(void)
{
    char program[128];
    bool child = mapping;
    program_name(program, sizeof(program));
    plan();
    int fd = create_file(program);
    if (fd >= 0 && extend(fd) && map_all(fd)) {
        close(fd);
        record_file.header = (struct sheaf_record_header *)(void *)mapping;
        fill_header(record_file.header, program);
        return true;
    }
    record_complain(error_text(errno), wants);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    unmap_all(child);
    return false;
}
