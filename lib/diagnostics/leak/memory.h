/*
 * Memory for the tables of a scan: mappings that exist for its time only. Zeroed memory that is never touched costs
 * nothing, so tables are sized for the worst case.
 */
#ifndef SHEAF_LEAK_MEMORY_H
#define SHEAF_LEAK_MEMORY_H

#include "platform/os/compiler.h"

/* NULL if the system refuses. At most LEAK_TABLES mappings at a time. */
#define LEAK_TABLES 24
void *leak_map(size_t bytes);

/* Unmap all of them. */
void leak_unmap_all(void);

/* Call `visit` for the range of each one. */
void leak_each_table(void (*visit)(uintptr_t start, uintptr_t end, void *with), void *with);

#endif
