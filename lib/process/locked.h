/* Memory that mlockall() locks. */
#ifndef SHEAF_PROCESS_LOCKED_H
#define SHEAF_PROCESS_LOCKED_H

#include "platform/os/compiler.h"

/*
 * Must precede mlockall(), which counts all that the process has mapped: returns what is mapped and not in use to the
 * system, if the process has one thread.
 */
void locked_prepare(void);

/* Whether new mappings are locked from now on; nothing is then mapped in advance. Returns the former state. */
bool locked_set(bool locked);

#endif
