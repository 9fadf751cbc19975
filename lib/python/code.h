/* Names and lines of code objects. */
#ifndef SHEAF_PYTHON_CODE_H
#define SHEAF_PYTHON_CODE_H

#include "python/frames.h"

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

/*
 * What an instruction of a code object was found to be. Code objects are freed and others take their place, so
 * `identity` is a hash of all that the answer follows from, and that is compared at each use.
 */
struct python_known {
    uintptr_t code, at;
    uint64_t identity;
    uintptr_t address;
};
#define PYTHON_KNOWN 512

struct python_code_objects {
    long self;
    unsigned codes, strings;
    struct iovec to[PYTHON_FRAMES], from[PYTHON_FRAMES]; /* of a copy; the stack may be small */
    uintptr_t code[PYTHON_FRAMES];
    _Alignas(8) unsigned char bytes[PYTHON_FRAMES][CODE_BYTES];
    uint8_t string_of[PYTHON_FRAMES][CODE_STRINGS]; /* function, file, lines: indices into: */
    struct python_string string[PYTHON_FRAMES * CODE_STRINGS];
    struct python_known known[PYTHON_KNOWN];
};

/* A function and its file in UTF-8, truncated if they are long. */
struct python_name {
    const char *function, *file;
    uint16_t function_bytes, file_bytes;
};

/* Returns the address that stands for a line of the function; 0 if it cannot be had now. */
typedef uintptr_t python_address(const struct python_name *name, uint32_t line);

/* Store the addresses that stand for the frames in stacks. Returns false if they cannot be had now. */
bool python_addresses(const struct python *python, const struct python_frames *frames,
                      struct python_code_objects *objects, python_address *address_of, uintptr_t *addresses);

#endif
