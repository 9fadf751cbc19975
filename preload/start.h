/* What the start, the fork handlers and _Fork() share. */
#ifndef SHEAF_PRELOAD_START_H
#define SHEAF_PRELOAD_START_H

/* To be called in the child of a fork: makes the locks usable and gives the child a record of its own. */
void start_fork_child(void);

/* Registers the fork handlers, once. To be called before anybody else registers any, and at the first allocation. */
void atfork_register(void);

#endif
