/*
 * Explains an access that failed because the address lies in a sampled object, a block in quarantine or a guard. A
 * handler of SIGSEGV prints what is known of the address to standard error and then restores the previous handler.
 * It is only installed when one of these features was requested, and a handler that the program sets later
 * replaces it.
 */
#ifndef SHEAF_MALLOC_FAULT_H
#define SHEAF_MALLOC_FAULT_H

void fault_start(void);

#endif
