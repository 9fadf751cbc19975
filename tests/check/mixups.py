#!/usr/bin/env python3
"""Checks that values that look alike cannot be given for each other: such code must not compile.

The two ids of a LIFO cache are equal, for example, so no test of such a cache finds one given for the other.
Usage: mixups.py COMPILER [ARGUMENT...]. Prints TAP.
"""

import subprocess
import sys

from tree import ROOT

SOURCE = """
#include "cache/ends.h"
#include "cache/sheaves.h"
void f(struct kmem_cache *cache, struct sheaf *sheaf, struct attached_sheaf *at_end, struct sheaf_stack *stack);
void f(struct kmem_cache *cache, struct sheaf *sheaf, struct attached_sheaf *at_end, struct sheaf_stack *stack)
{
    struct word_id word = word_id(cache->number);
    struct push_id push = cache_push_id(cache);
    struct slot_words *words = slot_words(0, word);
    struct end end = end_of(sheaf);
    (void)at_end, (void)stack, (void)word, (void)push, (void)words, (void)end;
    STATEMENT;
}
"""

# A statement, and what is right and what is a mistake in the place of the @.
MISTAKES = [
    ("slot_pop(@, true)", "word", "push"),
    ("slot_pop_local(@, true)", "word", "push"),
    ("slot_push(@, sheaf)", "push", "word"),
    ("slot_push(@, sheaf)", "push", "cache->slab.id"),
    ("slot_install(0, @, 0, 0)", "word", "push"),
    ("slot_words(0, @)->top = 0", "word", "push"),
    ("slot_push_end(0, @)[0] = 0", "push", "word"),
    ("cache_take_spare(0, @)", "word", "push"),
    ("ends_swap(0, @)", "word", "push"),
    ("rseq_pop(space.base, @)", "word", "push"),
    ("rseq_pop(space.base, @)", "word", "(size_t)8"),
    ("rseq_pop_class(space.base, @)", "(size_t)8", "word"),
    ("rseq_push(space.base, @, sheaf)", "push", "word"),
    ("rseq_push_slice(space.base, @, sheaf)", "slice_of(sheaf)", "push"),
    ("sheaf->@ = 0", "count", "count_then"),
    ("at_end->@ = 0", "count_then", "count"),
    ("@->pushes = 0", "at_end", "sheaf"),
    ("sheaf_at(@->next)", "sheaf", "at_end"),
    ("sheaf_at(@)", "sheaf->next", "sheaf->since"),
    ("sheaf_at(@)", "sheaf->next", "end"),
    ("at_end->pops_start = @(words->top)", "top_pops", "top_push_end"),
    ("at_end->@ = at_end->total", "total", "count_then"),
    ("sheaf_stack_push(stack, @)", "sheaf", "at_end"),
    ("sheaf_stack_push(@, sheaf)", "stack", "&words->spare"),
    ("slot_exchange(0, word, 0, @, at_end, 0)", "at_end", "sheaf"),
    ("words->top = top_of(end, @)", "end", "slot_fold_start"),
    ("words->top = top_of_lifo(end, @)", "slot_fold_start", "end"),
]


def compiles(compiler: list[str], statement: str) -> bool:
    """Return whether a function with this statement compiles without a warning."""
    command = [*compiler, "-std=gnu17", "-Werror", "-fsyntax-only", "-x", "c", "-"]
    command += [f"-I{ROOT / folder}" for folder in ("lib", "lib/include", "")]
    return subprocess.run(command, input=SOURCE.replace("STATEMENT", statement), text=True, capture_output=True).returncode == 0


def main() -> int:
    failed = False
    print(f"1..{len(MISTAKES)}")
    for number, (statement, right, wrong) in enumerate(MISTAKES, 1):
        valid = compiles(sys.argv[1:], statement.replace("@", right))
        refused = not compiles(sys.argv[1:], statement.replace("@", wrong))
        failed |= not (valid and refused)
        print(f"{'ok' if valid and refused else 'not ok'} {number} - {statement}: {right}, not {wrong}")
        if not valid:
            print(f"# it does not compile with {right}")
        if not refused:
            print(f"# it compiles with {wrong}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
