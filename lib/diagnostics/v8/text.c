#include "diagnostics/v8/text.h"
#include "platform/os/peek.h"

#include <string.h>

#define PARTS_MOST 64 /* of a string */
#define OPEN_MOST  16 /* parts that are yet to be read at any time */
#define READ_MOST  256

static unsigned put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    c = c >= 0xd800 && c < 0xe000 ? 0xfffd : c; /* half of a character that takes two */
    to[0] = (char)(0xe0 | c >> 12);
    to[1] = (char)(0x80 | (c >> 6 & 0x3f));
    to[2] = (char)(0x80 | (c & 0x3f));
    return 3;
}

unsigned text_utf8(char *to, unsigned most, const struct v8_text *text, const void *characters)
{
    unsigned n = 0;
    for (unsigned i = 0; i < text->length && n + 3 <= most; i++) {
        uint16_t wide;
        memcpy(&wide, (const char *)characters + 2 * (size_t)i * (text->bytes == 2), sizeof(wide));
        n += put(to + n, text->bytes == 2 ? wide : ((const unsigned char *)characters)[i]);
    }
    return n;
}

unsigned text_whole(const struct v8_layout *layout, struct v8_objects *objects, uintptr_t string, char *to,
                    unsigned most)
{
    uintptr_t open[OPEN_MOST] = {string}, parts[2];
    unsigned n = 0, left = 1;
    for (unsigned i = 0; i < PARTS_MOST && left; i++) {
        struct v8_text text;
        unsigned char characters[2 * READ_MOST];
        objects->n = 0;
        v8_want(objects, open[--left]);
        if (!v8_is_object(objects->all[0].value) || !v8_read(layout, objects))
            return n;
        unsigned more = v8_parts_of(layout, objects->all, parts);
        if (left + more > OPEN_MOST)
            return n;
        while (more)
            open[left++] = parts[--more];
        if (!v8_text_of(layout, objects->all, &text))
            continue;
        text.length = text.length < READ_MOST ? text.length : READ_MOST;
        if (text.length && !peek(objects->self, characters, text.from, (size_t)text.length * text.bytes))
            return n;
        n += text_utf8(to + n, most - n, &text, characters);
    }
    return n;
}
