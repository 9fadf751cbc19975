#include "diagnostics/python/code.h"
#include "diagnostics/script/bytes.h"
#include "platform/os/peek.h"

#include <string.h>

#define LENGTH_AT   16 /* of str and bytes objects: behind the reference count and the type */
#define STATE_AT    32 /* of str objects */
#define BYTES_AT    32 /* the contents of bytes objects */
#define BEGINNING   40 /* bytes that tell the size of either */
#define LINES_PART  96 /* bytes of a table of lines that count for the identity */
#define INSTRUCTION 2  /* bytes of a code unit */
#define NAME_BYTES  256
#define PAGE        4096u
#define OBJECT_MOST (1u << 30)

/* ---- reading ---- */

/* The index of a code object, which may be new. */
static unsigned code_index(struct python_code_objects *objects, uintptr_t code)
{
    for (unsigned i = 0; i < objects->codes; i++)
        if (objects->code[i] == code)
            return i;
    objects->code[objects->codes] = code;
    return objects->codes++;
}

static uint8_t string_index(struct python_code_objects *objects, uintptr_t object)
{
    for (unsigned i = 0; i < objects->strings; i++)
        if (objects->string[i].object == object)
            return (uint8_t)i;
    objects->string[objects->strings] = (struct python_string){.object = object};
    return (uint8_t)objects->strings++;
}

static bool read_codes(const struct python *python, const struct python_frames *frames,
                       struct python_code_objects *objects)
{
    const struct python_layout *layout = python->layout;
    struct iovec *to = objects->to, *from = objects->from;
    objects->codes = objects->strings = 0;
    for (unsigned i = 0; i < frames->runs.n; i++)
        code_index(objects, frames->frames[i].code);
    for (unsigned i = 0; i < objects->codes; i++) {
        to[i] = (struct iovec){objects->bytes[i], layout->instructions};
        from[i] = (struct iovec){(void *)objects->code[i], layout->instructions};
    }
    if (!peek_all(objects->self, to, from, objects->codes))
        return false;
    for (unsigned i = 0; i < objects->codes; i++) {
        if (word_in(objects->bytes[i], sizeof(uintptr_t)) != python->code_type)
            return false;
        objects->string_of[i][0] = string_index(objects, word_in(objects->bytes[i], layout->function));
        objects->string_of[i][1] = string_index(objects, word_in(objects->bytes[i], layout->file));
        objects->string_of[i][2] = string_index(objects, word_in(objects->bytes[i], layout->lines));
    }
    return true;
}

/* Reads the strings from `got` to `wanted`, in batches. */
static bool read_wanted(struct python_code_objects *objects)
{
    struct iovec *to = objects->to, *from = objects->from;
    for (unsigned i = 0; i < objects->strings;) {
        unsigned n = 0;
        for (; n < PYTHON_FRAMES && i < objects->strings; i++) {
            struct python_string *string = &objects->string[i];
            if (string->got >= string->wanted)
                continue;
            size_t bytes = string->wanted - string->got;
            to[n] = (struct iovec){string->bytes + string->got, bytes};
            from[n++] = (struct iovec){(void *)(string->object + string->got), bytes};
            string->got = string->wanted;
        }
        if (n && !peek_all(objects->self, to, from, n))
            return false;
    }
    return true;
}

/* Where the text of a str object begins and the bytes of a character; 0 if it is none. */
static unsigned text_at(const struct python_layout *layout, const unsigned char *bytes, unsigned *kind)
{
    uint32_t state = number_in(bytes, STATE_AT); /* bits: interned 2, kind 3, compact 1, ascii 1 */
    *kind = state >> 2 & 7;
    bool known = (*kind == 1 || *kind == 2 || *kind == 4) && state >> 5 & 1;
    return !known ? 0 : state >> 6 & 1 ? layout->ascii : layout->compact;
}

/* The bytes of an object that are of interest; 0 if it is not what it should be. */
static unsigned string_size(const struct python_layout *layout, const unsigned char *bytes, bool lines)
{
    size_t length = word_in(bytes, LENGTH_AT), most = STRING_BYTES;
    unsigned kind = 1, at = lines ? BYTES_AT : text_at(layout, bytes, &kind);
    if (!at || length > OBJECT_MOST)
        return 0;
    if (lines)
        most = BYTES_AT + LINES_PART;
    size_t size = at + length * kind;
    return (unsigned)(size < most ? size : most);
}

/* At first as much of each as its page has and most names need, which is mostly all. */
static bool read_strings(const struct python_layout *layout, struct python_code_objects *objects)
{
    for (unsigned i = 0; i < objects->strings; i++) {
        struct python_string *string = &objects->string[i];
        unsigned page = PAGE - (unsigned)(string->object % PAGE), most = BYTES_AT + LINES_PART;
        string->wanted = page < BEGINNING ? BEGINNING : page < most ? page : most;
    }
    if (!read_wanted(objects))
        return false;
    for (unsigned i = 0; i < objects->codes; i++)
        for (unsigned k = 0; k < CODE_STRINGS; k++) {
            struct python_string *string = &objects->string[objects->string_of[i][k]];
            string->wanted = string_size(layout, string->bytes, k == 2);
            if (!string->wanted)
                return false;
        }
    return read_wanted(objects);
}

/* ---- names ---- */

static unsigned put_utf8(char *to, uint32_t c)
{
    unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | c >> 6 * more);
    for (unsigned i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return more + 1;
}

/* The text of a str object, as much as was read and fits. */
static uint16_t put_text(const struct python_layout *layout, const struct python_string *string, char *to)
{
    unsigned kind, at = text_at(layout, string->bytes, &kind), n = 0;
    for (; at + kind <= string->wanted && n + 4 <= NAME_BYTES; at += kind) {
        uint32_t c = 0;
        memcpy(&c, string->bytes + at, kind);
        n += put_utf8(to + n, c < 0x110000 ? c : '?');
    }
    return (uint16_t)n;
}

/* ---- lines ---- */

/* The table of lines, read in parts. */
struct lines {
    long self;
    uintptr_t from;
    size_t at, size, begin, end; /* the part: from begin to end */
    bool failed;
    unsigned char part[256];
};

static unsigned next_byte(struct lines *lines)
{
    if (lines->at >= lines->size || lines->failed) {
        lines->failed = true;
        return 0;
    }
    if (lines->at >= lines->end) {
        size_t left = lines->size - lines->at;
        lines->begin = lines->at;
        lines->end = lines->at + (left < sizeof(lines->part) ? left : sizeof(lines->part));
        lines->failed = !peek(lines->self, lines->part, lines->from + lines->begin, lines->end - lines->begin);
        if (lines->failed)
            return 0;
    }
    return lines->part[lines->at++ - lines->begin];
}

static uint32_t next_number(struct lines *lines)
{
    uint32_t byte = next_byte(lines), number = byte & 63;
    for (unsigned shift = 6; byte & 64 && shift < 32; shift += 6)
        number |= ((byte = next_byte(lines)) & 63) << shift;
    return number;
}

/* The change of the line in an entry of this kind, whose other bytes are left out. */
static int32_t next_change(struct lines *lines, unsigned kind)
{
    enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };
    if (kind < ONE_LINE || kind == NONE) {
        if (kind != NONE)
            next_byte(lines);
        return 0;
    }
    if (kind < NO_COLUMNS) {
        next_byte(lines), next_byte(lines);
        return (int32_t)(kind - ONE_LINE);
    }
    uint32_t number = next_number(lines);
    if (kind == LONG)
        next_number(lines), next_number(lines), next_number(lines);
    return number & 1 ? -(int32_t)(number >> 1) : (int32_t)(number >> 1);
}

/* The line of the instruction at that offset, as CPython's Objects/locations.md describes the table. */
static uint32_t line_of(long self, const struct python_string *table, uint32_t first, size_t offset)
{
    struct lines lines = {.self = self, .from = table->object + BYTES_AT, .size = word_in(table->bytes, LENGTH_AT)};
    int64_t line = first;
    for (size_t end = 0; end <= offset;) {
        unsigned byte = next_byte(&lines);
        if (lines.failed)
            return first;
        end += ((byte & 7) + 1) * INSTRUCTION;
        line += next_change(&lines, byte >> 3 & 15);
    }
    return line > 0 && line <= INT32_MAX ? (uint32_t)line : first;
}

/* ---- addresses ---- */

/* All that was read, without the reference counts. */
static uint64_t identity_of(const struct python_layout *layout, const struct python_code_objects *objects,
                            unsigned code)
{
    uint64_t hash = number_in(objects->bytes[code], layout->first_line);
    for (unsigned k = 0; k < CODE_STRINGS; k++) {
        const struct python_string *string = &objects->string[objects->string_of[code][k]];
        unsigned kind, at = k == 2 ? BYTES_AT : text_at(layout, string->bytes, &kind);
        hash = script_hash(hash, string->bytes + LENGTH_AT, 8);
        hash = script_hash(hash, string->bytes + at, string->wanted > at ? string->wanted - at : 0);
    }
    return hash;
}

static uintptr_t new_address(const struct python_layout *layout, const struct python_code_objects *objects,
                             unsigned code, uintptr_t at, script_address *address_of)
{
    char function[NAME_BYTES], file[NAME_BYTES];
    const uint8_t *strings = objects->string_of[code];
    const unsigned char *bytes = objects->bytes[code];
    uintptr_t offset = at - (objects->code[code] + layout->instructions); /* before the first one: a large number */
    uint32_t first = number_in(bytes, layout->first_line);
    uint32_t line =
        offset < OBJECT_MOST ? line_of(objects->self, &objects->string[strings[2]], first, offset) : first;
    struct script_name name = {.function = function, .file = file};
    name.function_bytes = put_text(layout, &objects->string[strings[0]], function);
    name.file_bytes = put_text(layout, &objects->string[strings[1]], file);
    return address_of(&name, line);
}

bool python_addresses(const struct python *python, struct python_frames *frames, struct python_code_objects *objects,
                      script_address *address_of)
{
    const struct python_layout *layout = python->layout;
    objects->self = frames->self;
    if (!read_codes(python, frames, objects) || !read_strings(layout, objects))
        return false;
    for (unsigned i = 0; i < frames->runs.n; i++) {
        const struct python_frame *frame = &frames->frames[i];
        unsigned code = code_index(objects, frame->code);
        uint64_t identity = identity_of(layout, objects, code);
        struct script_known *known = script_known_at(objects->known, frame->code, frame->at);
        if (!script_is_known(known, frame->code, frame->at, identity)) {
            uintptr_t address = new_address(layout, objects, code, frame->at, address_of);
            if (!address)
                return false;
            *known = (struct script_known){frame->code, frame->at, identity, address};
        }
        frames->runs.addresses[i] = known->address;
    }
    return true;
}
