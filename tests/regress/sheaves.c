/* Sheaves can be allocated after memory was refused; small sheaves share a page. Includes internal headers. */
#include "../cases.h"
#include "platform/config/config.h"
#include "cache/slot/sheaf.h"
#include "platform/os/vm.h"
#include "sheaf/malloc.h"

#include <sys/resource.h>

enum { MIB = 1 << 20, MOST = 509 };

void sheaf_configure(struct sheaf_config *config)
{
    config->region = 64 * MIB; /* has room for 1 MiB of sheaves */
}

static void limit_data(rlim_t bytes)
{
    struct rlimit limit;
    must(!getrlimit(RLIMIT_DATA, &limit));
    limit.rlim_cur = bytes;
    must(!setrlimit(RLIMIT_DATA, &limit));
}

/* Attempts that the system refuses must not use up the sheaves' address space. */
CASE(sheaves_after_memory_was_refused)
{
    must(sheaf_malloc(1));
    limit_data(1);                                /* for a limit of 0 the kernel applies the hard limit */
    for (int i = 0; empty_sheaf_alloc(MOST); i++) /* uses up memory that is writable already */
        must(i < 1000);
    uint64_t before = sheaf_pool_bytes();
    for (int i = 0; i < 1000; i++)
        must(!empty_sheaf_alloc(MOST));
    must(sheaf_pool_bytes() == before);
    limit_data(1024ul * MIB);
    must(empty_sheaf_alloc(MOST));
}

/* A small program's sheaves are of four orders and share a page; each of their words belongs to its own sheaf. */
CASE(small_sheaves_share_a_page)
{
    must(sheaf_malloc(1));
    for (unsigned order = SHEAF_ORDER_MIN; order < SHEAF_ORDER_MIN + 4; order++) {
        struct sheaf *sheaf = empty_sheaf_alloc(sheaf_capacity_of(order));
        must(sheaf && sheaf_order(sheaf) == order);
        for (unsigned word = 0; word < 1u << order; word++)
            must(sheaf_detached(sheaf_containing((struct end){sheaf_offset(sheaf) + 8 * word})) == sheaf);
        must(!((uintptr_t)sheaf & ((8ul << order) - 1)));
    }
    must(sheaf_pool_bytes() == 1ul << SHEAF_PAGE_SHIFT);
    must(sheaf_pool_cut() == 4 * 4 + 2 * 2 + 1 + 8);
    for (unsigned i = 0; i < 100; i++)
        for (unsigned order = SHEAF_ORDER_MIN; order <= SHEAF_ORDER_MAX; order++) {
            struct sheaf *sheaf = empty_sheaf_alloc(sheaf_capacity_of(order));
            must(sheaf && sheaf_order(sheaf) == order && !((uintptr_t)sheaf & ((8ul << order) - 1)));
        }
}
