/* Loops that wait let another thread go on, and memory is copied where the explorer sees it. */
#include_next "platform/arch/x86_64/cpu.h"

void explore_relax(void);
#undef ARCH_RELAX
#define ARCH_RELAX() explore_relax()
