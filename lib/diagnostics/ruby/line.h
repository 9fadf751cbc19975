/* The line of an instruction of a Ruby function. */
#ifndef SHEAF_RUBY_LINE_H
#define SHEAF_RUBY_LINE_H

#include "platform/os/compiler.h"

#include <stdint.h>

/* Where lines are told: rb_iseq_constant_body.insns_info, as it was read. */
struct ruby_lines {
    uintptr_t entries, unused;
    uint32_t n;
    uintptr_t index;
};

/* The line of the instruction with this number of words in front of it; 0 if it cannot be told. */
uint32_t ruby_line(long self, const struct ruby_lines *lines, uintptr_t place);

#endif
