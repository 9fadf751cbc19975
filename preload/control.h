/* The process's side of the control area of the record: see sheaf/control.h. */
#ifndef SHEAF_PRELOAD_CONTROL_H
#define SHEAF_PRELOAD_CONTROL_H

/* Look for requests from now on. The record exists. */
void control_start(void);

/* In a child that has no record: look no more. */
void control_stop(void);

/* In a forked child, whose record is new: forget the request that the parent was doing or has answered. */
void control_fork_child(void);

#endif
