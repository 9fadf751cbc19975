/* What can be chosen before the first allocation. The preloaded object fills it from the environment. */
#ifndef SHEAF_CONFIG_CONFIG_H
#define SHEAF_CONFIG_CONFIG_H

#include "os/numa.h"

enum rseq_choice { RSEQ_AUTO, RSEQ_LIBC_ONLY, RSEQ_OFF };
enum helper_choice { HELPER_AUTO, HELPER_OFF, HELPER_ON };
enum slots_choice { SLOTS_AUTO, SLOTS_MM_CID, SLOTS_CPU_ID };

/* See feature/harden.h. */
struct harden_config {
    bool random, check, zero_free, zero_alloc, guard;
    bool large;        /* any of those that concern large blocks */
    uint32_t sample;   /* one allocation of so many; 0: none */
    size_t quarantine; /* bytes of freed memory that wait; 0: none */
};

struct sheaf_config {
    enum rseq_choice rseq;
    enum slots_choice slots;
    size_t region;              /* bytes to reserve; 0 by the machine's memory */
    size_t slot_budget;         /* bytes of objects in the sheaves of a slot; 0 by memory and CPUs */
    bool slot_budget_by_memory; /* the user did not choose it */
    size_t barn;                /* bytes in a barn of 2 CPUs; 0: no barns */
    size_t barn_max;
    size_t keep;       /* free bytes kept resident */
    bool keep_chosen;  /* whatever their age, because the user said so */
    uint32_t decay_ms; /* 0: never by age */
    enum helper_choice helper;
    bool tiny;        /* no sheaves, no barns, least memory */
    size_t rcu_limit; /* bytes that may wait for a grace period before callers help */
    bool rcu_limit_chosen;
    uint32_t rcu_age_ms; /* a sheaf of deferred frees does not wait longer to be full */
    bool huge;           /* pages for slabs that grow large */
    char record[256];    /* directory, or empty */
    char capacity[256];  /* "N" or "CACHE=N,CACHE=N", checked */
    bool stats;
    struct harden_config harden;
    const char *debug;     /* what is debugged (feature/debug_spec.h), checked; NULL: nothing */
    const char *debug_log; /* file for reports; NULL: standard error */
    bool debug_go_on;      /* after a report: repair and go on, do not abort */
    bool validate;         /* check all debugged objects at exit */
    bool leaks;            /* tell at exit what is live */
    enum numa_choice numa;
    unsigned nodes;  /* pretended; 0: those that there are */
    unsigned defrag; /* percent of refills that take from other nodes' partial slabs before a fresh one */
};

/* A library starts no thread unless it is told to; the preloaded object has HELPER_AUTO. */
#define KEEP_DEFAULT (64ul << 20)
#define SHEAF_CONFIG_DEFAULT                                                                                         \
    {                                                                                                                \
        .barn = 512ul << 10, .barn_max = 2ul << 20, .keep = KEEP_DEFAULT, .decay_ms = 1000, .helper = HELPER_OFF,    \
        .huge = true, .rcu_limit = 64ul << 20, .rcu_age_ms = 50                                                      \
    }

extern hidden struct sheaf_config sheaf_config;

/* Called once, before the first allocation. The library keeps the defaults, the preloaded object reads the
 * environment. */
void sheaf_configure(struct sheaf_config *config);

/* Called once, when allocation works: fork handlers and the like. */
void sheaf_started(void);

#endif
