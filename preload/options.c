/*
 * The reader of options, made from the table lib/platform/config/options.def. It runs before the first allocation and
 * uses nothing of libc but string functions. Few programs set options, so this file belongs to the part that few
 * programs touch (meson.build); and its tables have no pointers, which the loader would relocate in every program.
 */
#include "preload/options.h"
#include "platform/os/message.h"
#include "platform/os/text.h"
#include "platform/os/vm.h"
#include "cache/slot/sheaf.h"

#include <string.h>

#define NAME_MOST  14
#define VALUE_MOST 100 /* characters of a value that a message repeats */

enum option_index {
#define OPTION_EACH(name) OPTION_##name,
#include "platform/config/options.def"
    OPTIONS
};

enum kind { BOOLEAN, NUMBER, SIZE, CHOICE, STRING, LIST };

struct option {
    char name[NAME_MOST], unit[NAME_MOST];
    uint8_t kind, bytes;    /* bytes: of the field */
    uint16_t field, chosen; /* offsets in struct sheaf_config */
    uint64_t least, most;   /* of strings: characters */
};

#define FIELD(name, field_)                                                                                          \
    .bytes = sizeof(((struct sheaf_config *)0)->field_), .field = offsetof(struct sheaf_config, field_),             \
    .chosen = offsetof(struct sheaf_config, chosen.name)

static const struct option table[OPTIONS] = {
#define OPTION_BOOLEAN(name, field_, ...) {#name, .kind = BOOLEAN, FIELD(name, field_), .most = 1},
#define OPTION_NUMBER(name, field_, default_, least_, most_, unit_, ...)                                             \
    {#name, unit_, NUMBER, FIELD(name, field_), .least = least_, .most = most_},
#define OPTION_SIZE(name, field_, default_, least_, most_, ...)                                                      \
    {#name, .kind = SIZE, FIELD(name, field_), .least = least_, .most = most_},
#define OPTION_CHOICE(name, type, field_, ...)  {#name, .kind = CHOICE, FIELD(name, field_), .most = UINT8_MAX},
#define OPTION_STRING(name, field_, most_, ...) {#name, .kind = STRING, FIELD(name, field_), .most = most_},
#define OPTION_LIST(name, type, field_, ...)    {#name, .kind = LIST, FIELD(name, field_), .most = UINT64_MAX},
#include "platform/config/options.def"
};

static const struct word {
    char text[NAME_MOST];
    uint8_t option, value;
} words[] = {
#define OPTION_WORD(name, word, value, ...) {#word, OPTION_##name, value},
#include "platform/config/options.def"
};

#define OPTION_EACH(name)            _Static_assert(sizeof(#name) <= NAME_MOST, "the name fits");
#define OPTION_WORD(name, word, ...) _Static_assert(sizeof(#word) <= NAME_MOST, "the word fits");
#include "platform/config/options.def"

/* ---- messages ---- */

/* "sheaf: SHEAF_NAME=VALUE: ", with a value that stays on the line. */
static void begin(struct message *m, const struct option *option, const char *value)
{
    message_text(m, "sheaf: SHEAF_");
    for (const char *c = option->name; *c; c++)
        message_text(m, (char[]){*c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c, 0});
    message_text(m, "=");
    for (unsigned i = 0; value[i] && i < VALUE_MOST; i++)
        message_text(m, (char[]){(unsigned char)value[i] < ' ' ? '?' : value[i], 0});
    message_text(m, strlen(value) > VALUE_MOST ? "...: " : ": ");
}

static void message_size(struct message *m, uint64_t n)
{
    unsigned unit = 0;
    for (; n && n % 1024 == 0 && unit < 4; unit++)
        n /= 1024;
    message_number(m, n);
    message_text(m, (char[]){"\0KMGT"[unit], 0});
}

static void message_words(struct message *m, enum option_index which)
{
    const char *before = "give ";
    for (unsigned i = 0; i < array_size(words); i++)
        if (words[i].option == which) {
            message_text(m, before);
            message_text(m, words[i].text);
            bool last_but_one =
                i + 2 == array_size(words) || (i + 2 < array_size(words) && words[i + 2].option != which);
            before = last_but_one ? " or " : ", ";
        }
}

/* What to give instead. The setter of a list has said so already. */
static void message_wanted(struct message *m, enum option_index which)
{
    const struct option *option = &table[which];
    switch ((enum kind)option->kind) {
    case BOOLEAN:
        message_text(m, "give 0 or 1");
        break;
    case NUMBER:
        message_text(m, "give a number from ");
        message_number(m, option->least);
        message_text(m, " to ");
        message_number(m, option->most);
        message_text(m, *option->unit ? ", in " : "");
        message_text(m, option->unit);
        break;
    case SIZE:
        message_text(m, "give a size such as 1M, from ");
        message_size(m, option->least);
        message_text(m, " to ");
        message_size(m, option->most);
        break;
    case CHOICE:
        message_words(m, which);
        break;
    case STRING:
        message_text(m, "give at most ");
        message_number(m, option->most);
        message_text(m, " characters");
        break;
    case LIST:
        break;
    }
}

static void complain(enum option_index which, const char *value, const char *wrong)
{
    struct message m = {.length = 0};
    begin(&m, &table[which], value);
    message_text(&m, wrong);
    message_text(&m, table[which].kind == LIST ? "" : "; ");
    message_wanted(&m, which);
    message_text(&m, "; the default is used");
    message_write(&m);
}

/* ---- values: a parser for each kind, which returns NULL or what is wrong ---- */

static const char *parse_boolean(const char *value, uint64_t *n)
{
    *n = *value == '1';
    return (*value == '0' || *value == '1') && !value[1] ? NULL : "neither 0 nor 1";
}

/* A number that is too long for 64 bits is out of every range, as UINT64_MAX is. */
static bool parse_digits(const char *value, bool suffix, uint64_t *n)
{
    const char *at = value;
    size_t digits = strspn(value, "0123456789");
    if (text_number(&at, suffix, n))
        return !*at;
    at = value + (digits ? digits - 1 : 0);
    bool is_number = text_number(&at, suffix, n) && !*at;
    *n = UINT64_MAX;
    return is_number;
}

static const char *parse_number(const char *value, uint64_t *n)
{
    return parse_digits(value, false, n) ? NULL : "not a number";
}

static const char *parse_size(const char *value, uint64_t *n)
{
    return parse_digits(value, true, n) ? NULL : "not a size";
}

static const char *parse_choice(enum option_index which, const char *value, uint64_t *n)
{
    for (unsigned i = 0; i < array_size(words); i++)
        if (words[i].option == which && !strcmp(words[i].text, value)) {
            *n = words[i].value;
            return NULL;
        }
    return "no such choice";
}

/* Programs overwrite their environment (setproctitle). Copies are never freed. NULL: no memory. */
static const char *keep(const char *value)
{
    static char *free_bytes;
    static size_t left;
    size_t length = strlen(value) + 1;
    if (length > left) {
        size_t mapped = round_up(length, vm_page_size());
        char *block = vm_map(mapped, vm_page_size());
        if (!block)
            return NULL;
        free_bytes = block;
        left = mapped;
    }
    char *copy = memcpy(free_bytes, value, length);
    free_bytes += length;
    left -= length;
    return copy;
}

static const char *parse_string(struct sheaf_config *config, const struct option *option, const char *value)
{
    const char *kept = *value ? keep(value) : NULL;
    if (*value && !kept)
        return "no memory to keep it in";
    memcpy((char *)config + option->field, &kept, sizeof(kept));
    return NULL;
}

static const char *parse_list(struct sheaf_config *config, enum option_index which, const char *value)
{
    const char *list = keep(value);
    if (!list)
        return "no memory to keep it in";
#define OPTION_LIST(name, type, field, setter, ...)                                                                  \
    if (which == OPTION_##name)                                                                                      \
        return setter(config, list);
#include "platform/config/options.def"
    __builtin_unreachable();
}

/* Numbers of all kinds, and the length of a string. */
static const char *parse(enum option_index which, const char *value, uint64_t *n)
{
    switch ((enum kind)table[which].kind) {
    case BOOLEAN:
        return parse_boolean(value, n);
    case NUMBER:
        return parse_number(value, n);
    case SIZE:
        return parse_size(value, n);
    case CHOICE:
        return parse_choice(which, value, n);
    case STRING:
    case LIST:
        *n = strlen(value);
        return NULL;
    }
    __builtin_unreachable();
}

static void set(struct sheaf_config *config, enum option_index which, const char *value)
{
    const struct option *option = &table[which];
    uint64_t n = 0;
    const char *wrong = parse(which, value, &n);
    if (!wrong && (n < option->least || n > option->most))
        wrong = option->kind == STRING ? "too long" : "out of range";
    if (!wrong && option->kind == STRING)
        wrong = parse_string(config, option, value);
    else if (!wrong && option->kind == LIST)
        wrong = parse_list(config, which, value);
    else if (!wrong)
        memcpy((char *)config + option->field, &n, option->bytes);
    if (wrong)
        complain(which, value, wrong);
    else
        *((bool *)config + option->chosen) = true;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first bytes of a number are its low ones");

/* The setter of `capacity`, whose text cache/kmem_cache.c reads again for each cache. */
const char *capacity_configure(struct sheaf_config *config, const char *list)
{
    uint64_t n, most = sheaf_capacity_of(SHEAF_ORDER_MAX);
    bool plain = *list >= '0' && *list <= '9';
    for (const char *at = list; *at; at += *at == ',') {
        const char *equals = plain ? NULL : strchr(at, '=');
        at = equals ? equals + 1 : at;
        if ((!plain && !equals) || !text_number(&at, false, &n) || n > most || (*at && (plain || *at != ',')))
            return "not a capacity; give N or CACHE=N,CACHE=N with N up to 509";
    }
    config->capacity = *list ? list : NULL;
    return NULL;
}

/* ---- the environment ---- */

static const char prefix[] = "SHEAF_";
#define PREFIX (sizeof(prefix) - 1)

/* The value of a variable, if it belongs to the option. */
static const char *value_of(const char *variable, const struct option *option)
{
    const char *c = variable + PREFIX;
    if (strncmp(variable, prefix, PREFIX) != 0)
        return NULL;
    for (const char *name = option->name; *name; name++, c++)
        if (*c != (*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name))
            return NULL;
    return *c == '=' ? c + 1 : NULL;
}

/* Variables of the command and of the tests. */
static bool is_foreign(const char *variable)
{
    static const char names[][10] = {"LIBRARY=", "TEST_", "SOAK=", "STANDIN="};
    for (unsigned i = 0; i < array_size(names); i++)
        if (!strncmp(variable + PREFIX, names[i], strlen(names[i])))
            return true;
    return false;
}

static void set_variable(struct sheaf_config *config, const char *variable)
{
    struct message m = {.length = 0};
    for (enum option_index i = 0; i < OPTIONS; i++) {
        const char *value = value_of(variable, &table[i]);
        if (value) {
            set(config, i, value);
            return;
        }
    }
    message_text(&m, "sheaf: ");
    message_text(&m, variable);
    message_text(&m, ": no such option; see `sheaf run --help`");
    message_write(&m);
}

/* The text begins with "with" or "without". */
static const char *advice_for(const char *when)
{
    return strncmp(when, "without", 7) ? "; leave one of them out" : "; set one of them, or leave this out";
}

static void no_effect(char *const *environment, enum option_index which, const char *when, const char *advice)
{
    struct message m = {.length = 0};
    const char *value = NULL;
    for (char *const *e = environment; e && *e && !value; e++)
        value = value_of(*e, &table[which]);
    begin(&m, &table[which], value ? value : "");
    message_text(&m, "has no effect ");
    message_text(&m, when);
    message_text(&m, advice);
    message_write(&m);
}

void options_read(struct sheaf_config *config, char *const *environment)
{
    for (char *const *e = environment; *e; e++)
        if (!strncmp(*e, prefix, PREFIX) && !is_foreign(*e))
            set_variable(config, *e);
#define OPTION_IMPLIES(name, other, value)                                                                           \
    if (config->name && !config->chosen.other)                                                                       \
        set(config, OPTION_##other, value);
#define OPTION_IMPLIES_BY(name, word, constant, other, value)                                                        \
    if (config->name == (constant) && !config->chosen.other)                                                         \
        set(config, OPTION_##other, value);
#define OPTION_NO_EFFECT(name, condition, text)                                                                      \
    if (config->chosen.name && (condition))                                                                          \
        no_effect(environment, OPTION_##name, text, advice_for(text));
#include "platform/config/options.def"
}

void options_at_exit(const struct sheaf_config *config, char *const *environment, bool debugged)
{
#define OPTION_NO_EFFECT_AT_EXIT(name, condition, text)                                                              \
    if (config->chosen.name && (condition))                                                                          \
        no_effect(environment, OPTION_##name, text, "; set SHEAF_DEBUG for caches that the program uses");
#include "platform/config/options.def"
}
