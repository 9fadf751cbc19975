#include "diagnostics/ruby/interpreter.h"
#include "diagnostics/script/module.h"

#include <string.h>

static const struct ruby_layout layouts[] = {
    {.frame = 64, .lines = 120, .text = 16},
    {.frame = 64, .lines = 112, .text = 24},
    {.frame = 56, .lines = 112, .text = 24},
    {.frame = 56, .lines = 112, .text = 24},
};
#define FIRST_VERSION 1 /* of the layouts: 3.1 */

uintptr_t ruby_loop;

struct ruby ruby_found;

static const struct ruby_layout *layout_of(const struct sheaf_profile_module *module, const void *dynamic)
{
    uintptr_t version = script_symbol(module, dynamic, "ruby_api_version", NULL);
    if (!version)
        return NULL;
    const int *numbers = (const int *)version;
    unsigned i = (unsigned)numbers[1] - FIRST_VERSION;
    return numbers[0] == 3 && i < sizeof(layouts) / sizeof(*layouts) ? &layouts[i] : NULL;
}

void ruby_examine(const struct sheaf_profile_module *module)
{
    size_t size = 0;
    const void *dynamic = ruby_loop ? NULL : script_dynamic(module);
    uintptr_t loop = dynamic ? script_symbol(module, dynamic, "rb_vm_exec", &size) : 0;
    const struct ruby_layout *layout = loop ? layout_of(module, dynamic) : NULL;
    if (!layout)
        return;
    ruby_found = (struct ruby){.layout = layout, .loop_end = loop + size, .module = *module};
    if (tls_find(module->bias, dynamic, "ruby_current_ec", &ruby_found.context))
        __atomic_store_n(&ruby_loop, loop, __ATOMIC_RELEASE);
}
