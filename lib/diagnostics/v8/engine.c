#include "diagnostics/v8/engine.h"
#include "diagnostics/script/module.h"

#include <string.h>

bool v8_running;

struct v8 v8_found;

/* A constant, and where it belongs, or the value that it must have. */
struct constant {
    const char *name;
    size_t at;
    int value;
};
#define MUST   SIZE_MAX
#define AT(it) offsetof(struct v8_layout, it), 0
static const struct constant constants[] = {
    {"v8dbg_off_fp_function", AT(frame_function)},
    {"v8dbg_off_fp_context", AT(frame_context)},
    {"v8dbg_class_Map__instance_type__uint16_t", AT(type)},
    {"v8dbg_class_JSFunction__shared__SharedFunctionInfo", AT(shared)},
    {"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object", AT(name)},
    {"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject", AT(script)},
    {"v8dbg_class_Script__name__Object", AT(script_name)},
    {"v8dbg_class_Script__source__Object", AT(script_source)},
    {"v8dbg_class_String__length__int32_t", AT(length)},
    {"v8dbg_class_SeqOneByteString__chars__char", AT(text)},
    {"v8dbg_scopeinfo_idx_ncontextlocals", AT(scope_locals)},
    {"v8dbg_scopeinfo_idx_first_vars", AT(scope_first)},
    {"v8dbg_type_JSFunction__JS_FUNCTION_TYPE", AT(is_function)},
    {"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", AT(is_shared)},
    {"v8dbg_type_Script__SCRIPT_TYPE", AT(is_script)},
    {"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE", AT(is_scope)},
    {"v8dbg_FirstNonstringType", AT(not_string)},
    {"v8dbg_class_HeapObject__map__Map", MUST, 0},
    {"v8dbg_TaggedSizeLog2", MUST, 3},
    {"v8dbg_HeapObjectTag", MUST, 1},
    {"v8dbg_HeapObjectTagMask", MUST, 3},
    {"v8dbg_SmiTagMask", MUST, 1},
    {"v8dbg_StringRepresentationMask", MUST, 7},
    {"v8dbg_SeqStringTag", MUST, 0},
    {"v8dbg_ConsStringTag", MUST, 1},
    {"v8dbg_ExternalStringTag", MUST, 2},
    {"v8dbg_StringEncodingMask", MUST, 8},
};

/* Constants that do not suit what is read are those of another engine. */
static bool suits(size_t at, int value)
{
    if (at == offsetof(struct v8_layout, frame_function) || at == offsetof(struct v8_layout, frame_context))
        return value >= -48 && value <= -8 && value % 8 == 0;
    if (at == offsetof(struct v8_layout, scope_locals) || at == offsetof(struct v8_layout, scope_first))
        return value >= 0 && value <= 6;
    if (at >= offsetof(struct v8_layout, is_function))
        return value >= 0 && value <= 4096;
    return value >= 8 && value <= 56; /* fields of an object, behind the address of its map */
}

static bool read_constant(const struct sheaf_profile_module *module, const void *dynamic, const struct constant *one,
                          struct v8_layout *layout)
{
    size_t size = 0;
    uintptr_t at = script_symbol(module, dynamic, one->name, &size);
    if (!at || size != sizeof(int))
        return false;
    int value = *(const int *)at;
    if (one->at == MUST)
        return value == one->value;
    memcpy((char *)layout + one->at, &value, sizeof(value));
    return suits(one->at, value);
}

void v8_examine(const struct sheaf_profile_module *module)
{
    const void *dynamic = v8_running ? NULL : script_dynamic(module);
    struct v8 found = {.module = *module};
    if (!dynamic)
        return;
    for (unsigned i = 0; i < sizeof(constants) / sizeof(*constants); i++)
        if (!read_constant(module, dynamic, &constants[i], &found.layout))
            return;
    v8_found = found;
    __atomic_store_n(&v8_running, true, __ATOMIC_RELEASE);
}
