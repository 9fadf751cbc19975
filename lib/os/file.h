/* Small files of /proc and /sys, read as text. */
#ifndef SHEAF_OS_FILE_H
#define SHEAF_OS_FILE_H

#include "os/compiler.h"

/*
 * As much of a file as fits, as a string. False: it cannot be read, or is empty; the text is empty then. By system
 * calls alone: it allocates nothing, leaves errno as it is, is safe in signal handlers, and is no place where a
 * thread can be cancelled.
 */
bool file_read(const char *path, char *text, size_t size);

#endif
