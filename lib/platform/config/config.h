/* The settings that are fixed before the first allocation; the table of options (options.def) says what they are. */
#ifndef SHEAF_CONFIG_CONFIG_H
#define SHEAF_CONFIG_CONFIG_H

#include "platform/os/numa.h"

enum rseq_choice { RSEQ_AUTO, RSEQ_LIBC_ONLY, RSEQ_OFF };
enum helper_choice { HELPER_AUTO, HELPER_OFF, HELPER_ON };
enum leaks_choice { LEAKS_OFF, LEAKS_LOST, LEAKS_LIVE };
enum slots_choice { SLOTS_AUTO, SLOTS_MM_CID, SLOTS_CPU_ID };

/* See diagnostics/feature/harden.h. */
struct harden_config {
    bool random, check, zero_free, zero_alloc, guard;
    bool large;        /* at least one of those that concern large blocks */
    uint32_t sample;   /* sample one of this many allocations; 0: none */
    size_t quarantine; /* bytes of freed memory that wait; 0: none */
};

/* Every option has its field, and in `chosen` a flag that tells its default from the same value set by the user. */
struct sheaf_config {
#define OPTION_BOOLEAN(name, field, ...)      bool field;
#define OPTION_NUMBER(name, field, ...)       uint32_t field;
#define OPTION_SIZE(name, field, ...)         size_t field;
#define OPTION_CHOICE(name, type, field, ...) type field;
#define OPTION_STRING(name, field, ...)       const char *field;
#define OPTION_LIST(name, type, field, ...)   type field;
#include "platform/config/options.def"
    struct {
#define OPTION_EACH(name) bool name;
#include "platform/config/options.def"
    } chosen;
    bool slot_budget_by_memory; /* slot_budget was 0 and has been set at start */
};
extern hidden struct sheaf_config sheaf_config;

/*
 * The setters of lists. A setter reads the whole list into its field and returns NULL; or returns a text that says
 * what is wrong with the list and what to write, and changes nothing. The list is never freed, so the field may point
 * to it. A setter runs before the first allocation: it must not allocate.
 */
#define OPTION_LIST(name, type, field, setter, ...) const char *setter(struct sheaf_config *config, const char *list);
#include "platform/config/options.def"

/* Called once, before the first allocation. The library keeps the defaults, the preloaded object reads the
 * environment. */
void sheaf_configure(struct sheaf_config *config);

/* Called once, when allocation works: installs fork handlers, for example. */
void sheaf_started(void);

/* The functions of another malloc in this process. */
struct other_malloc {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *p, size_t size);
    void (*free)(void *p);
};

/*
 * The malloc that serves all calls in place of Sheaf, which then never starts; NULL if Sheaf may start. The preloaded
 * object steps aside where malloc or free are not its own (preload/names.h); the library never does. The answer never
 * changes. Any context.
 */
const struct other_malloc *sheaf_steps_aside(void);

/*
 * The malloc to which pointers belong that are not Sheaf's; NULL if there is none, so that such a pointer is an error
 * of the program. Any context.
 */
const struct other_malloc *sheaf_owner_of_foreign(void);

#endif
