#include "diagnostics/v8/source.h"
#include "platform/os/peek.h"

#define PLACE_MOST (256u << 10) /* characters that are read at most, in a tenth of a millisecond */
#define HOPS       2            /* from a string to the one that has its characters */

static uint32_t lines_in(const unsigned char *part, size_t n, unsigned bytes)
{
    uint32_t lines = 0;
    for (size_t i = 0; i < n; i += bytes)
        lines += part[i] == '\n' && (bytes == 1 || !part[i + 1]);
    return lines;
}

uint32_t source_line(const struct v8_layout *layout, struct v8_objects *objects, uintptr_t source, uint32_t place)
{
    struct v8_text text;
    uintptr_t next = source, parts[2];
    bool found = false;
    for (unsigned i = 0; i <= HOPS && !found && v8_is_object(next); i++) { /* to the first part, or the only one */
        objects->n = 0;
        v8_want(objects, next);
        if (!v8_read(layout, objects))
            return 0;
        found = v8_text_of(layout, objects->all, &text);
        next = v8_parts_of(layout, objects->all, parts) ? parts[0] : 0;
    }
    if (!found || place > text.length || place > PLACE_MOST)
        return 0;
    unsigned char part[2048];
    uint32_t line = 1;
    for (size_t at = 0, end = (size_t)place * text.bytes; at < end; at += sizeof(part)) {
        size_t n = end - at < sizeof(part) ? end - at : sizeof(part);
        if (!peek(objects->self, part, text.from + at, n))
            return 0;
        line += lines_in(part, n, text.bytes);
    }
    return line;
}
