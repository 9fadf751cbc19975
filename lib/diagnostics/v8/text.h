/* Texts of V8's strings in UTF-8. */
#ifndef SHEAF_V8_TEXT_H
#define SHEAF_V8_TEXT_H

#include "diagnostics/v8/object.h"

/* Convert characters that were read, as many as fit into `most` bytes. Returns the number of bytes. */
unsigned text_utf8(char *to, unsigned most, const struct v8_text *text, const void *characters);

/* Read a string that may consist of others, as much of it as fits. Changes the objects. */
unsigned text_whole(const struct v8_layout *layout, struct v8_objects *objects, uintptr_t string, char *to,
                    unsigned most);

#endif
