#include "process/setting.h"
#include "cache/kmem_cache.h"
#include "platform/config/config.h"
#include "process/helper.h"
#include "memory/region/huge.h"
#include "cache/slot/span_cache.h"

enum option_index {
#define OPTION_EACH(name) OPTION_##name,
#include "platform/config/options.def"
    OPTIONS
};

/* By their numbers in sheaf/control.h. */
static const enum helper_choice helper_choices[] = {HELPER_OFF, HELPER_ON, HELPER_AUTO};

/* The bounds that the table of options gives; none for texts. */
static const struct {
    uint64_t least, most;
} bounds[OPTIONS] = {
#define OPTION_BOOLEAN(name, ...)                              [OPTION_##name] = {0, 1},
#define OPTION_NUMBER(name, field, default_, least, most, ...) [OPTION_##name] = {least, most},
#define OPTION_SIZE(name, field, default_, least, most, ...)   [OPTION_##name] = {least, most},
#define OPTION_CHOICE(name, ...)                               [OPTION_##name] = {0, array_size(helper_choices) - 1},
#include "platform/config/options.def"
};

static bool has_no_effect(enum option_index which, const struct sheaf_config *config)
{
#define OPTION_NO_EFFECT(name, condition, text)                                                                      \
    if (which == OPTION_##name && (condition))                                                                       \
        return true;
#include "platform/config/options.def"
    return false;
}

/* The configuration with the change, and which option that is; OPTIONS for an unknown subject. */
static enum option_index changed_by(unsigned subject, uint64_t value, struct sheaf_config *config)
{
    switch (subject) {
    case SHEAF_SET_DECAY:
        config->decay_ms = (uint32_t)value;
        return OPTION_decay;
    case SHEAF_SET_KEEP:
        config->keep = value;
        return OPTION_keep;
    case SHEAF_SET_HELPER:
        config->helper = value < array_size(helper_choices) ? helper_choices[value] : HELPER_OFF;
        return OPTION_helper;
    case SHEAF_SET_HUGE:
        config->huge = value;
        return OPTION_huge;
    case SHEAF_SET_BARN_MAX:
        config->barn_max = value;
        return OPTION_barn_max;
    default:
        return OPTIONS;
    }
}

/*
 * Apply sheaf_config.barn_max to the caches in use. A cache that another thread is setting up meanwhile may keep the
 * former limit. The remote drain lock keeps caches from being destroyed. A barn that has grown beyond the new limit
 * takes no sheaves until it holds less.
 */
static void limit_barns(void)
{
    if (!lock_acquire(lock_of(LOCK_DRAIN)))
        return;
    for (unsigned i = CACHE_FIRST; i < read_once(cache_top); i++) {
        if (!cache_in_use(cache_at(i)))
            continue;
        cache_barn_limits(cache_at(i), cache_at(i)->slab.size);
        uint32_t more = cache_at(i)->barn_most - cache_at(i)->barn_least;
        for (unsigned domain = 0; domain < slot_domains(); domain++) {
            struct barn *barn = cache_barn(cache_at(i), domain);
            if (atomic_load_explicit(&barn->grown, memory_order_relaxed) > more)
                atomic_store_explicit(&barn->grown, more, memory_order_relaxed);
        }
    }
    lock_release(lock_of(LOCK_DRAIN));
}

/* Other threads read these fields at any time. Only this one writes them, except that mallopt() sets `keep`. */
static void apply(enum option_index which, const struct sheaf_config *config)
{
    switch (which) {
    case OPTION_decay:
        write_once(sheaf_config.decay_ms, config->decay_ms);
        region_decay(config->decay_ms);
        break;
    case OPTION_keep:
        write_once(sheaf_config.chosen.keep, true);
        write_once(sheaf_config.keep, config->keep);
        region_retain(config->keep, true);
        span_cache_keep(config->keep);
        break;
    case OPTION_helper:
        write_once(sheaf_config.helper, config->helper);
        break;
    case OPTION_huge:
        write_once(sheaf_config.huge, config->huge);
        huge_set(config->huge);
        break;
    case OPTION_barn_max:
        write_once(sheaf_config.barn_max, config->barn_max);
        limit_barns();
        break;
    default:
        break;
    }
}

enum sheaf_status setting_change(unsigned subject, uint64_t value)
{
    struct sheaf_config changed = sheaf_config;
    enum option_index which = changed_by(subject, value, &changed);
    if (which == OPTIONS)
        return SHEAF_UNKNOWN;
    if (value < bounds[which].least || value > bounds[which].most)
        return SHEAF_RANGE;
    if (has_no_effect(which, &changed) || (which == OPTION_helper && helper_impossible))
        return SHEAF_NO_EFFECT;
    apply(which, &changed);
    return SHEAF_DONE;
}
