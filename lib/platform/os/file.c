#include "platform/os/file.h"
#include "platform/os/syscall.h"

#include <fcntl.h>

bool file_read(const char *path, char *text, size_t size)
{
    size_t length = 0;
    long got = 1, fd = sys_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    while (fd >= 0 && got > 0 && length + 1 < size) {
        got = sys_call3(SYS_read, fd, (long)(text + length), (long)(size - 1 - length));
        length += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        sys_call3(SYS_close, fd, 0, 0);
    text[length] = 0;
    return length;
}
