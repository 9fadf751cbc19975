/*
 * The size classes that this object was built with, as an ELF note, for readers that have no process yet: `sheaf run
 * --debug` and the completion of shells. Owner "Sheaf", type 1; two bytes for each class.
 */
#include "cache/slot/page.h"

#include <link.h>

#define NOTE_OWNER   "Sheaf"
#define NOTE_CLASSES 1

static const struct {
    ElfW(Nhdr) head;
    char owner[(sizeof(NOTE_OWNER) + 3) / 4 * 4];
    uint16_t sizes[CACHE_CLASSES];
} note __attribute__((used, aligned(4), section(".note.sheaf"))) = {
    .head = {.n_namesz = sizeof(NOTE_OWNER), .n_descsz = CACHE_CLASSES * sizeof(uint16_t), .n_type = NOTE_CLASSES},
    .owner = NOTE_OWNER,
    .sizes =
        {
#define CLASS(size) size,
#include "cache/slot/spacing.def"
        },
};
