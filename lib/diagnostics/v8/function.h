/* Names, files and lines of JavaScript functions: where each begins, as V8's own map of code has it. */
#ifndef SHEAF_V8_FUNCTION_H
#define SHEAF_V8_FUNCTION_H

#include "diagnostics/script/known.h"
#include "diagnostics/script/name.h"
#include "diagnostics/v8/object.h"

#define V8_CALLS 64
#define V8_SLOTS 8   /* words of a ScopeInfo behind its locals that are read */
#define V8_TEXT  250 /* bytes of a name or file */
enum { V8_FILE, V8_NAME, V8_INFERRED, V8_STRINGS };

/* A frame that may be of a JavaScript function; `address` stands for it in stacks, or is 0. */
struct v8_call {
    uintptr_t function, address;
    uintptr_t shared, script, source, scope; /* tagged */
    uintptr_t strings[V8_STRINGS];           /* the file, and names, of which the first that has a text is the one */
    uint64_t parts[V8_STRINGS];              /* a hash of a string that consists of others; 0: it does not */
    uint32_t start;                          /* characters in front of it in the source */
    uintptr_t slots[V8_SLOTS];
    uint16_t bytes[V8_STRINGS];
    char text[V8_STRINGS][V8_TEXT];
};

struct v8_reader {
    long self; /* of peek_self() */
    unsigned n;
    struct v8_call calls[V8_CALLS];
    struct v8_objects objects;
    uint8_t index[V8_CALLS][V8_STRINGS]; /* of the strings in the objects */
    struct v8_text texts[V8_CALLS][V8_STRINGS];
    uint16_t wide[V8_CALLS][V8_STRINGS][V8_TEXT];
    struct script_known known[SCRIPT_KNOWN];
};

/* Find the addresses of the calls, whose functions are set. Returns false if they cannot be had now. */
bool v8_addresses(const struct v8_layout *layout, struct v8_reader *reader, script_address *address_of);

#endif
