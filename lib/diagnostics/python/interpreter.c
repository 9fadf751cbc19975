#include "diagnostics/python/interpreter.h"
#include "diagnostics/script/module.h"

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

static const struct python_layout *layout_of(const struct sheaf_profile_module *module, const void *dynamic)
{
    uintptr_t version_at = script_symbol(module, dynamic, "Py_Version", NULL),
              runtime = script_symbol(module, dynamic, "_PyRuntime", NULL);
    if (!version_at || !runtime)
        return NULL;
    unsigned long version = *(const unsigned long *)version_at;
    unsigned minor = version >> 16 & 0xff, i = minor - FIRST_VERSION;
    if (version >> 24 != 3 || i >= sizeof(layouts) / sizeof(*layouts))
        return NULL;
    return minor < 13 || published(&layouts[i], (const uint64_t *)runtime) ? &layouts[i] : NULL;
}

void python_examine(const struct sheaf_profile_module *module)
{
    size_t size = 0;
    const void *dynamic = python_loop ? NULL : script_dynamic(module);
    uintptr_t loop = dynamic ? script_symbol(module, dynamic, "_PyEval_EvalFrameDefault", &size) : 0;
    const struct python_layout *layout = loop ? layout_of(module, dynamic) : NULL;
    if (!layout)
        return;
    union {
        uintptr_t address;
        void *(*call)(void);
    } current, this;
    current.address = script_symbol(module, dynamic, "_PyThreadState_UncheckedGet", NULL);
    if (!current.address)
        current.address = script_symbol(module, dynamic, "PyThreadState_GetUnchecked", NULL);
    this.address = script_symbol(module, dynamic, "PyGILState_GetThisThreadState", NULL);
    python_found = (struct python){.layout = layout,
                                   .code_type = script_symbol(module, dynamic, "PyCode_Type", NULL),
                                   .current_thread = current.call,
                                   .this_thread = this.call,
                                   .loop_end = loop + size,
                                   .module = *module};
    if (current.address && this.address)
        __atomic_store_n(&python_loop, loop, __ATOMIC_RELEASE);
}
