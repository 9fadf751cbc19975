/*
 * The Ruby interpreter of the process: MRI 3.1 to 3.4.
 *
 * malloc() may be called while the interpreter changes what is read of it, and by a signal handler at any point of
 * it. So everything is read by peek() (platform/os/peek.h), nothing is written, and no function of the interpreter is
 * called. Ruby publishes no offsets, so each object is checked to be of the kind that it should be, and a stack where
 * any is not has no Ruby functions.
 */
#ifndef SHEAF_RUBY_INTERPRETER_H
#define SHEAF_RUBY_INTERPRETER_H

#include "diagnostics/script/tls.h"
#include "sheaf/profile.h"

/* Offsets and sizes that are not the same in all versions. */
struct ruby_layout {
    uint16_t frame; /* bytes of rb_control_frame_t */
    uint16_t lines; /* rb_iseq_constant_body: insns_info */
    uint16_t text; /* struct RString: text that lies in the object. In front of it is its length, unless this is 16 */
};

/* The interpreter of the process. */
struct ruby {
    const struct ruby_layout *layout;
    struct tls_variable context; /* ruby_current_ec */
    uintptr_t loop_end;          /* of rb_vm_exec(), which begins at ruby_loop */
    struct sheaf_profile_module module;
};

/* 0 until ruby_examine() found an interpreter; read it with acquire semantics before the rest. */
extern hidden uintptr_t ruby_loop;
extern hidden struct ruby ruby_found;

/* A module of the process, which may be the interpreter. One caller at a time. */
void ruby_examine(const struct sheaf_profile_module *module);

#endif
