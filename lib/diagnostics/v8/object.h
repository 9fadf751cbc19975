/* Objects on V8's heap, copied. */
#ifndef SHEAF_V8_OBJECT_H
#define SHEAF_V8_OBJECT_H

#include "diagnostics/v8/engine.h"

#include <sys/uio.h>

#define V8_OBJECTS 192 /* that are read at once */
#define V8_WORDS   8   /* of an object that are read */

static inline bool v8_is_object(uintptr_t value)
{
    return (value & 3) == 1;
}

/* An object: its tagged address, its type, and how it begins. */
struct v8_object {
    uintptr_t value;
    uint16_t type;
    uintptr_t words[V8_WORDS];
};

/* What is read at once. The stack may be small. */
struct v8_objects {
    long self;
    unsigned n;
    struct v8_object all[V8_OBJECTS];
    struct iovec to[V8_OBJECTS], from[V8_OBJECTS];
};

/* The index of an object that is to be read, which may be new. There must be room. */
static inline unsigned v8_want(struct v8_objects *objects, uintptr_t value)
{
    for (unsigned i = 0; i < objects->n; i++)
        if (objects->all[i].value == value)
            return i;
    objects->all[objects->n].value = value;
    return objects->n++;
}

/*
 * Copy n ranges of the heap. One that cannot be read as a whole is read up to the end of its page, because what lies
 * behind the last object of a space may not be mapped; the rest is 0. Returns false if none can be read.
 */
bool v8_peek(long self, const struct iovec *to, const struct iovec *from, unsigned n);

/* Read all objects. One that cannot be read, or is being moved, has no type of V8's. Returns false if none can be
 * read. */
bool v8_read(const struct v8_layout *layout, struct v8_objects *objects);

static inline uintptr_t v8_field(const struct v8_object *object, int offset)
{
    return object->words[(unsigned)offset / sizeof(uintptr_t)];
}

/* The characters of a string: `bytes` are those of one. Returns false if it is none, or if it consists of others. */
struct v8_text {
    uintptr_t from;
    uint32_t length, bytes;
};
bool v8_text_of(const struct v8_layout *layout, const struct v8_object *object, struct v8_text *text);

/* The strings that this one consists of, in order. Returns their number: 2, 1, or 0 if it is no such string. */
unsigned v8_parts_of(const struct v8_layout *layout, const struct v8_object *object, uintptr_t parts[2]);

#endif
