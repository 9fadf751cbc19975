#define _GNU_SOURCE
#include "diagnostics/feature/fail.h"
#include "platform/config/config.h"
#include "platform/os/libc.h"
#include "platform/os/message.h"
#include "platform/os/random.h"
#include "platform/os/syscall.h"
#include "platform/os/text.h"

#include <string.h>
#include <sys/auxv.h>

#define PATTERNS    8
#define REPORT_MOST 10                    /* failures that are reported by a line each */
#define ALWAYS      (100ull * 1000000ull) /* a probability, in millionths of a percent */

struct pattern {
    const char *text; /* in the option's list, which is never freed */
    size_t length;
};

static struct {
    bool quiet, seeded;
    unsigned patterns;
    struct pattern caches[PATTERNS];
    uint64_t probability, interval, times, after, nth, space, size_least, size_most, seed;
} spec;

static _Atomic uint64_t calls, failed, space_used;
bool fail_large;

/* ---- the list ---- */

enum key { PROBABILITY, INTERVAL, TIMES, AFTER, NTH, SPACE, SIZE, SEED, VERBOSE, CACHE, PROGRAM, KEYS };
static const char *const keys[KEYS] = {"probability=", "interval=", "times=",   "after=", "nth=",    "space=",
                                       "size=",        "seed=",     "verbose=", "cache=", "program="};

/* A percentage with up to six decimal places, and an optional percent sign. */
static bool read_percent(const char **at, uint64_t *value)
{
    uint64_t whole, unit = 1000000;
    if (!text_number(at, false, &whole) || whole > 100)
        return false;
    *value = whole * unit;
    if (text_word(at, "."))
        for (; **at >= '0' && **at <= '9'; ++*at)
            *value += (uint64_t)(**at - '0') * (unit /= 10);
    text_word(at, "%");
    return *value <= ALWAYS;
}

/* N, N-M, N- or -M. */
static bool read_range(const char **at, uint64_t *least, uint64_t *most)
{
    bool low = text_number(at, true, least);
    *most = low ? *least : UINT64_MAX;
    if (!text_word(at, "-"))
        return low;
    if (!text_number(at, true, most)) {
        *most = UINT64_MAX;
        return low;
    }
    return *least <= *most;
}

static struct pattern read_pattern(const char **at)
{
    struct pattern pattern = {*at, strcspn(*at, ",")};
    *at += pattern.length;
    return pattern;
}

/* For `program=`: in other programs, which may inherit the environment, nothing fails. */
static bool is_this_program(struct pattern pattern)
{
    const char *path = libc_program();
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && text_matches(pattern.text, pattern.length, slash ? slash + 1 : path);
}

static const char *read_value(enum key key, const char **at, bool *here)
{
    uint64_t *const numbers[KEYS] = {[INTERVAL] = &spec.interval, [TIMES] = &spec.times, [AFTER] = &spec.after,
                                     [NTH] = &spec.nth,           [SPACE] = &spec.space, [SEED] = &spec.seed};
    uint64_t n;
    switch (key) {
    case PROBABILITY:
        return read_percent(at, &spec.probability) ? NULL
                                                   : "no such percentage; give probability=PERCENT from 0 to 100";
    case SIZE:
        return read_range(at, &spec.size_least, &spec.size_most)
                   ? NULL
                   : "no such range; give size=N, N-M, N- or -M, in bytes";
    case VERBOSE:
        if (!text_number(at, false, &n) || n > 1)
            return "neither 0 nor 1; give verbose=0 or 1";
        spec.quiet = !n;
        return NULL;
    case CACHE:
        if (spec.patterns == PATTERNS)
            return "more than 8 caches; give patterns, such as malloc-1*";
        spec.caches[spec.patterns++] = read_pattern(at);
        return NULL;
    case PROGRAM:
        *here = is_this_program(read_pattern(at));
        return NULL;
    default:
        spec.seeded |= key == SEED;
        return text_number(at, key == SPACE, numbers[key]) ? NULL
               : key == SPACE                              ? "not a size; give space=BYTES, such as 64K"
                              : "not a number; give numbers to interval, times, after, nth and seed";
    }
}

static const char *read_list(const char *at, bool *here)
{
    while (*at) {
        enum key key = 0;
        while (key < KEYS && !text_word(&at, keys[key]))
            key++;
        if (key == KEYS)
            return "no such name; give NAME=VALUE,... of probability, interval, times, after, nth, space, size, "
                   "seed, "
                   "verbose, cache, program";
        const char *wrong = read_value(key, &at, here);
        if (wrong)
            return wrong;
        if (*at && !(text_word(&at, ",") && *at))
            return "extra characters after a value; separate values by commas";
    }
    return spec.interval ? NULL : "an interval of 0; give interval=N, 1 or more";
}

/* The setter of `fail`: NAME=VALUE pairs as in docs/faults.md. */
const char *fail_configure(struct sheaf_config *config, const char *list)
{
    bool here = true;
    memset(&spec, 0, sizeof(spec));
    spec.probability = ALWAYS;
    spec.interval = 1;
    spec.times = spec.size_most = UINT64_MAX;
    const char *wrong = *list ? read_list(list, &here) : "an empty list; give NAME=VALUE,..., such as nth=1";
    config->fail = !wrong && here;
    if (config->fail && !spec.seeded && spec.probability != ALWAYS)
        spec.seed = random_seed() % 1000000000;
    fail_large = fail_concerns(FAIL_LARGE, false);
    return wrong;
}

bool fail_concerns(const char *cache, bool marked)
{
    bool found = marked || !spec.patterns;
    for (unsigned i = 0; i < spec.patterns && !found; i++)
        found = text_matches(spec.caches[i].text, spec.caches[i].length, cache);
    return sheaf_config.fail && found;
}

/* ---- each allocation ---- */

static void report_one(uint64_t call, const char *cache, size_t size)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: SHEAF_FAIL: allocation ");
    message_number(&m, call);
    message_text(&m, " fails (");
    message_number(&m, size);
    message_text(&m, " bytes of ");
    message_text(&m, cache);
    message_text(&m, "); nth=");
    message_number(&m, call);
    message_text(&m, " repeats it");
    message_write(&m);
}

/* Whether the request is among the first `space` bytes, which are granted. */
static bool has_space(size_t size)
{
    return spec.space && atomic_fetch_add_explicit(&space_used, size, memory_order_relaxed) + size <= spec.space;
}

/* Chance depends on the number of the call and the seed alone, so that the same call fails again whatever other
 * threads do. */
static bool chosen(uint64_t call, size_t size)
{
    if (spec.nth)
        return call == spec.nth;
    if (call <= spec.after || has_space(size) || call % spec.interval)
        return false;
    return spec.probability == ALWAYS || random_mix(random_mix(spec.seed) + call) % ALWAYS < spec.probability;
}

bool fail_now(const char *cache, size_t size)
{
    if (size < spec.size_least || size > spec.size_most)
        return false;
    uint64_t call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    if (!chosen(call, size))
        return false;
    uint64_t before = atomic_load_explicit(&failed, memory_order_relaxed);
    do {
        if (before >= spec.times)
            return false;
    } while (!atomic_compare_exchange_weak(&failed, &before, before + 1));
    if (!spec.quiet && before < REPORT_MOST)
        report_one(call, cache, size);
    return true;
}

void fail_report(void)
{
    struct message m = {.length = 0};
    if (!atomic_load(&calls))
        return;
    message_text(&m, "sheaf: SHEAF_FAIL: process ");
    message_number(&m, (uint64_t)sys_call3(SYS_getpid, 0, 0, 0));
    message_text(&m, ": ");
    message_number(&m, atomic_load(&failed));
    message_text(&m, " of ");
    message_number(&m, atomic_load(&calls));
    message_text(&m, " allocations were made to fail");
    if (spec.probability != ALWAYS) {
        message_text(&m, "; seed=");
        message_number(&m, spec.seed);
        message_text(&m, " repeats them");
    }
    message_write(&m);
}
