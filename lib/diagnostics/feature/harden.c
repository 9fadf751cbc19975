#include "diagnostics/feature/harden.h"
#include "diagnostics/feature/instrument.h"
#include "cache/kmem_cache.h"
#include "cache/misuse.h"
#include "diagnostics/feature/quarantine.h"
#include "platform/os/text.h"

#include <string.h>

#define ALL_QUARANTINE (16ul << 20)
#define ALL_SAMPLE     5000
#define SAMPLE_MOST    1000000000

/* ---- the list ---- */

static bool read_word(const char **at, struct harden_config *config)
{
    bool *const flags[] = {&config->random, &config->check, &config->zero_free, &config->zero_alloc, &config->guard};
    static const char *const words[] = {"random", "check", "zero-free", "zero-alloc", "guard"};
    for (unsigned i = 0; i < array_size(words); i++)
        if (text_word(at, words[i]))
            return *flags[i] = true;
    if (!text_word(at, "all"))
        return false;
    for (unsigned i = 0; i < array_size(flags); i++)
        *flags[i] = true;
    if (!config->quarantine)
        config->quarantine = ALL_QUARANTINE;
    if (!config->sample)
        config->sample = ALL_SAMPLE;
    return true;
}

static const char *read_list(const char *at, struct harden_config *config)
{
    uint64_t n;
    while (*at) {
        if (text_word(&at, "quarantine=")) {
            if (!text_number(&at, true, &n) || n > 1ull << 40)
                return "no such size; give quarantine=BYTES up to 1T, such as 16M";
            config->quarantine = n;
        } else if (text_word(&at, "sample=")) {
            if (!text_number(&at, false, &n) || !n || n > SAMPLE_MOST)
                return "no such number; give sample=N, to sample one allocation of N";
            config->sample = (uint32_t)n;
        } else if (!read_word(&at, config)) {
            return "no such word; give words of random, check, zero-free, zero-alloc, guard, quarantine=BYTES, "
                   "sample=N, all";
        }
        if (*at && !(text_word(&at, ",") && *at))
            return "extra characters after a word; separate words by commas";
    }
    return NULL;
}

/* The setter of `harden`: words as in docs/hardening.md. */
const char *harden_configure(struct sheaf_config *config, const char *list)
{
    struct harden_config read = {.random = false};
    const char *wrong = *list ? read_list(list, &read) : "an empty list; give words, such as check,zero-free";
    read.large = read.zero_free || read.zero_alloc || read.guard || read.quarantine;
    if (!wrong)
        config->harden = read;
    return wrong;
}

/* ---- objects ---- */

/* Constructed objects stay constructed while they are free, RCU readers may still read typesafe ones, and
 * debugging fills free objects with its own pattern. */
bool harden_keeps(const struct kmem_cache *cache)
{
    return cache->slab.ctor || cache->slab.typesafe || cache->instruments & INSTRUMENT_DEBUG;
}

void harden_alloc(const struct kmem_cache *cache, void *object)
{
    if (sheaf_config.harden.zero_alloc && !harden_keeps(cache))
        memset(object, 0, cache->slab.size);
}

/* Report a free of anything but an object that is out of its slab, before the object is written to. */
static void check(const struct kmem_cache *cache, void *object)
{
    bool inside = slab_object(&cache->slab, object) != object;
    if (unlikely(inside || slab_is_free(&cache->slab, object))) {
        struct slab_report report = {inside ? SLAB_INTERIOR : SLAB_DOUBLE_FREE, object};
        misuse_slab(cache, &report);
    }
}

void *harden_free(struct kmem_cache *cache, void *object)
{
    bool keep = harden_keeps(cache);
    check(cache, object);
    if (!cache_is_short(cache) && quarantine_object(cache, object, keep)) {
        count(slot_counting(), cache->number, COUNT_free_slowpath, 1);
        return NULL;
    }
    if (sheaf_config.harden.zero_free && !keep)
        memset(object, 0, cache->slab.size);
    return object;
}
