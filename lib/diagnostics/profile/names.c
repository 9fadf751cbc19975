#include "diagnostics/profile/names.h"
#include "platform/os/vm.h"
#include "diagnostics/profile/mirror.h"

#include <string.h>

#define NAMES_MOST 32768u /* in the hash table */

static uint32_t count;
static uint32_t *table; /* eighths of the offset of an entry, by its hash. 0: the place is empty */

static struct sheaf_profile_name *entry_at(uint32_t offset)
{
    return (struct sheaf_profile_name *)(void *)mirror_at(mirror_truth->names_at + (uint64_t)offset);
}

static uint32_t hash_of(const struct script_name *name)
{
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    for (unsigned i = 0; i < name->function_bytes; i++)
        hash = (hash ^ (unsigned char)name->function[i]) * 1099511628211ull;
    hash *= 1099511628211ull;
    for (unsigned i = 0; i < name->file_bytes; i++)
        hash = (hash ^ (unsigned char)name->file[i]) * 1099511628211ull;
    return (uint32_t)(hash ^ hash >> 32);
}

static bool is_entry(const struct sheaf_profile_name *entry, const struct script_name *name, uint32_t hash)
{
    return entry->hash == hash && entry->function_bytes == name->function_bytes &&
           entry->file_bytes == name->file_bytes && !memcmp(entry->text, name->function, name->function_bytes) &&
           !memcmp(entry->text + name->function_bytes, name->file, name->file_bytes);
}

/* Appends an entry. Returns false if there is no room. */
static bool append(const struct script_name *name, uint32_t hash)
{
    struct sheaf_profile *h = mirror_truth;
    size_t text = (size_t)name->function_bytes + name->file_bytes;
    uint32_t bytes = (uint32_t)round_up(sizeof(struct sheaf_profile_name) + text, 8), offset = h->names_used;
    if (bytes > h->names_bytes - offset || count >= NAMES_MOST / 4 * 3 ||
        !mirror_commit(h->names_at + (uint64_t)offset, bytes))
        return false;
    struct sheaf_profile_name *entry = entry_at(offset);
    entry->bytes = bytes;
    entry->hash = hash;
    entry->function_bytes = name->function_bytes;
    entry->file_bytes = name->file_bytes;
    memcpy(entry->text, name->function, name->function_bytes);
    memcpy(entry->text + name->function_bytes, name->file, name->file_bytes);
    h->names_used += bytes;
    count++;
    mirror_publish_at(entry, bytes);
    return true;
}

void names_start(uint32_t at)
{
    mirror_truth->names_at = at;
    mirror_truth->names_bytes = NAMES_BYTES;
}

/* The table's memory is mapped, and the function without a name added, when the first name is. */
static bool ready(void)
{
    if (likely(table))
        return true;
    if (!mirror_truth->names_used && !append(&(struct script_name){"", "", 0, 0}, 0))
        return false;
    return vm_map_once((void **)&table, NAMES_MOST * sizeof(*table));
}

uint64_t names_address(const struct script_name *name, uint32_t line)
{
    uint32_t hash = hash_of(name), place = hash % NAMES_MOST, offset = 0;
    if (ready()) {
        while (table[place] && !is_entry(entry_at(table[place] * 8), name, hash))
            place = (place + 1) % NAMES_MOST;
        if (!table[place]) {
            uint32_t end = mirror_truth->names_used;
            table[place] = append(name, hash) ? end / 8 : 0;
        }
        offset = table[place] * 8;
    }
    mirror_truth->names_lost += !offset;
    return SHEAF_PROFILE_NAMED | (uint64_t)(offset / 8) << SHEAF_PROFILE_LINE_BITS |
           (line < 1u << SHEAF_PROFILE_LINE_BITS ? line : 0);
}

void names_publish(void)
{
    mirror_publish(mirror_truth->names_at, mirror_truth->names_used);
}
