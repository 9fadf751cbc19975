/*
 * System calls withheld from this process and its children, as sandboxes do (seccomp). A rule is
 * CALL[>BYTES][=ERRNO]: with >BYTES only where the second argument (a length) is above BYTES; without =ERRNO the call
 * fails with EPERM.
 */
#ifndef SHEAF_TESTS_FILTER_H
#define SHEAF_TESTS_FILTER_H

/* A name that the tables do not have ends the process. */
void filter_add(const char *rule);

/* For all threads, and for good; with no rules only no_new_privs is set. 0, or not: errno tells why. */
int filter_install(void);

#endif
