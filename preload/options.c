/* Options from the environment, by the one table options.def. Runs before anything is allocated: no libc but strings.
 */
#define _GNU_SOURCE
#include "config/config.h"
#include "feature/debug_spec.h"
#include "feature/fail.h"
#include "feature/harden.h"
#include "os/message.h"
#include "os/vm.h"
#include "os/text.h"
#include "slot/sheaf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum kind { text, number, size, flag, choice };

struct option {
    const char *name;
    enum kind kind;
    uint64_t least, most;
    const char *words; /* of a choice */
};

enum option_index {
#define X(name, kind, default_, least, most, help) OPTION_##name,
#include "preload/options.def"
#undef X
    OPTIONS
};

static const struct option table[OPTIONS] = {
#define WORDS_text(help)                           NULL
#define WORDS_number(help)                         NULL
#define WORDS_size(help)                           NULL
#define WORDS_flag(help)                           NULL
#define WORDS_choice(help)                         help
#define X(name, kind, default_, least, most, help) {#name, kind, least, most, WORDS_##kind(help)},
#include "preload/options.def"
#undef X
};

static void complain(const struct option *option, const char *value, const char *wanted)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: SHEAF_");
    for (const char *c = option->name; *c; c++) {
        char upper[2] = {*c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c, 0};
        message_text(&m, upper);
    }
    message_text(&m, "=");
    message_text(&m, value);
    message_text(&m, ": ");
    message_text(&m, wanted);
    message_text(&m, "; the default is used");
    message_write(&m);
}

/* "N" or "CACHE=N,CACHE=N" */
static bool valid_capacity(const char *at)
{
    uint64_t most = sheaf_capacity_of(SHEAF_ORDER_MAX);
    bool plain = *at >= '0' && *at <= '9';
    while (*at) {
        if (!plain) {
            at = strchr(at, '=');
            if (!at)
                return false;
            at++;
        }
        uint64_t n = 0;
        const char *digits = at;
        while (*at >= '0' && *at <= '9' && n <= most)
            n = n * 10 + (uint64_t)(*at++ - '0');
        if (at == digits || n > most || (*at && (plain || *at != ',')))
            return false;
        at += *at == ',';
    }
    return true;
}

/* Programs write over their environment (setproctitle). NULL when there is no memory. */
static const char *keep_text(const char *value)
{
    char *kept = vm_map(round_up(strlen(value) + 1, vm_page_size()), vm_page_size());
    return kept ? strcpy(kept, value) : NULL;
}

static const char *set_debug(struct sheaf_config *config, const char *value)
{
    const char *wrong = debug_spec_wrong(value);
    if (!wrong)
        config->debug = *value ? keep_text(value) : NULL;
    return wrong;
}

static const char *set_text(struct sheaf_config *config, enum option_index which, const char *value)
{
    switch (which) {
    case OPTION_record:
        if (strlen(value) >= sizeof(config->record))
            return "wants a directory of less than 256 bytes";
        strcpy(config->record, value);
        return NULL;
    case OPTION_capacity:
        if (strlen(value) >= sizeof(config->capacity) || !valid_capacity(value))
            return "wants N or CACHE=N,CACHE=N with N up to 509";
        strcpy(config->capacity, value);
        return NULL;
    case OPTION_debug:
        return set_debug(config, value);
    case OPTION_debug_log:
        config->debug_log = *value ? keep_text(value) : NULL;
        return NULL;
    case OPTION_fail:
        return fail_configure(value);
    case OPTION_harden:
        return harden_configure(value, &config->harden);
    default:
        return "is not a text";
    }
}

/* `n` is the place of the word, which the members of its enum follow. */
static void set_word(struct sheaf_config *config, enum option_index which, unsigned n)
{
    switch (which) {
    case OPTION_rseq:
        config->rseq = (enum rseq_choice)n;
        break;
    case OPTION_slots:
        config->slots = (enum slots_choice)n;
        break;
    case OPTION_numa:
        config->numa = (enum numa_choice)n;
        break;
    case OPTION_helper:
        config->helper = (enum helper_choice)n;
        break;
    case OPTION_mode:
        config->tiny = n;
        break;
    case OPTION_debug_action:
        config->debug_go_on = n;
        break;
    default:
        break;
    }
}

/* A flag is 0 or 1. */
static void set_number(struct sheaf_config *config, enum option_index which, uint64_t n)
{
    switch (which) {
    case OPTION_slot_budget:
        config->slot_budget = n;
        break;
    case OPTION_barn:
        config->barn = n;
        break;
    case OPTION_barn_max:
        config->barn_max = n;
        break;
    case OPTION_nodes:
        config->nodes = (unsigned)n;
        break;
    case OPTION_defrag:
        config->defrag = (unsigned)n;
        break;
    case OPTION_decay:
        config->decay_ms = (uint32_t)n;
        break;
    case OPTION_keep:
        config->keep = n;
        config->keep_chosen = true;
        break;
    case OPTION_rcu_limit:
        config->rcu_limit = n;
        config->rcu_limit_chosen = true;
        break;
    case OPTION_rcu_age:
        config->rcu_age_ms = (uint32_t)n;
        break;
    case OPTION_huge:
        config->huge = n;
        break;
    case OPTION_region:
        config->region = n;
        break;
    case OPTION_stats:
        config->stats = n;
        break;
    case OPTION_validate:
        config->validate = n;
        break;
    case OPTION_leaks:
        config->leaks = n;
        break;
    default:
        break;
    }
}

/* The words begin the option's help, up to its colon. */
static void set_choice(struct sheaf_config *config, enum option_index which, const char *value)
{
    struct message wanted = {.length = 0};
    message_text(&wanted, "wants one of ");
    const char *word = table[which].words;
    for (unsigned i = 0; word; i++) {
        size_t length = strcspn(word, "|:");
        if (strlen(value) == length && !memcmp(value, word, length)) {
            set_word(config, which, i);
            return;
        }
        for (size_t c = 0; c < length; c++)
            message_text(&wanted, (char[]){word[c], 0});
        bool last = word[length] == ':';
        message_text(&wanted, last ? "" : ", ");
        word = last ? NULL : word + length + 1;
    }
    wanted.text[wanted.length] = 0;
    complain(&table[which], value, wanted.text);
}

static noinline_cold void set(struct sheaf_config *config, enum option_index which, const char *value)
{
    const struct option *option = &table[which];
    if (option->kind == choice) {
        set_choice(config, which, value);
        return;
    }
    if (option->kind == text) {
        const char *wrong = set_text(config, which, value);
        if (wrong)
            complain(option, value, wrong);
        return;
    }
    uint64_t n;
    const char *at = value;
    if (!text_number(&at, option->kind == size, &n) || *at)
        complain(option, value,
                 option->kind == size ? "wants a number of bytes such as 64K or 1G" : "wants a number");
    else if (n < option->least || n > option->most)
        complain(option, value, "is out of range");
    else
        set_number(config, which, n);
}

/* Names are in capitals in the environment; the value begins after the '='. */
static bool matches(const char *variable, const char *name)
{
    for (; *name; name++, variable++)
        if (*variable != (*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name))
            return false;
    return *variable == '=';
}

static noinline_cold void unknown(const char *variable)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: ");
    message_text(&m, variable);
    message_text(&m, ": there is no such option; see `sheaf run --help`");
    message_write(&m);
}

/* Variables that belong to the CLI, not to us. */
static bool foreign(const char *variable)
{
    return !strncmp(variable, "SHEAF_LIBRARY=", 14) || !strncmp(variable, "SHEAF_TEST_", 11) ||
           !strncmp(variable, "SHEAF_SOAK=", 11) || !strncmp(variable, "SHEAF_STANDIN=", 14);
}

void sheaf_configure(struct sheaf_config *config)
{
    static bool done;
    if (!done)
        config->helper = HELPER_AUTO;
    if (done || !environ || getauxval(AT_SECURE))
        return;
    done = true;
    for (char **e = environ; *e; e++) {
        if (strncmp(*e, "SHEAF_", 6) != 0 || foreign(*e))
            continue;
        enum option_index i = 0;
        while (i < OPTIONS && !matches(*e + 6, table[i].name))
            i++;
        if (i < OPTIONS)
            set(config, i, strchr(*e, '=') + 1);
        else
            unknown(*e);
    }
}
