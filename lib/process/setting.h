/* Options that may change while the process runs. */
#ifndef SHEAF_PROCESS_SETTING_H
#define SHEAF_PROCESS_SETTING_H

#include "sheaf/control.h"

#include <stdint.h>

/*
 * Set an option to a value in the option's unit, as sheaf/control.h defines both, with effect at once. Any subject
 * and any value are allowed: SHEAF_UNKNOWN and SHEAF_RANGE say what is wrong with them, SHEAF_NO_EFFECT that another
 * option of the process makes this one meaningless; the option then stays as it is. The caller holds no lock, and
 * only one thread may call it at a time.
 */
enum sheaf_status setting_change(unsigned subject, uint64_t value);

#endif
