#define _GNU_SOURCE
#include "platform/os/numa.h"
#include "platform/os/cpu.h"
#include "platform/os/syscall.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>

#define MASK_BITS  1024 /* the maximum number of nodes that kernels support */
#define MASK_WORDS (MASK_BITS / (8 * sizeof(long)))
#define PAGE       65536 /* a multiple of every page size */

struct numa numa = {.count = 1};

/*
 * By node number: one more than the index that is used for a node without an index of its own; 0 if not yet known.
 */
static large_table uint8_t nearest[MASK_BITS];

static bool mask_has(const unsigned long *mask, unsigned node)
{
    return mask[node / (8 * sizeof(long))] >> (node % (8 * sizeof(long))) & 1;
}

static bool mask_empty(const unsigned long *mask)
{
    for (size_t i = 0; i < MASK_WORDS; i++)
        if (mask[i])
            return false;
    return true;
}

/* The thread's memory policy without its flags; MPOL_DEFAULT where the system hides it. */
static int task_policy(unsigned long *mask)
{
    int mode = MPOL_DEFAULT;
    if (sys_call(SYS_get_mempolicy, (long)&mode, (long)mask, MASK_BITS, 0, 0, 0) < 0)
        return MPOL_DEFAULT;
    mode &= ~(MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | (1 << 13));
    return mode == MPOL_LOCAL || (mode == MPOL_PREFERRED && mask_empty(mask)) ? MPOL_DEFAULT : mode;
}

/* ---- start ---- */

/* Returns how many nodes the process may use; the first NODES_MAX of them get an index. */
static unsigned find_nodes(void)
{
    unsigned long mask[MASK_WORDS] = {0};
    unsigned found = 0;
    if (sys_call(SYS_get_mempolicy, 0, (long)mask, MASK_BITS, 0, MPOL_F_MEMS_ALLOWED, 0) < 0)
        return 1;
    for (unsigned node = 0; node < MASK_BITS; node++)
        if (mask_has(mask, node)) {
            if (found < NODES_MAX)
                numa.node[found] = (uint16_t)node;
            found++;
        }
    return found;
}

void numa_init(enum numa_choice choice, unsigned wanted)
{
    unsigned long mask[MASK_WORDS] = {0};
    if (choice == NUMA_OFF)
        return;
    numa.strict = choice == NUMA_STRICT;
    numa.pretend = wanted > 0;
    unsigned found = numa.pretend ? wanted : find_nodes();
    if (found < 2 && !numa.pretend)
        return;
    for (unsigned i = 0; numa.pretend && i < found; i++)
        numa.node[i] = (uint16_t)i;
    if (choice == NUMA_INTERLEAVE) {
        numa.interleave = !numa.pretend;
        return;
    }
    /* A policy that the program was started under (numactl) takes precedence. */
    if (choice == NUMA_AUTO && !numa.pretend && task_policy(mask) != MPOL_DEFAULT)
        return;
    numa.count = found < NODES_MAX ? found : NODES_MAX;
}

/* ---- the current node ---- */

static int internal_index(unsigned node)
{
    for (unsigned i = 0; i < numa.count; i++)
        if (numa.node[i] == node)
            return (int)i;
    return -1;
}

/*
 * The node where the kernel places a page for the current CPU, which accounts for distances and for the nodes that
 * are allowed now; -1 if unknown.
 */
static int node_of_local_page(void)
{
    int node = -1;
    void *page = (void *)sys_call(SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((uintptr_t)page > -4096ul)
        return -1;
    if (sys_call(SYS_mbind, (long)page, PAGE, MPOL_PREFERRED, 0, 0, 0) == 0) { /* no node: local */
        *(volatile char *)page = 1;
        if (sys_call(SYS_get_mempolicy, (long)&node, 0, 0, (long)page, MPOL_F_NODE | MPOL_F_ADDR, 0) < 0)
            node = -1;
    }
    sys_call3(SYS_munmap, (long)page, PAGE, 0);
    return node;
}

/*
 * The index for a `node` without one; the current CPU belongs to that node. If two threads race here, either
 * result is acceptable.
 */
static unsigned nearest_index(unsigned node)
{
    uint8_t *known = &nearest[node % MASK_BITS];
    uint8_t index = read_once(*known);
    if (!index) {
        int local = node_of_local_page();
        int own = local >= 0 ? internal_index((unsigned)local) : -1;
        index = (uint8_t)(own >= 0 ? own + 1 : (int)(node % numa.count) + 1);
        write_once(*known, index);
    }
    return index - 1u;
}

apart unsigned numa_here(unsigned *cpu)
{
    unsigned node = 0;
    if (numa.pretend) {
        *cpu = cpu_current();
        return *cpu % numa.count;
    }
    if (sys_call3(SYS_getcpu, (long)cpu, (long)&node, 0) < 0)
        *cpu = 0;
    int own = internal_index(node);
    return own >= 0 ? (unsigned)own : nearest_index(node);
}

apart int numa_index_of(int node)
{
    return node < 0 ? -1 : internal_index((unsigned)node);
}

/* ---- policies ---- */

static unsigned nth_of(const unsigned long *mask, unsigned n, unsigned otherwise)
{
    unsigned members = 0;
    for (unsigned i = 0; i < numa.count; i++)
        members += mask_has(mask, numa.node[i]);
    if (!members)
        return otherwise;
    n %= members;
    for (unsigned i = 0; i < numa.count; i++)
        if (mask_has(mask, numa.node[i]) && !n--)
            return i;
    return otherwise;
}

/* Interleaving alternates by object. Other policies get the local node where they allow it. */
apart unsigned numa_by_policy(unsigned local, unsigned turn)
{
    unsigned long mask[MASK_WORDS] = {0};
    int mode = numa.pretend ? MPOL_DEFAULT : task_policy(mask);
    if (mode == MPOL_DEFAULT)
        return local;
    if (mode == MPOL_INTERLEAVE || mode == 6 /* MPOL_WEIGHTED_INTERLEAVE, Linux 6.9 */)
        return nth_of(mask, turn, local);
    return mask_has(mask, numa.node[local]) ? local : nth_of(mask, 0, local);
}

/*
 * MPOL_F_STATIC_NODES keeps the node's number if the process is moved to other nodes; memory is then placed
 * locally.
 */
apart void numa_place(void *at, size_t size, unsigned index)
{
    unsigned long mask[MASK_WORDS] = {0};
    unsigned node = numa.node[index];
    if (numa.pretend)
        return;
    mask[node / (8 * sizeof(long))] |= 1ul << (node % (8 * sizeof(long)));
    sys_call(SYS_mbind, (long)at, (long)size, MPOL_PREFERRED | MPOL_F_STATIC_NODES, (long)mask, MASK_BITS, 0);
}

apart void numa_interleave(void *at, size_t size)
{
    unsigned long mask[MASK_WORDS] = {0};
    if (sys_call(SYS_get_mempolicy, 0, (long)mask, MASK_BITS, 0, MPOL_F_MEMS_ALLOWED, 0) == 0)
        sys_call(SYS_mbind, (long)at, (long)size, MPOL_INTERLEAVE, (long)mask, MASK_BITS, 0);
}
