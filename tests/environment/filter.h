/*
 * Denies system calls to this process and its children, as sandboxes do (seccomp). A rule is CALL[>BYTES][=ERRNO].
 * With >BYTES it applies only to calls whose second argument (a length) is above BYTES. Without =ERRNO the call
 * fails with EPERM.
 */
#ifndef SHEAF_TESTS_FILTER_H
#define SHEAF_TESTS_FILTER_H

/* Adds a rule. Ends the process if a name is not in the tables of filter.c. */
void filter_add(const char *rule);

/*
 * Installs the filter for all threads; it cannot be removed. Without rules it only sets no_new_privs. Returns 0,
 * or -1 and sets errno.
 */
int filter_install(void);

#endif
