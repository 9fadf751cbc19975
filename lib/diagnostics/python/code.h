/* Names and lines of code objects. */
#ifndef SHEAF_PYTHON_CODE_H
#define SHEAF_PYTHON_CODE_H

#include "diagnostics/python/frames.h"
#include "diagnostics/script/known.h"
#include "diagnostics/script/name.h"

#include <sys/uio.h>

#define CODE_BYTES   208 /* at most, of a code object that are of interest */
#define STRING_BYTES 320 /* of a string or a table of lines that are read, at most */
#define CODE_STRINGS 3

/* A string or bytes object, or how it begins. */
struct python_string {
    uintptr_t object;
    unsigned wanted, got; /* bytes */
    _Alignas(8) unsigned char bytes[STRING_BYTES];
};

struct python_code_objects {
    long self;
    unsigned codes, strings;
    struct iovec to[PYTHON_FRAMES], from[PYTHON_FRAMES]; /* of a copy; the stack may be small */
    uintptr_t code[PYTHON_FRAMES];
    _Alignas(8) unsigned char bytes[PYTHON_FRAMES][CODE_BYTES];
    uint8_t string_of[PYTHON_FRAMES][CODE_STRINGS]; /* function, file, lines: indices into: */
    struct python_string string[PYTHON_FRAMES * CODE_STRINGS];
    struct script_known known[SCRIPT_KNOWN];
};

/* Store the addresses that stand for the frames in stacks. Returns false if they cannot be had now. */
bool python_addresses(const struct python *python, struct python_frames *frames, struct python_code_objects *objects,
                      script_address *address_of);

#endif
