/*
 * The JavaScript engine of the process: V8 where it exports the constants for debuggers (v8dbg_...), as node does,
 * with pointers that are not compressed. malloc() may be called while the engine moves what is read of it, so
 * everything is read by peek() (platform/os/peek.h), each object is checked by its type, and no function of the
 * engine is called.
 */
#ifndef SHEAF_V8_ENGINE_H
#define SHEAF_V8_ENGINE_H

#include "platform/os/compiler.h"
#include "sheaf/profile.h"

/* Offsets in objects, and types of objects. */
struct v8_layout {
    int frame_function, frame_context; /* from the frame pointer */
    int type;                          /* Map */
    int shared;                        /* JSFunction */
    int name, script;                  /* SharedFunctionInfo: its name or ScopeInfo, its Script */
    int script_name, script_source;    /* Script */
    int length, text;                  /* String, and what is in it */
    int scope_locals, scope_first;     /* ScopeInfo, in words behind the map: number of locals, first local */
    int is_function, is_shared, is_script, is_scope, not_string;
};

/* The engine of the process. */
struct v8 {
    struct v8_layout layout;
    struct sheaf_profile_module module;
};

/* False until v8_examine() found an engine; read it with acquire semantics before the rest. */
extern hidden bool v8_running;
extern hidden struct v8 v8_found;

/* A module of the process, which may be the engine. One caller at a time. */
void v8_examine(const struct sheaf_profile_module *module);

#endif
