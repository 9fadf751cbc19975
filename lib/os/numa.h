/*
 * Memory nodes, by system calls alone: no file is read, so it works where /sys is hidden. (libnuma makes the same
 * calls, but loading it would call malloc from within malloc.) On one node all of it costs the one call that counts
 * them.
 *
 * Nodes are known by their *index*, 0 to numa.count - 1, among those that may be used at start; numa.node[] has the
 * kernel's numbers. A node that is not among them (without memory, further than NODES_MAX, or allowed only later) is
 * taken for the one where the kernel places memory for its CPUs, or failing that shares an index with another.
 *
 * Written once, before there is a second thread that allocates. No function here touches errno, takes a lock or
 * allocates; all may be called in signal handlers. A child of fork has the same nodes.
 */
#ifndef SHEAF_OS_NUMA_H
#define SHEAF_OS_NUMA_H

#include "os/compiler.h"

#define NODES_MAX 8

enum numa_choice { NUMA_AUTO, NUMA_OFF, NUMA_STRICT, NUMA_INTERLEAVE };

struct numa {
    unsigned count;           /* 1: nothing here is used */
    bool pretend;             /* CPUs are dealt out in turn, memory is not placed */
    bool strict;              /* each allocation asks for the thread's memory policy */
    bool interleave;          /* count is 1, and all memory goes to all nodes in turn */
    uint16_t node[NODES_MAX]; /* the kernel's number of each index */
};
extern hidden struct numa numa;

/* `pretend`: so many nodes, 0 for those that there are. */
void numa_init(enum numa_choice choice, unsigned pretend);

/* The index of the current CPU's node, and the CPU. A hint, but that both were so at one moment. */
unsigned numa_here(unsigned *cpu);

/* The index of a node by the kernel's number; -1 when there is none of that number with memory for us. */
int numa_index_of(int node);

/* The index that the thread's memory policy asks for, on a CPU of `local`. `turn` counts up, for interleaving. */
unsigned numa_by_policy(unsigned local, unsigned turn);

/* Prefer the node for a range of the reservation; when it has no memory left, the kernel takes another. */
void numa_place(void *at, size_t size, unsigned index);

/* Pages of the range to all nodes in turn. */
void numa_interleave(void *at, size_t size);

#endif
