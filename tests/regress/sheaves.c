/* What the system refuses for a while can be had later. It sees the internal headers. */
#include "../cases.h"
#include "cache/config.h"
#include "cache/sheaf.h"
#include "os/vm.h"
#include "sheaf/malloc.h"

#include <sys/resource.h>

enum { MIB = 1 << 20, MOST = 509 };

void sheaf_configure(struct sheaf_config *config)
{
    config->region = 64 * MIB; /* with 1 MiB of sheaves */
}

static void limit_data(rlim_t bytes)
{
    struct rlimit limit;
    must(!getrlimit(RLIMIT_DATA, &limit));
    limit.rlim_cur = bytes;
    must(!setrlimit(RLIMIT_DATA, &limit));
}

/* Each try that the system refused used up a piece of the sheaves' address space. */
static void refused_for_a_while(void)
{
    must(sheaf_malloc(1));
    limit_data(1);                                /* 0 would mean the hard limit */
    for (int i = 0; empty_sheaf_alloc(MOST); i++) /* what was committed together with other things */
        must(i < 1000);
    uint64_t before = sheaf_pool_bytes();
    for (int i = 0; i < 1000; i++)
        must(!empty_sheaf_alloc(MOST));
    must(sheaf_pool_bytes() == before);
    limit_data(1024ul * MIB);
    must(empty_sheaf_alloc(MOST));
}

static const struct test_case cases[] = {
    {"sheaves-after-memory-was-refused", refused_for_a_while},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
