/* Reading small files of /proc and /sys as text. */
#ifndef SHEAF_OS_FILE_H
#define SHEAF_OS_FILE_H

#include "platform/os/compiler.h"

/*
 * Reads as much of the file as fits into `text` and terminates it. Returns false, with an empty text, when the
 * file cannot be read or is empty. Uses system calls only: it does not allocate, leaves errno alone, is safe in
 * signal handlers and is not a cancellation point.
 */
bool file_read(const char *path, char *text, size_t size);

#endif
