/*
 * The table of names in the area: functions of interpreted programs, which no module describes (sheaf/profile.h). A
 * name is there once and stays. All functions need LOCK_PROFILE.
 */
#ifndef SHEAF_PROFILE_NAMES_H
#define SHEAF_PROFILE_NAMES_H

#include "diagnostics/script/name.h"
#include "sheaf/profile.h"

#define NAMES_BYTES (1u << 20)

/* Put the table at this offset of the area. */
void names_start(uint32_t at);

/* The address that stands for a line of the function in the stacks of the area. If the table is full, it stands for a
 * function without a name. */
uint64_t names_address(const struct script_name *name, uint32_t line);

/* Copy the table to the mirror. */
void names_publish(void);

#endif
