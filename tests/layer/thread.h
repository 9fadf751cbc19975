/*
 * Included before everything else in the programs of the slot layer. Without rseq the slot follows from the thread
 * pointer, so a test that chooses the pointer plays any number of threads (run_on() in slot.c).
 */
#include <stdint.h>

extern uintptr_t thread_pointer;
#define __builtin_thread_pointer() ((void *)thread_pointer)
