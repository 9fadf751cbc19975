#define _GNU_SOURCE
#include "preload/record.h"
#include "preload/status.h"
#include "malloc/large.h"
#include "kmem/reserve.h"
#include "cache/ends.h"
#include "cache/kmem_cache.h"
#include "node/node.h"
#include "deferred/rcu.h"
#include "process/census.h"
#include "process/decay.h"
#include "process/start.h"
#include "cache/takeover.h"
#include "os/cpu.h"
#include "os/message.h"
#include "os/syscall.h"
#include "os/file.h"
#include "os/vm.h"
#include "region/huge.h"
#include "region/outside.h"
#include "slab/holes.h"

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

/*
 * The slots' counters lie in the file itself (counters_file points there). What the cache layer knows is copied to
 * it after each slow path. Everything that affects decisions stays in private memory, because a child made by a
 * bare clone(), which runs no handlers, shares the mapping until its first slow path. There `alive`, a page that
 * the kernel wipes in children, tells it that it is a child.
 */
static struct sheaf_record_header *header;
static unsigned file_caches, file_slots; /* what the file has room for */
static uint64_t slots_at, mapped_bytes;
static uint32_t *alive;
static large_table char path[512];

/* The text of the file; sheaf/record.h describes its lines. */
#define FIELD_LINE(part, type, name, array) part " " #type " " #name #array "\n"
#define HEADER_LINE(type, name, array)      FIELD_LINE("header", type, name, array)
#define ENTRY_LINE(type, name, array)       FIELD_LINE("entry", type, name, array)
static const char description[] = SHEAF_RECORD_HEADER(HEADER_LINE) SHEAF_RECORD_CACHE(ENTRY_LINE)
#define SHEAF_SLOT_COUNTERS(name, help) "counter " #name "\n"
#include "slot/counters.def"
#undef SHEAF_SLOT_COUNTERS
#define SHEAF_CACHE_GAUGES(name, help) "gauge " #name "\n"
#include "slot/counters.def"
#undef SHEAF_CACHE_GAUGES
#define SHEAF_PROCESS_VALUES(name, help) "value " #name "\n"
#include "slot/counters.def"
#undef SHEAF_PROCESS_VALUES
#define SHEAF_COUNTER_SUMS(name, sum, help) "cache " #name " = " #sum "\n"
#include "slot/counters.def"
#undef SHEAF_COUNTER_SUMS
#define SHEAF_CACHE_SUMS(name, sum, help) "cache " #name " = " #sum "\n"
#include "slot/counters.def"
#undef SHEAF_CACHE_SUMS
#define SHEAF_PROCESS_SUMS(name, sum, help) "process " #name " = " #sum "\n"
#include "slot/counters.def"
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
    VALUES_AT = 8192,
    CACHES_AT = 16384,
};
_Static_assert(CHECKED_END <= VALUES_AT && PROCESS_VALUES * 8 <= CACHES_AT - VALUES_AT,
               "the parts of the file do not overlap");

static uint64_t slot_stride(void)
{
    return (uint64_t)file_caches * COUNTER_STRIDE;
}

static uint64_t file_size(void)
{
    return slots_at + file_slots * slot_stride();
}

static char *at(uint64_t offset)
{
    return (char *)header + offset;
}

/*
 * The number of a cache in the file, which has room for malloc's caches. These have the first numbers of each node
 * (node/node.h). Returns file_caches for all others: they count in memory only.
 */
static unsigned file_number(unsigned number)
{
    unsigned first = number % node_stride;
    return first < COUNTER_GROUP ? number / node_stride * COUNTER_GROUP + first : file_caches;
}
_Static_assert(CACHE_GAP <= COUNTER_GROUP && CACHE_MAX / NODES_MAX % COUNTER_GROUP == 0,
               "malloc's caches of a node are in one group of counters");

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void program_name(char *into, size_t size)
{
    const char *file = (const char *)getauxval(AT_EXECFN);
    const char *slash = file ? strrchr(file, '/') : NULL;
    snprintf(into, size, "%s", slash ? slash + 1 : file ? file : "unknown");
}

static void complain(const char *what, const char *advice)
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
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static const char *mode_name(void)
{
    static const char *const mode_names[] = {"lock", "rseq mm_cid", "rseq cpu_id", "rseq own"};
    return mode_names[slot_mode];
}

/* CRC-32, as zlib computes it. */
static uint32_t checksum(const char *bytes, size_t size)
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
        h->process_start = at ? strtoull(at + 1, NULL, 10) : 0;
    }
    if (stat("/proc/self/ns/pid", &namespace) == 0)
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
        .values_offset = VALUES_AT,
        .caches_offset = CACHES_AT,
        .slots_offset = slots_at,
        .cache_max = file_caches,
        .cache_stride = sizeof(struct sheaf_record_cache),
        .slot_max = file_slots,
        .slot_stride = (uint32_t)slot_stride(),
        .counter_stride = COUNTER_STRIDE,
        .pid = (uint32_t)getpid(),
        .parent_pid = (uint32_t)getppid(),
        .start_time_ns = now_ns(),
        .mode = slot_mode,
        .fold_interval = 0u - slot_fold_start,
        .page_size = (uint32_t)space.page_size,
    };
    snprintf(h->mode_name, sizeof(h->mode_name), "%s", mode_name());
    snprintf(h->sheaf_version, sizeof(h->sheaf_version), "%s", SHEAF_VERSION);
    snprintf(h->program, sizeof(h->program), "%.127s", program);
    if (uname(&system) == 0)
        snprintf(h->kernel, sizeof(h->kernel), "%.60s %.60s", system.release, system.machine);
    identify_process(h);
    memcpy(at(TEXT_AT), description, sizeof(description) - 1);
    h->checksum = checksum(at(SHEAF_RECORD_CHECKED_FROM), CHECKED_END - SHEAF_RECORD_CHECKED_FROM);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(h->magic, SHEAF_RECORD_MAGIC, sizeof(h->magic)); /* last: a reader sees a complete header or none */
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

static bool has_room(int fd)
{
    bool room = allocate(fd, 0, CACHES_AT);
    for (unsigned first = 0; room && first < file_caches; first += COUNTER_GROUP) {
        uint64_t caches_at = CACHES_AT + first * sizeof(struct sheaf_record_cache);
        room = allocate(fd, (off_t)caches_at, CACHE_GAP * sizeof(struct sheaf_record_cache));
        for (unsigned slot = 0; room && slot < file_slots; slot++) {
            uint64_t counters_at = slots_at + slot * slot_stride() + first * COUNTER_STRIDE;
            room = allocate(fd, (off_t)counters_at, CACHE_GAP * COUNTER_STRIDE);
        }
    }
    return room;
}

/*
 * Maps the file, and behind it memory for the counters of all slots that it lacks: an access to a mapped page behind
 * the end of a file raises SIGBUS. The file therefore has its size from the start and keeps it, and only CPUs that
 * are brought online later touch that memory. Returns MAP_FAILED, with errno, where the system refuses.
 */
static void *map_whole(int fd)
{
    mapped_bytes = slots_at + space.slots * slot_stride();
    char *map = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED ||
        mmap(map, file_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
        return map;
    int why = errno;
    munmap(map, mapped_bytes);
    errno = why;
    return MAP_FAILED;
}

/* No strerror(): within malloc, libc may hold the lock of locales. */
static const char wants[] = "; set SHEAF_RECORD to a writable directory with room for some MiB";

static bool map_file(void)
{
    char program[128];
    program_name(program, sizeof(program));
    file_caches = numa.count * COUNTER_GROUP;
    file_slots = slot_reachable(cpus_online());
    slots_at = round_up(CACHES_AT + file_caches * sizeof(struct sheaf_record_cache), 1ul << 16);
    int fd = create_file(program);
    if (fd < 0) {
        complain(strerrordesc_np(errno), wants);
        return false;
    }
    void *map = MAP_FAILED;
    struct rlimit most; /* beyond it, a signal would end the program */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < file_size())
        errno = EFBIG;
    else if (ftruncate(fd, (off_t)file_size()) == 0 && has_room(fd))
        map = map_whole(fd);
    if (map == MAP_FAILED) {
        complain(strerrordesc_np(errno), wants);
        close(fd);
        unlink(path);
        return false;
    }
    close(fd);
    header = map;
    fill_header(header, program);
    return true;
}

/* ---- publishing ---- */

static void publish_process(void)
{
    uint64_t *values = (uint64_t *)(void *)at(VALUES_AT);
    write_once(values[VALUE_region_bytes], (uint64_t)region_mapped() << UNIT_SHIFT);
    write_once(values[VALUE_slab_bytes], region_stats.slab_units << UNIT_SHIFT);
    struct large_totals large = large_totals();
    write_once(values[VALUE_large_bytes], large.bytes);
    write_once(values[VALUE_large_blocks], large.blocks);
    write_once(values[VALUE_large_alloc], large.allocs);
    write_once(values[VALUE_large_free], large.frees);
    write_once(values[VALUE_large_remap], region_stats.large_remap);
    write_once(values[VALUE_huge_bytes], huge_units() << UNIT_SHIFT);
    write_once(values[VALUE_warm_bytes], large.warm_bytes);
    write_once(values[VALUE_stash_bytes], large.stash_bytes);
    write_once(values[VALUE_purged_bytes], region_stats.purged_units << UNIT_SHIFT);
    write_once(values[VALUE_hole_bytes], slab_hole_bytes());
    write_once(values[VALUE_outside_bytes], outside_bytes());
    write_once(values[VALUE_sheaf_bytes], sheaf_pool_bytes());
    write_once(values[VALUE_sheaf_alloc], sheaf_pool_cut());
    write_once(values[VALUE_restarts], rseq_restarts);
    write_once(values[VALUE_takeovers], takeover_count());
    write_once(values[VALUE_trims], decay_trims());
    write_once(values[VALUE_reserve_units], region_stats.reserve_units);
    struct sheaf_rcu_stats rcu = {0};
    rcu_stats(&rcu);
    write_once(values[VALUE_rcu_bytes], rcu.bytes);
    write_once(values[VALUE_rcu_sheaves], rcu.sheaves);
    write_once(values[VALUE_rcu_slabs], rcu.slabs);
    write_once(values[VALUE_rcu_grace_periods], rcu.grace_periods);
    write_once(values[VALUE_rcu_waits], rcu.waits);
    write_once(values[VALUE_rcu_lost], rcu.lost);
    write_once(values[VALUE_vm_fail], atomic_load(&vm_failures));
}

static struct sheaf_record_cache *entry_of(const struct kmem_cache *cache)
{
    struct sheaf_record_cache *entry =
        (struct sheaf_record_cache *)(void *)at(CACHES_AT) + file_number(cache->number);
    if (!entry->name[0] && cache_in_use(cache)) {
        struct sheaf_record_cache new = {
            .object_size = cache->object_size,
            .size = cache->slab.size,
            .align = cache->align,
            .slab_size = cache->slab.units * (uint32_t)UNIT_SIZE,
            .slab_objects = cache->slab.objects,
            .capacity = cache->capacity,
            .flags = cache_is_class(cache) |
                     (cache->nodes ? (numa.node[cache->slab.node] + 1u) << SHEAF_RECORD_NODE_SHIFT : 0),
        };
        memcpy(new.name, cache->name, sizeof(new.name));
        new.checksum = checksum((const char *)&new, offsetof(struct sheaf_record_cache, checksum));
        /* at once: a reader that meets an incomplete entry reads again, but a killed process leaves it incomplete */
        memcpy(entry, &new, offsetof(struct sheaf_record_cache, gauges));
    } else if (!cache_in_use(cache)) {
        memset(entry, 0, sizeof(*entry));
    }
    return entry;
}

static void publish_cache(const struct kmem_cache *cache)
{
    if (file_number(cache->number) >= file_caches)
        return;
    uint64_t *gauges = entry_of(cache)->gauges;
    struct cache_census barns;
    cache_census_barns(cache, &barns);
    write_once(gauges[GAUGE_slabs], cache->slab.slabs);
    write_once(gauges[GAUGE_objects], (uint64_t)cache->slab.slabs * cache->slab.objects);
    write_once(gauges[GAUGE_free_in_slabs], cache->slab.free);
    write_once(gauges[GAUGE_barn_sheaves], barns.barn_sheaves);
    write_once(gauges[GAUGE_barn_objects], barns.in_barns);
    write_once(gauges[GAUGE_barn_limit], barns.barn_limit);
    write_once(gauges[GAUGE_inherited], cache->inherited);
    write_once(gauges[GAUGE_alloc_slab], cache->slab.alloc_slab);
    write_once(gauges[GAUGE_free_slab], cache->slab.free_slab);
    write_once(gauges[GAUGE_free_add_partial], cache->slab.add_partial);
    write_once(gauges[GAUGE_free_remove_partial], cache->slab.remove_partial);
    write_once(gauges[GAUGE_lock_wait], cache->slab.lock->waits);
    write_once(gauges[GAUGE_alloc_fail], cache->alloc_fail);
    write_once(gauges[GAUGE_reserve_objects], atomic_load_explicit(&cache->reserved, memory_order_relaxed));
    write_once(gauges[GAUGE_rcu_objects], rcu_objects(cache));
    write_once(gauges[GAUGE_reserve_size], reserve_size(cache));
}

static void publish(const struct kmem_cache *cache)
{
    if (unlikely(!*alive))
        record_fork_child();
    if (!header)
        return;
    if (cache)
        publish_cache(cache);
    publish_process();
}

static void publish_all(void)
{
    for (unsigned i = CACHE_FIRST; i < cache_top; i++)
        if (cache_in_use(&caches[i]))
            publish_cache(&caches[i]);
    publish_process();
}

/* ---- start, fork and end ---- */

static void count_in_file(void)
{
    counters_file_stride = (intptr_t)slot_stride();
    for (unsigned i = 0; i < CACHE_MAX; i += COUNTER_GROUP)
        if (file_number(i) < file_caches)
            __atomic_store_n(&counters_file[i / COUNTER_GROUP],
                             (uintptr_t)at(slots_at) + file_number(i) * COUNTER_STRIDE, __ATOMIC_RELEASE);
    hooks.publish = publish;
}

void record_start(void)
{
    if (!cache_layer_ready || header)
        return;
    size_t page = space.page_size;
    alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED || madvise(alive, page, MADV_WIPEONFORK) != 0) {
        complain("the kernel cannot wipe pages on fork", "; records need Linux 4.14 or later");
        return;
    }
    *alive = 1;
    if (!map_file())
        return;
    /* Copies what was counted before. Usually no other thread runs at the first allocation. */
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(&caches[i]) && file_number(i) < file_caches)
                memcpy(at(slots_at) + slot * slot_stride() + file_number(i) * COUNTER_STRIDE, counter_at(slot, i, 0),
                       COUNTER_STRIDE);
    count_in_file();
    publish_all();
}

/*
 * Adds what the words of all slots count to the counters. Other threads must not run.
 */
static void fold_slots(void)
{
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
            uint64_t *word = &slot_words(slot, SLOT_ID(i))->top;
            uint64_t top = read_once(*word);
            if (cache_in_use(&caches[i]) && top && !top_held(top))
                write_once(*word, ends_top(&caches[i], ends_fold(&caches[i], slot, top)));
        }
}

/*
 * The child counts from zero; what it inherited is counted separately. The parent's counters are not touched when
 * its mapping is left.
 */
void record_fork_child(void)
{
    if (!header)
        return;
    int saved = errno;
    struct sheaf_record_header *parents = header;
    size_t parents_size = mapped_bytes;
    *alive = 1;
    for (unsigned i = CACHE_FIRST; i < cache_top; i++) {
        struct cache_census census;
        if (cache_in_use(&caches[i])) {
            cache_census(&caches[i], &census);
            caches[i].inherited_prefilled = census.in_prefilled;
            caches[i].inherited_rcu = census.in_rcu;
            caches[i].inherited = census.out - census_kept(&census);
        }
    }
    header = NULL;
    memset(counters_file, 0, sizeof(counters_file));
    fold_slots();
    for (unsigned slot = 0; slot < slot_top; slot++)
        for (unsigned i = CACHE_FIRST; i < cache_top; i++)
            if (cache_in_use(&caches[i]))
                memset(counter_at(slot, i, 0), 0, COUNTER_STRIDE);
    if (map_file()) {
        count_in_file();
        publish_all();
    } else {
        hooks.publish = NULL;
    }
    munmap(parents, parents_size);
    errno = saved;
}

/* Not ru_maxrss in the first place: a program that was started by vfork inherits its parent's. */
static uint64_t peak_rss(void)
{
    uint64_t peak = status_bytes("VmHWM:");
    struct rusage usage;
    if (!peak && getrusage(RUSAGE_SELF, &usage) == 0)
        peak = (uint64_t)usage.ru_maxrss * 1024;
    return peak;
}

void record_end(void)
{
    if (!header)
        return;
    cache_fold_all();
    publish_all();
    uint64_t *values = (uint64_t *)(void *)at(VALUES_AT);
    write_once(values[VALUE_resident_bytes], status_bytes("VmRSS:"));
    write_once(values[VALUE_peak_resident_bytes], peak_rss());
    __atomic_store_n(&values[VALUE_end_time_ns], now_ns(), __ATOMIC_RELEASE); /* last: all other values are final */
}
