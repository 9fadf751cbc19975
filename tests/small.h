/* A small file system of the calling process alone, for tests of full file systems. */
#ifndef SHEAF_TESTS_SMALL_H
#define SHEAF_TESTS_SMALL_H

#include "must.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Mount a tmpfs of so many bytes on a new directory, in a mount namespace of this process, which must have one
 * thread. Ends the case as skipped where the system does not allow that. Writes the directory's name to `path`. */
__attribute__((unused)) static void mount_small(char *path, size_t size, size_t bytes)
{
    char options[64];
    snprintf(path, size, "/tmp/small.XXXXXX");
    must(mkdtemp(path));
    snprintf(options, sizeof(options), "size=%zu,mode=0755", bytes);
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("small", path, "tmpfs", 0, options) != 0) {
        rmdir(path);
        _exit(CASE_SKIPPED);
    }
}

/* Unmount it and remove the directory. */
__attribute__((unused)) static void unmount_small(const char *path)
{
    must(umount2(path, MNT_DETACH) == 0 && rmdir(path) == 0);
}

/* Use up all room that the file system has left. */
__attribute__((unused)) static void fill_small(const char *path)
{
    static char bytes[4096];
    char name[300];
    snprintf(name, sizeof(name), "%s/filler", path);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0);
    while (write(fd, bytes, sizeof(bytes)) > 0) {
    }
    must(errno == ENOSPC && close(fd) == 0);
}

#endif
