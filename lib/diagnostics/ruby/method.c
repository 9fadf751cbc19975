#include "diagnostics/ruby/method.h"
#include "diagnostics/script/bytes.h"
#include "platform/os/peek.h"
#include "diagnostics/ruby/line.h"

#include <string.h>

/* rb_iseq_constant_body */
#define SIZE_AT         4 /* words of instructions */
#define INSTRUCTIONS_AT 8
#define FILE_AT         64
#define NAME_AT         80

/* Of objects: the type, and whether what they hold lies elsewhere (strings) or in them (arrays) */
#define TYPE(flags)  ((flags)&0x1f)
#define TYPE_STRING  5
#define TYPE_ARRAY   7
#define FLAG_PLACE   (1u << 13)
#define LENGTH_SHIFT 14 /* in the flags, of text in the object, where it has no word for its length */
#define LENGTH_BITS  0x1f
#define LENGTH_MOST  (1u << 20)

/* ---- reading ---- */

static uint8_t string_index(struct ruby_methods *methods, uintptr_t object)
{
    for (unsigned i = 0; i < methods->strings; i++)
        if (methods->string[i].object == object)
            return (uint8_t)i;
    methods->string[methods->strings].object = object;
    return (uint8_t)methods->strings++;
}

/* The index of a sequence, which may be new. */
static unsigned sequence_index(struct ruby_methods *methods, const struct ruby_frame *frame)
{
    for (unsigned i = 0; i < methods->sequences; i++)
        if (methods->sequence[i] == frame->sequence)
            return i;
    unsigned i = methods->sequences++;
    methods->sequence[i] = frame->sequence;
    methods->to[i] = (struct iovec){methods->bodies[i], METHOD_BODY};
    methods->from[i] = (struct iovec){(void *)frame->body, METHOD_BODY};
    return i;
}

static bool read_bodies(const struct ruby_frames *frames, struct ruby_methods *methods)
{
    methods->sequences = methods->strings = 0;
    for (unsigned i = 0; i < frames->runs.n; i++)
        sequence_index(methods, &frames->frames[i]);
    if (!peek_all(methods->self, methods->to, methods->from, methods->sequences))
        return false;
    for (unsigned i = 0; i < methods->sequences; i++) {
        methods->string_of[i][0] = string_index(methods, word_in(methods->bodies[i], NAME_AT));
        methods->string_of[i][1] = string_index(methods, word_in(methods->bodies[i], FILE_AT));
    }
    return true;
}

/* Reads how the objects begin that are not of that type. */
static bool read_heads(struct ruby_methods *methods, unsigned type)
{
    unsigned n = 0;
    for (unsigned i = 0; i < methods->strings; i++) {
        struct ruby_string *string = &methods->string[i];
        if (type && TYPE(string->head[0]) == type)
            continue;
        methods->to[n] = (struct iovec){string->head, sizeof(string->head)};
        methods->from[n++] = (struct iovec){(void *)string->object, sizeof(string->head)};
    }
    return !n || peek_all(methods->self, methods->to, methods->from, n);
}

/* A file may be an array: as it was asked for, and its whole path. */
static bool take_out_of_arrays(struct ruby_methods *methods)
{
    for (unsigned i = 0; i < methods->strings; i++) {
        struct ruby_string *string = &methods->string[i];
        if (TYPE(string->head[0]) != TYPE_STRING && TYPE(string->head[0]) != TYPE_ARRAY)
            return false;
        if (TYPE(string->head[0]) != TYPE_ARRAY)
            continue;
        if (!(string->head[0] & FLAG_PLACE))
            return false;
        string->object = string->head[2];
    }
    return read_heads(methods, TYPE_STRING);
}

/* Where the text of a string begins; 0 if it is none. */
static uintptr_t text_of(const struct ruby_layout *layout, const struct ruby_string *string, uintptr_t *length)
{
    bool elsewhere = string->head[0] & FLAG_PLACE, counted = elsewhere || layout->text > 16;
    *length = counted ? string->head[2] : string->head[0] >> LENGTH_SHIFT & LENGTH_BITS;
    if (TYPE(string->head[0]) != TYPE_STRING || *length > LENGTH_MOST)
        return 0;
    return elsewhere ? string->head[3] : string->object + layout->text;
}

static bool read_texts(const struct ruby_layout *layout, struct ruby_methods *methods)
{
    unsigned n = 0;
    for (unsigned i = 0; i < methods->strings; i++) {
        struct ruby_string *string = &methods->string[i];
        uintptr_t length, from = text_of(layout, string, &length);
        if (!from)
            return false;
        string->length = length < METHOD_TEXT ? (unsigned)length : METHOD_TEXT;
        if (!length)
            continue;
        methods->to[n] = (struct iovec){string->text, string->length};
        methods->from[n++] = (struct iovec){(void *)from, string->length};
    }
    return !n || peek_all(methods->self, methods->to, methods->from, n);
}

/* ---- addresses ---- */

/* The instruction in front of the next one, in words; a large number if it is not one of the sequence. */
static uintptr_t place_of(const unsigned char *body, uintptr_t at)
{
    uintptr_t bytes = at - word_in(body, INSTRUCTIONS_AT), words = bytes / sizeof(uintptr_t);
    if (bytes % sizeof(uintptr_t) || words > number_in(body, SIZE_AT))
        return UINTPTR_MAX;
    return words ? words - 1 : 0;
}

static uint64_t identity_of(const struct ruby_methods *methods, unsigned sequence)
{
    uint64_t hash = script_hash(0, methods->bodies[sequence], METHOD_BODY);
    for (unsigned k = 0; k < 2; k++) {
        const struct ruby_string *string = &methods->string[methods->string_of[sequence][k]];
        hash = script_hash(hash ^ string->length, string->text, string->length);
    }
    return hash;
}

/* The last character of a text that was cut may be a part of one. */
static uint16_t whole_characters(const struct ruby_string *string)
{
    unsigned n = string->length;
    if (n == METHOD_TEXT)
        while (n && (string->text[n - 1] & 0xc0) == 0x80)
            n--;
    return (uint16_t)(n && n < string->length && string->text[n - 1] >= 0xc0 ? n - 1 : n);
}

static uintptr_t new_address(const struct ruby_layout *layout, const struct ruby_methods *methods, unsigned sequence,
                             uintptr_t place, script_address *address_of)
{
    const uint8_t *strings = methods->string_of[sequence];
    const struct ruby_string *function = &methods->string[strings[0]], *file = &methods->string[strings[1]];
    struct ruby_lines lines;
    memcpy(&lines, methods->bodies[sequence] + layout->lines, sizeof(lines));
    struct script_name name = {.function = (const char *)function->text, .file = (const char *)file->text};
    name.function_bytes = whole_characters(function);
    name.file_bytes = whole_characters(file);
    return address_of(&name, ruby_line(methods->self, &lines, place));
}

bool ruby_addresses(const struct ruby *ruby, struct ruby_frames *frames, struct ruby_methods *methods,
                    script_address *address_of)
{
    methods->self = frames->self;
    if (!read_bodies(frames, methods) || !read_heads(methods, 0) || !take_out_of_arrays(methods) ||
        !read_texts(ruby->layout, methods))
        return false;
    for (unsigned i = 0; i < frames->runs.n; i++) {
        const struct ruby_frame *frame = &frames->frames[i];
        unsigned sequence = sequence_index(methods, frame);
        uintptr_t place = place_of(methods->bodies[sequence], frame->at);
        uint64_t identity = identity_of(methods, sequence);
        struct script_known *known = script_known_at(methods->known, frame->sequence, frame->at);
        if (place == UINTPTR_MAX)
            return false;
        if (!script_is_known(known, frame->sequence, frame->at, identity)) {
            uintptr_t address = new_address(ruby->layout, methods, sequence, place, address_of);
            if (!address)
                return false;
            *known = (struct script_known){frame->sequence, frame->at, identity, address};
        }
        frames->runs.addresses[i] = known->address;
    }
    return true;
}
