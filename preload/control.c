/*
 * The client may write anything into the file at any time. Therefore all that decides lies in private memory: the
 * request is copied once, each part of it is checked, and nothing of the file is read besides it.
 */
#include "preload/control.h"
#include "preload/profile.h"
#include "preload/record.h"
#include "preload/record_file.h"
#include "diagnostics/leak/snapshot.h"
#include "platform/os/cgroup.h"
#include "platform/os/hooks.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"
#include "process/decay.h"
#include "process/helper.h"
#include "process/map.h"
#include "process/setting.h"
#include "memory/region/region.h"
#include "memory/space/locks.h"

#define REQUEST_OPERATION(r) ((r)&0xff)
#define REQUEST_SUBJECT(r)   ((unsigned)((r) >> 8) & 0xff)
#define REQUEST_VALUE(r)     ((r) >> 24)

#define SLICE_CACHE_SHIFT 4
#define SLICE_OUT_SHIFT   15
#define SLICE_FIRST       (1u << 31)
#define WINDOW_WORDS      (SHEAF_WINDOW_BYTES / sizeof(uint32_t))
_Static_assert(CACHE_MAX - 1 <= SHEAF_SLICE_UNRECORDED &&
                   SHEAF_SLICE_UNRECORDED < 1 << (SLICE_OUT_SHIFT - SLICE_CACHE_SHIFT),
               "all numbers of caches fit");

struct answer {
    enum sheaf_status status;
    uint64_t results[array_size(((struct sheaf_control *)0)->results)];
};

/*
 * `worker` is the thread pointer of the thread that does a request, 0 if there is none. So a handler that interrupts
 * this thread does not begin another request, and in a forked child the word tells whether the worker exists there.
 * `handled` is the last request that was done or refused; written by the worker alone.
 */
static _Atomic uint64_t worker, handled, looks;
static _Atomic uint32_t waiter;     /* the helper thread */
static _Atomic uint32_t generation; /* how often this process became another one by fork */

/* ---- operations ---- */

static void set(uint64_t request, struct answer *answer)
{
    answer->status = setting_change(REQUEST_SUBJECT(request), REQUEST_VALUE(request));
}

static void profile(uint64_t request, struct answer *answer)
{
    enum sheaf_refusal why = 0;
    answer->status = profile_request(REQUEST_VALUE(request), &why);
    answer->results[0] = answer->status == SHEAF_REFUSED ? why : 0;
}

static uint32_t window_word(const struct map_slice *slice)
{
    uint32_t word = slice->kind | (slice->first ? SLICE_FIRST : 0);
    if (slice->kind != SHEAF_SLICE_SLAB)
        return word;
    unsigned number = record_number(slice->cache);
    uint32_t cache = number < record_file.caches ? number : SHEAF_SLICE_UNRECORDED;
    uint32_t out = slice->out < SHEAF_SLICE_OUT_MOST ? slice->out : SHEAF_SLICE_OUT_MOST;
    return word | cache << SLICE_CACHE_SHIFT | out << SLICE_OUT_SHIFT;
}

/* The window has no memory before the first request, and the file system may be full. */
static void map(uint64_t request, struct answer *answer)
{
    uint32_t *window = (uint32_t *)(void *)record_window();
    uint32_t slices = region_end(), n = 0;
    uint64_t from = REQUEST_VALUE(request);
    answer->status = from > slices ? SHEAF_RANGE : SHEAF_NO_ROOM;
    if (from > slices || !vm_populate(window, SHEAF_WINDOW_BYTES))
        return;
    struct map_walk walk = {0};
    if (from < slices)
        walk = map_from((uint32_t)from);
    for (; n < WINDOW_WORDS && from + n < slices; n++) {
        struct map_slice slice = map_next(&walk);
        write_once(window[n], window_word(&slice));
    }
    *answer = (struct answer){.status = SHEAF_DONE, .results = {from, n, slices}};
}

/* The helper alone, because its stack and registers refer to no block of the program. */
static void leaks(uint64_t request, struct answer *answer)
{
    enum sheaf_refusal why = SHEAF_IN_SANDBOX;
    long copy = 0;
    if ((uint32_t)sys_call3(SYS_gettid, 0, 0, 0) != atomic_load(&waiter))
        why = SHEAF_NOT_HELPER;
    else if (!REQUEST_SUBJECT(request) && snapshot_would_blur())
        why = SHEAF_IS_BUSY;
    else if (cgroup_may_open()) {
        copy = snapshot_make(REQUEST_VALUE(request));
        why = copy == -EBUSY ? SHEAF_HAS_COPY : copy == -ENOMEM ? SHEAF_NO_MEMORY : SHEAF_NO_COPY;
    }
    if (copy > 0)
        *answer = (struct answer){.results = {(uintptr_t)&snapshot_leaks, sizeof(snapshot_leaks)}};
    else
        *answer = (struct answer){.status = SHEAF_REFUSED, .results = {why, (uint64_t)-copy}};
}

static void perform(uint64_t request, struct answer *answer)
{
    switch (REQUEST_OPERATION(request)) {
    case SHEAF_FOLD:
        cache_fold_all();
        profile_count();
        cache_publish_all();
        break;
    case SHEAF_TRIM:
        answer->results[0] = cache_trim_all();
        break;
    case SHEAF_SET:
        set(request, answer);
        break;
    case SHEAF_PROFILE:
        profile(request, answer);
        break;
    case SHEAF_MAP:
        map(request, answer);
        break;
    case SHEAF_LEAKS:
        leaks(request, answer);
        break;
    default:
        answer->status = SHEAF_UNKNOWN;
    }
}

/* ---- requests ---- */

/*
 * A handler that interrupts this function and forks gives the child a new control area at the same address. The child
 * then does not answer there, because nobody has asked it; if the fork comes between the comparison and a store, the
 * child's area has an answer to a request that was never made, which a client ignores.
 */
static void answer_request(uint64_t request)
{
    uint32_t before = atomic_load(&generation);
    struct answer answer = {.status = SHEAF_DONE};
    perform(request, &answer);
    if (atomic_load(&generation) != before)
        return;
    struct sheaf_control *control = record_control();
    for (unsigned i = 0; i < array_size(answer.results); i++)
        write_once(control->results[i], answer.results[i]);
    write_once(control->status, (uint64_t)answer.status);
    __atomic_store_n(&control->answer, request, __ATOMIC_RELEASE);
}

/*
 * A signal handler that interrupted the holder of a lock leaves the request to another look, because it could do only
 * part of it.
 */
static void take_request(uint64_t request)
{
    uint64_t none = 0;
    if (!hooks.may_wait(lock_of(LOCK_SETUP)) || !atomic_compare_exchange_strong(&worker, &none, lock_self()))
        return;
    /* no other thread has done it meanwhile, and it was not withdrawn */
    if (request != atomic_load(&handled) &&
        request == __atomic_load_n(&record_control()->request, __ATOMIC_ACQUIRE)) {
        if (REQUEST_OPERATION(request) != SHEAF_NOTHING)
            answer_request(request);
        atomic_store(&handled, request);
    }
    atomic_store(&worker, 0);
}

static void say_alive(void)
{
    write_once(((uint64_t *)(void *)record_at(RECORD_VALUES_AT))[VALUE_alive_time_ns], record_now_ns());
}

/* Only the helper reaps: other threads may have filters that kill for it, and children by vfork() would find no
 * child. */
static bool copy_runs(void)
{
    return unlikely(snapshot_known()) && (uint32_t)sys_call3(SYS_gettid, 0, 0, 0) == atomic_load(&waiter) &&
           snapshot_exists();
}

static bool poll_request(void)
{
    if (!record_is_ours())
        return true;
    say_alive();
    struct sheaf_control *control = record_control();
    write_once(control->looks, atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed) + 1);
    uint64_t request = __atomic_load_n(&control->request, __ATOMIC_ACQUIRE);
    if (unlikely(request != atomic_load_explicit(&handled, memory_order_relaxed)))
        take_request(request);
    return !copy_runs() && request == atomic_load_explicit(&handled, memory_order_relaxed);
}

static uint32_t *bell(void)
{
    return record_file.header ? &record_control()->bell : NULL;
}

static void publish_waits(bool waits)
{
    if (!record_file.header)
        return;
    say_alive();
    write_once(((uint64_t *)(void *)record_at(RECORD_VALUES_AT))[VALUE_alive_interval_ns],
               waits ? HELPER_SLEEP_MS * 1000000ull : 0);
    uint32_t number = waits ? (uint32_t)sys_call3(SYS_gettid, 0, 0, 0) : 0;
    atomic_store(&waiter, number);
    write_once(record_control()->waits, number);
}

void control_start(void)
{
    hooks.poll_control = poll_request;
    hooks.control_bell = bell;
    hooks.control_waits = publish_waits;
    if (sheaf_config.helper != HELPER_OFF)
        helper_note_main();
}

void control_stop(void)
{
    hooks.poll_control = NULL;
    hooks.control_bell = NULL;
    hooks.control_waits = NULL;
}

/* The worker is not in the child, unless the child was forked in a handler that interrupted it. */
void control_fork_child(void)
{
    atomic_fetch_add(&generation, 1);
    atomic_store(&handled, 0);
    atomic_store(&looks, 0);
    atomic_store(&waiter, 0);
    if (atomic_load(&worker) != lock_self())
        atomic_store(&worker, 0);
}
