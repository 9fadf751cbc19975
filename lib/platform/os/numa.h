/*
 * Memory nodes, found by system calls alone, so that this works where /sys is hidden. (libnuma makes the same
 * calls, but loading it would call malloc from within malloc.) With one node the only cost is the call that counts
 * them.
 *
 * A node is identified by its *index*, 0 to numa.count - 1, among the nodes that the process may use at the start;
 * numa.node[] holds the kernel's numbers. A node without an index (it has no memory, lies beyond NODES_MAX, or was
 * allowed later) is treated as the node where the kernel places memory for its CPUs, or else shares the index of
 * some other node.
 *
 * The struct is written once, before a second thread allocates. The functions allocate nothing, take no lock,
 * leave errno alone and may be called in signal handlers. The child of a fork has the same nodes.
 */
#ifndef SHEAF_OS_NUMA_H
#define SHEAF_OS_NUMA_H

#include "platform/os/compiler.h"

#define NODES_MAX 8

enum numa_choice { NUMA_AUTO, NUMA_OFF, NUMA_STRICT, NUMA_INTERLEAVE };

struct numa {
    unsigned count;           /* with 1, nothing else here is used */
    bool pretend;             /* for tests: CPUs are assigned to nodes in turn, memory is not placed */
    bool strict;              /* each allocation follows the thread's memory policy */
    bool interleave;          /* count is 1, and all memory is spread over all nodes */
    uint16_t node[NODES_MAX]; /* the kernel's number for each index */
};
extern hidden struct numa numa;

/*
 * Must be called once, before memory is mapped. `pretend` is a number of simulated nodes; with 0 the real ones are
 * found.
 */
void numa_init(enum numa_choice choice, unsigned pretend);

/*
 * The index of the current CPU's node and, in *cpu, the CPU. The two belong together, but the thread may have
 * moved on.
 */
unsigned numa_here(unsigned *cpu);

/* The index of the node that has this number in the kernel; -1 when it has no index. */
int numa_index_of(int node);

/*
 * The index that the thread's memory policy selects for a thread on node `local`. `turn` is a running number that
 * selects the node for interleaving.
 */
unsigned numa_by_policy(unsigned local, unsigned turn);

/* Make the range prefer the memory of a node; the kernel takes another when that node is full. */
void numa_place(void *at, size_t size, unsigned index);

/* Spread the pages of the range over all nodes. */
void numa_interleave(void *at, size_t size);

#endif
