#define _GNU_SOURCE
#include "preload/status.h"
#include "os/syscall.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Not through libc's open() and read(), where a thread could be cancelled. */
uint64_t status_bytes(const char *key)
{
    char text[4096];
    long fd = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/self/status", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0)
        return 0;
    long length = sys_call3(SYS_read, fd, (long)text, sizeof(text) - 1);
    sys_call3(SYS_close, fd, 0, 0);
    text[length > 0 ? length : 0] = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key), NULL, 10) * 1024;
    }
    return 0;
}
