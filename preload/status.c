#include "preload/status.h"
#include "platform/os/file.h"
#include "platform/os/text.h"

#include <string.h>

uint64_t status_bytes(const char *key)
{
    char text[4096];
    file_read("/proc/self/status", text, sizeof(text));
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (text_word(&line, key)) {
            uint64_t kib = 0;
            line += strspn(line, "\t ");
            text_number(&line, false, &kib);
            return kib * 1024;
        }
    }
    return 0;
}
