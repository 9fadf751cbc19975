#include "python/interpreter.h"
#include "os/object.h"

#include <elf.h>
#include <string.h>

static const struct python_layout layouts[] = {
    {.thread = 152,
     .current = 56,
     .indirect = 8 + 1,
     .code = 32,
     .previous = 48,
     .at = 56,
     .owner = 69,
     .entry = 68,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 72,
     .instructions = 184,
     .ascii = 48,
     .compact = 72},
    {.thread = 136,
     .current = 56,
     .indirect = 0 + 1,
     .code = 0,
     .previous = 8,
     .at = 56,
     .owner = 70,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 68,
     .instructions = 192,
     .ascii = 40,
     .compact = 56},
    {.thread = 152,
     .current = 72,
     .code = 0,
     .previous = 8,
     .at = 56,
     .owner = 70,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 68,
     .instructions = 200,
     .ascii = 40,
     .compact = 56},
};
#define FIRST_VERSION 11 /* of the layouts: 3.11 */

uintptr_t python_loop;

struct python python_found;

/* The dynamic section of a module, whose first segment has its headers; NULL if there is none. */
static const void *dynamic_of(const struct sheaf_profile_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->start;
    size_t bytes = module->end - module->start;
    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > bytes)
        return NULL;
    const ElfW(Phdr) *parts = (const void *)(module->start + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_DYNAMIC)
            return (const void *)(module->bias + parts[i].p_vaddr);
    return NULL;
}

static uintptr_t address_of(uintptr_t bias, const void *dynamic, const char *name, size_t *size)
{
    const ElfW(Sym) *symbol = object_symbol(bias, dynamic, name);
    if (symbol && size)
        *size = symbol->st_size;
    return symbol ? bias + symbol->st_value : 0;
}

/*
 * The offsets that CPython 3.13 publishes at the start of _PyRuntime: whether they are those of the layout. The
 * words are: a cookie, the version, whether there is no GIL, and the sizes and offsets of structures.
 */
static bool published(const struct python_layout *layout, const uint64_t *words)
{
    enum { COOKIE, VERSION, NO_GIL, THREAD = 19, FRAME = 28, CODE = 34 };
    return !memcmp(&words[COOKIE], "xdebugpy", 8) && !words[NO_GIL] && words[VERSION] >> 24 == 3 &&
           words[THREAD + 4] == layout->current && words[THREAD + 5] == layout->thread &&
           words[FRAME + 1] == layout->previous && words[FRAME + 2] == layout->code &&
           words[FRAME + 3] == layout->at && words[FRAME + 5] == layout->owner && words[CODE + 1] == layout->file &&
           words[CODE + 3] == layout->function && words[CODE + 4] == layout->lines &&
           words[CODE + 5] == layout->first_line && words[CODE + 9] == layout->instructions;
}

static const struct python_layout *layout_of(uintptr_t bias, const void *dynamic)
{
    uintptr_t version_at = address_of(bias, dynamic, "Py_Version", NULL),
              runtime = address_of(bias, dynamic, "_PyRuntime", NULL);
    if (!version_at || !runtime)
        return NULL;
    unsigned long version = *(const unsigned long *)version_at;
    unsigned minor = version >> 16 & 0xff, i = minor - FIRST_VERSION;
    if (version >> 24 != 3 || i >= sizeof(layouts) / sizeof(*layouts))
        return NULL;
    return minor < 13 || published(&layouts[i], (const uint64_t *)runtime) ? &layouts[i] : NULL;
}

void python_look(const struct sheaf_profile_module *module)
{
    size_t size = 0;
    const void *dynamic = python_loop ? NULL : dynamic_of(module);
    uintptr_t loop = dynamic ? address_of(module->bias, dynamic, "_PyEval_EvalFrameDefault", &size) : 0;
    const struct python_layout *layout = loop ? layout_of(module->bias, dynamic) : NULL;
    if (!layout)
        return;
    union {
        uintptr_t address;
        void *(*call)(void);
    } current, this;
    current.address = address_of(module->bias, dynamic, "_PyThreadState_UncheckedGet", NULL);
    if (!current.address)
        current.address = address_of(module->bias, dynamic, "PyThreadState_GetUnchecked", NULL);
    this.address = address_of(module->bias, dynamic, "PyGILState_GetThisThreadState", NULL);
    python_found = (struct python){.layout = layout,
                                   .code_type = address_of(module->bias, dynamic, "PyCode_Type", NULL),
                                   .current_thread = current.call,
                                   .this_thread = this.call,
                                   .loop_end = loop + size,
                                   .module = *module};
    if (current.address && this.address)
        __atomic_store_n(&python_loop, loop, __ATOMIC_RELEASE);
}
