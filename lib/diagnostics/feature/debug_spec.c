#include "diagnostics/feature/debug_spec.h"
#include "platform/config/config.h"
#include "platform/os/text.h"

#include <string.h>

/* The flag of a letter in upper or lower case; 0 for '-', -1 for any other character. */
static int flag_of(char letter)
{
    switch (letter & ~0x20) {
    case 'F':
        return SLAB_CONSISTENCY_CHECKS;
    case 'Z':
        return SLAB_RED_ZONE;
    case 'P':
        return SLAB_POISON;
    case 'U':
        return SLAB_STORE_USER;
    case 'T':
        return SLAB_TRACE;
    case 'A':
        return SLAB_FAILSLAB;
    default:
        return letter == '-' ? 0 : -1;
    }
}

static bool ends(char c)
{
    return !c || c == ',' || c == ';';
}

static const char *wrong_part(const char *spec)
{
    for (const char *at = spec;; at++) {
        const char *letters = at;
        for (; !ends(*at); at++)
            if (flag_of(*at) < 0)
                return "no such letter; give letters of F Z P U T A or -, as in FZPU or FZ,malloc-*";
        if (memchr(letters, '-', (size_t)(at - letters)) && at - letters > 1)
            return "'-' among letters; give '-' alone to switch debugging off";
        while (*at == ',') {
            const char *name = ++at;
            while (!ends(*at))
                at++;
            if (at == name)
                return "an empty cache name; give names as in FZ,malloc-64,malloc-1*";
        }
        if (!*at)
            return NULL;
    }
}

/* The setter of `debug`. */
const char *debug_configure(struct sheaf_config *config, const char *list)
{
    const char *wrong = wrong_part(list);
    if (!wrong)
        config->debug = *list ? list : NULL;
    return wrong;
}

/* The flags of the letters at *letters, which is advanced to their end. No letters mean FZPU. */
static slab_flags_t letters_flags(const char **letters)
{
    const char *at = *letters;
    slab_flags_t flags = 0;
    if (ends(*at))
        flags = SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER;
    for (; !ends(*at); at++)
        flags |= (slab_flags_t)flag_of(*at);
    *letters = at;
    return flags;
}

slab_flags_t debug_spec_flags(const char *spec, const char *name)
{
    slab_flags_t otherwise = 0;
    for (const char *at = spec; at && *at;) {
        slab_flags_t flags = letters_flags(&at);
        if (*at != ',')
            otherwise = flags;
        while (*at == ',') {
            const char *pattern = ++at;
            while (!ends(*at))
                at++;
            if (text_matches(pattern, (size_t)(at - pattern), name))
                return flags;
        }
        at += *at == ';';
    }
    return otherwise;
}
