#include "diagnostics/v8/function.h"
#include "platform/os/peek.h"
#include "diagnostics/v8/source.h"
#include "diagnostics/v8/text.h"

#include <string.h>

#define FUNCTION_TYPES 32 /* from the first one on: functions, classes, constructors of the language */
#define INLINE_LOCALS  75 /* the names of more locals are elsewhere */

static bool is_number(uintptr_t value)
{
    return !(value & UINT32_MAX);
}

/* Whether the call is one of a function with a script, as far as was read. */
static bool has_file(const struct v8_call *call)
{
    return v8_is_object(call->strings[V8_FILE]);
}

/* ---- functions ---- */

/* Reads the functions; those that are none are left out. */
static bool read_functions(const struct v8_layout *layout, struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    uint8_t index[V8_CALLS] = {0};
    objects->n = 0;
    for (unsigned i = 0; i < reader->n; i++)
        index[i] = (uint8_t)v8_want(objects, reader->calls[i].function);
    if (!v8_read(layout, objects))
        return false;
    for (unsigned i = 0; i < reader->n; i++) {
        const struct v8_object *object = &objects->all[index[i]];
        unsigned type = object->type - (unsigned)layout->is_function;
        reader->calls[i].shared = type < FUNCTION_TYPES ? v8_field(object, layout->shared) : 0;
    }
    return true;
}

static bool read_shared(const struct v8_layout *layout, struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    uint8_t index[V8_CALLS] = {0};
    objects->n = 0;
    for (unsigned i = 0; i < reader->n; i++)
        if (v8_is_object(reader->calls[i].shared))
            index[i] = (uint8_t)v8_want(objects, reader->calls[i].shared);
    if (!v8_read(layout, objects))
        return false;
    for (unsigned i = 0; i < reader->n; i++) {
        struct v8_call *call = &reader->calls[i];
        const struct v8_object *object = v8_is_object(call->shared) ? &objects->all[index[i]] : NULL;
        bool found = object && object->type == layout->is_shared;
        call->scope = found ? v8_field(object, layout->name) : 0;
        call->script = found ? v8_field(object, layout->script) : 0;
    }
    return true;
}

/* Reads the scripts, and what has the names. A function of the engine itself has no script. */
static bool read_scripts(const struct v8_layout *layout, struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    uint8_t script[V8_CALLS] = {0}, scope[V8_CALLS] = {0};
    objects->n = 0;
    for (unsigned i = 0; i < reader->n; i++) {
        const struct v8_call *call = &reader->calls[i];
        if (v8_is_object(call->script))
            script[i] = (uint8_t)v8_want(objects, call->script);
        if (v8_is_object(call->script) && v8_is_object(call->scope))
            scope[i] = (uint8_t)v8_want(objects, call->scope);
    }
    if (!v8_read(layout, objects))
        return false;
    for (unsigned i = 0; i < reader->n; i++) {
        struct v8_call *call = &reader->calls[i];
        const struct v8_object *object = v8_is_object(call->script) ? &objects->all[script[i]] : NULL;
        bool found = object && object->type == layout->is_script && v8_is_object(call->scope);
        const struct v8_object *info = found ? &objects->all[scope[i]] : NULL;
        memset(call->strings, 0, sizeof(call->strings));
        call->source = found ? v8_field(object, layout->script_source) : 0;
        if (!found || info->type != layout->is_scope)
            continue;
        call->strings[V8_FILE] = v8_field(object, layout->script_name);
        uintptr_t locals = v8_field(info, (layout->scope_locals + 1) * 8) >> 32;
        uintptr_t words = 1 + (unsigned)layout->scope_first + (locals < INLINE_LOCALS ? 2 * locals : 1 + locals);
        call->scope += words * sizeof(uintptr_t) - 1;
    }
    return true;
}

/* ---- names ---- */

/*
 * Behind its locals a ScopeInfo has, as far as there are any, the function's name and the number of a slot, a name
 * that was inferred, and the first and last place in the source. What follows is an object.
 */
static void take_slots(struct v8_call *call)
{
    unsigned first = 0, end;
    while (first + 1 < V8_SLOTS && !(is_number(call->slots[first]) && is_number(call->slots[first + 1])))
        first++;
    for (end = first; end < V8_SLOTS && is_number(call->slots[end]);)
        end++;
    if (end < first + 2 || call->slots[end - 2] > call->slots[end - 1]) {
        call->strings[V8_FILE] = 0;
        return;
    }
    call->start = (uint32_t)(call->slots[end - 2] >> 32);
    for (unsigned i = 0, n = V8_NAME; i < first && n < V8_STRINGS; i++)
        if (v8_is_object(call->slots[i]))
            call->strings[n++] = call->slots[i];
}

static bool read_slots(struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    unsigned n = 0;
    for (unsigned i = 0; i < reader->n; i++)
        if (has_file(&reader->calls[i])) {
            objects->to[n] = (struct iovec){reader->calls[i].slots, sizeof(reader->calls[i].slots)};
            objects->from[n++] = (struct iovec){(void *)reader->calls[i].scope, sizeof(reader->calls[i].slots)};
        }
    if (n && !v8_peek(reader->self, objects->to, objects->from, n))
        return false;
    for (unsigned i = 0; i < reader->n; i++)
        if (has_file(&reader->calls[i]))
            take_slots(&reader->calls[i]);
    return n;
}

static bool read_strings(const struct v8_layout *layout, struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    objects->n = 0;
    for (unsigned i = 0; i < reader->n; i++)
        for (unsigned k = 0; k < V8_STRINGS; k++)
            if (has_file(&reader->calls[i]) && v8_is_object(reader->calls[i].strings[k]))
                reader->index[i][k] = (uint8_t)v8_want(objects, reader->calls[i].strings[k]);
    return v8_read(layout, objects);
}

/* The characters of a string that are read. If it consists of others, these are read when it is new. */
static unsigned find_text(const struct v8_layout *layout, struct v8_reader *reader, unsigned i, unsigned k)
{
    struct v8_call *call = &reader->calls[i];
    const struct v8_object *object = &reader->objects.all[reader->index[i][k]];
    struct v8_text *text = &reader->texts[i][k];
    *text = (struct v8_text){.length = 0};
    call->parts[k] = 0;
    if (!has_file(call) || !v8_is_object(call->strings[k]) || object->type >= layout->not_string)
        return 0;
    if (!v8_text_of(layout, object, text))
        call->parts[k] = script_hash(1, object->words, 4 * sizeof(*object->words));
    return text->length < V8_TEXT ? text->length : V8_TEXT;
}

static bool read_texts(const struct v8_layout *layout, struct v8_reader *reader)
{
    struct v8_objects *objects = &reader->objects;
    unsigned n = 0;
    for (unsigned i = 0; i < reader->n; i++)
        for (unsigned k = 0; k < V8_STRINGS; k++) {
            size_t bytes = find_text(layout, reader, i, k) * (size_t)reader->texts[i][k].bytes;
            if (!bytes)
                continue;
            objects->to[n] = (struct iovec){reader->wide[i][k], bytes};
            objects->from[n++] = (struct iovec){(void *)reader->texts[i][k].from, bytes};
        }
    if (n && !v8_peek(reader->self, objects->to, objects->from, n))
        return false;
    for (unsigned i = 0; i < reader->n; i++)
        for (unsigned k = 0; k < V8_STRINGS; k++)
            reader->calls[i].bytes[k] =
                (uint16_t)text_utf8(reader->calls[i].text[k], V8_TEXT, &reader->texts[i][k], reader->wide[i][k]);
    return true;
}

/* ---- addresses ---- */

static uint64_t identity_of(const struct v8_call *call)
{
    uint64_t hash = script_hash(call->start, &call->script, sizeof(call->script));
    for (unsigned k = 0; k < V8_STRINGS; k++)
        hash = script_hash(hash ^ call->bytes[k] ^ call->parts[k], call->text[k], call->bytes[k]);
    return hash;
}

static uintptr_t new_address(const struct v8_layout *layout, struct v8_reader *reader, struct v8_call *call,
                             script_address *address_of)
{
    for (unsigned k = 0; k < V8_STRINGS; k++)
        if (call->parts[k])
            call->bytes[k] = (uint16_t)text_whole(layout, &reader->objects, call->strings[k], call->text[k], V8_TEXT);
    static const char none[] = "(anonymous)", scheme[] = "file://";
    unsigned which = call->bytes[V8_NAME] ? V8_NAME : V8_INFERRED, bytes = call->bytes[V8_FILE];
    unsigned skip =
        bytes >= sizeof(scheme) && !memcmp(call->text[V8_FILE], scheme, sizeof(scheme) - 1) ? sizeof(scheme) - 1 : 0;
    bool named = call->bytes[which];
    struct script_name name = {.function = named ? call->text[which] : none,
                               .file = call->text[V8_FILE] + skip,
                               .function_bytes = named ? call->bytes[which] : sizeof(none) - 1,
                               .file_bytes = (uint16_t)(bytes - skip)};
    return address_of(&name, source_line(layout, &reader->objects, call->source, call->start));
}

static bool known_address(const struct v8_layout *layout, struct v8_reader *reader, struct v8_call *call,
                          script_address *address_of)
{
    uint64_t identity = identity_of(call);
    struct script_known *known = script_known_at(reader->known, call->shared, 0);
    if (!script_is_known(known, call->shared, 0, identity)) {
        uintptr_t address = new_address(layout, reader, call, address_of);
        if (!address)
            return false;
        *known = (struct script_known){call->shared, 0, identity, address};
    }
    call->address = known->address;
    return true;
}

bool v8_addresses(const struct v8_layout *layout, struct v8_reader *reader, script_address *address_of)
{
    reader->objects.self = reader->self;
    if (!read_functions(layout, reader) || !read_shared(layout, reader) || !read_scripts(layout, reader) ||
        !read_slots(reader) || !read_strings(layout, reader) || !read_texts(layout, reader))
        return false;
    for (unsigned i = 0; i < reader->n; i++) {
        reader->calls[i].address = 0;
        if ((reader->calls[i].bytes[V8_FILE] || reader->calls[i].parts[V8_FILE]) &&
            !known_address(layout, reader, &reader->calls[i], address_of))
            return false;
    }
    return true;
}
