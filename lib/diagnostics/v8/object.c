#include "diagnostics/v8/object.h"
#include "platform/os/peek.h"
#include "platform/os/vm.h"

#include <string.h>

#define HEAP_PAGE   (256u << 10) /* what lies behind the end may not be mapped */
#define NO_TYPE     UINT16_MAX   /* of an object that cannot be read */
#define LENGTH_MOST (1u << 30)

/* Bits of a string's type. */
enum { SEQUENTIAL = 0, CONS = 1, EXTERNAL = 2, THIN = 5, REPRESENTATION = 7, ONE_BYTE = 8 };

bool v8_peek(long self, const struct iovec *to, const struct iovec *from, unsigned n)
{
    if (!n || peek_all(self, to, from, n))
        return n;
    bool any = false;
    for (unsigned i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)from[i].iov_base;
        size_t first = vm_page_size() - at % vm_page_size();
        memset(to[i].iov_base, 0, to[i].iov_len);
        any |=
            peek_all(self, &to[i], &from[i], 1) || (first < from[i].iov_len && peek(self, to[i].iov_base, at, first));
    }
    return any;
}

bool v8_read(const struct v8_layout *layout, struct v8_objects *objects)
{
    for (unsigned i = 0; i < objects->n; i++) {
        uintptr_t at = objects->all[i].value - 1, room = HEAP_PAGE - at % HEAP_PAGE;
        size_t bytes = room < sizeof(objects->all[i].words) ? room : sizeof(objects->all[i].words);
        memset(objects->all[i].words, 0, sizeof(objects->all[i].words));
        objects->to[i] = (struct iovec){objects->all[i].words, bytes};
        objects->from[i] = (struct iovec){(void *)at, bytes};
    }
    if (!objects->n || !v8_peek(objects->self, objects->to, objects->from, objects->n))
        return !objects->n;
    unsigned n = 0;
    for (unsigned i = 0; i < objects->n; i++) {
        uintptr_t map = objects->all[i].words[0];
        objects->all[i].type = NO_TYPE;
        if (!v8_is_object(map))
            continue;
        objects->to[n] = (struct iovec){&objects->all[i].type, sizeof(uint16_t)};
        objects->from[n++] = (struct iovec){(void *)(map - 1 + (unsigned)layout->type), sizeof(uint16_t)};
    }
    return n && peek_all(objects->self, objects->to, objects->from, n);
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
