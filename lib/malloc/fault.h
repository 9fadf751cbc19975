/*
 * What the allocator knows of an address that could not be accessed: a sampled object, a closed block in quarantine,
 * a guard. Told on standard error from a handler of SIGSEGV, which is only there when one of these was asked for and
 * steps aside for what was there before: a program that sets a handler of its own afterwards has its own.
 */
#ifndef SHEAF_MALLOC_FAULT_H
#define SHEAF_MALLOC_FAULT_H

void fault_start(void);

#endif
