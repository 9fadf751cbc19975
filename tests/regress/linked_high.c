/*
 * Symbols of objects that are linked to any base, and whose dynamic section the dynamic linker relocated or left
 * alone. gVisor's vDSO is linked to the end of the address space, so its entries are above its base and yet no
 * addresses.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "platform/os/object.h"

#include <stdbool.h>
#include <sys/mman.h>

enum { PAGES = 16, BYTES = PAGES * 4096, AT = 4096 };

/* An object as it lies in memory, with one symbol. */
struct image {
    ElfW(Dyn) dynamic[5];
    ElfW(Sym) symbols[2];
    uint32_t hash[2];
    char names[32];
};

static struct image *make(void)
{
    char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED);
    struct image *image = (void *)(at + AT);
    strcpy(image->names + 1, "wanted");
    strcpy(image->names + 8, "object.so");
    image->hash[1] = 2;
    image->symbols[1] = (ElfW(Sym)){.st_name = 1, .st_shndx = 1, .st_value = 1234};
    return image;
}

/* `linked` is the address that the object was linked to. */
static void check(struct image *image, uintptr_t linked, bool relocated)
{
    uintptr_t bias = (uintptr_t)image - AT - linked, subtracted = relocated ? 0 : bias;
    image->dynamic[0] = (ElfW(Dyn)){.d_tag = DT_SYMTAB, .d_un.d_ptr = (uintptr_t)image->symbols - subtracted};
    image->dynamic[1] = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = (uintptr_t)image->names - subtracted};
    image->dynamic[2] = (ElfW(Dyn)){.d_tag = DT_HASH, .d_un.d_ptr = (uintptr_t)image->hash - subtracted};
    image->dynamic[3] = (ElfW(Dyn)){.d_tag = DT_SONAME, .d_un.d_val = 8};
    must(object_symbol(bias, image, "wanted") == &image->symbols[1]);
    must(object_symbol(bias, image, "unwanted") == NULL);
    must(strcmp(object_name(bias, image), "object.so") == 0);
}

CASE(linked_to_zero)
{
    struct image *image = make();
    check(image, 0, true);
    check(image, 0, false);
}

CASE(linked_where_it_lies)
{
    struct image *image = make();
    check(image, (uintptr_t)image - AT, true);
}

CASE(linked_to_the_end_of_the_address_space)
{
    struct image *image = make();
    check(image, 0xffffffffff700000, false);
    check(image, 0xffffffffff700000, true);
}

CASE(linked_above_where_it_lies)
{
    struct image *image = make();
    check(image, (uintptr_t)image + (1ul << 32), false);
    check(image, (uintptr_t)image + (1ul << 32), true);
}
