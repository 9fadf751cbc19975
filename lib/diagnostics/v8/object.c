#include "diagnostics/v8/object.h"
#include "platform/os/peek.h"

#include <string.h>

#define HEAP_PAGE   (256u << 10) /* what lies behind the end may not be mapped */
#define LENGTH_MOST (1u << 30)

/* Bits of a string's type. */
enum { SEQUENTIAL = 0, CONS = 1, EXTERNAL = 2, THIN = 5, REPRESENTATION = 7, ONE_BYTE = 8 };

bool v8_read(const struct v8_layout *layout, struct v8_objects *objects)
{
    for (unsigned i = 0; i < objects->n; i++) {
        uintptr_t at = objects->all[i].value - 1, room = HEAP_PAGE - at % HEAP_PAGE;
        size_t bytes = room < sizeof(objects->all[i].words) ? room : sizeof(objects->all[i].words);
        memset(objects->all[i].words, 0, sizeof(objects->all[i].words));
        objects->to[i] = (struct iovec){objects->all[i].words, bytes};
        objects->from[i] = (struct iovec){(void *)at, bytes};
    }
    if (!objects->n || !peek_all(objects->self, objects->to, objects->from, objects->n))
        return !objects->n;
    for (unsigned i = 0; i < objects->n; i++) {
        uintptr_t map = objects->all[i].words[0];
        if (!v8_is_object(map))
            return false;
        objects->to[i] = (struct iovec){&objects->all[i].type, sizeof(uint16_t)};
        objects->from[i] = (struct iovec){(void *)(map - 1 + (unsigned)layout->type), sizeof(uint16_t)};
    }
    return peek_all(objects->self, objects->to, objects->from, objects->n);
}

bool v8_text_of(const struct v8_layout *layout, const struct v8_object *object, struct v8_text *text)
{
    uint32_t length;
    memcpy(&length, (const char *)object->words + layout->length, sizeof(length));
    unsigned kind = object->type & REPRESENTATION;
    if (object->type >= layout->not_string || length > LENGTH_MOST || (kind != SEQUENTIAL && kind != EXTERNAL))
        return false;
    /* Behind the resource of an external string is the address of its characters. */
    uintptr_t in = object->value - 1 + (unsigned)layout->text;
    *text = (struct v8_text){
        .from = kind == EXTERNAL ? object->words[3] : in, .length = length, .bytes = object->type & ONE_BYTE ? 1 : 2};
    return true;
}

unsigned v8_parts_of(const struct v8_layout *layout, const struct v8_object *object, uintptr_t parts[2])
{
    unsigned kind = object->type & REPRESENTATION, n = kind == CONS ? 2 : kind == THIN ? 1 : 0;
    for (unsigned i = 0; i < n; i++)
        parts[i] = object->words[2 + i];
    return object->type < layout->not_string ? n : 0;
}
