/* Names and lines of Ruby functions. */
#ifndef SHEAF_RUBY_METHOD_H
#define SHEAF_RUBY_METHOD_H

#include "diagnostics/ruby/frames.h"
#include "diagnostics/script/known.h"
#include "diagnostics/script/name.h"

#define METHOD_BODY 152 /* bytes of rb_iseq_constant_body that are of interest */
#define METHOD_TEXT 250 /* bytes of a name or file */

/* A string object and its text, or how it begins. */
struct ruby_string {
    uintptr_t object;
    unsigned length;
    uintptr_t head[5];
    unsigned char text[METHOD_TEXT];
};

struct ruby_methods {
    long self;
    unsigned sequences, strings;
    struct iovec to[2 * SCRIPT_FRAMES], from[2 * SCRIPT_FRAMES]; /* of a copy; the stack may be small */
    uintptr_t sequence[SCRIPT_FRAMES];
    _Alignas(8) unsigned char bodies[SCRIPT_FRAMES][METHOD_BODY];
    uint8_t string_of[SCRIPT_FRAMES][2]; /* name, file: indices into: */
    struct ruby_string string[2 * SCRIPT_FRAMES];
    struct script_known known[SCRIPT_KNOWN];
};

/* Store the addresses that stand for the frames in stacks. Returns false if they cannot be had now. */
bool ruby_addresses(const struct ruby *ruby, struct ruby_frames *frames, struct ruby_methods *methods,
                    script_address *address_of);

#endif
