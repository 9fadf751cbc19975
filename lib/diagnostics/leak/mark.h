/*
 * Marking: which blocks are referenced, and which are lost.
 *
 * A word is a reference if it is an address within a block, as in other conservative collectors. Words are read at
 * addresses that are multiples of 8. Each block is marked and put on the stack at most once
 * each time, so the stack has a fixed size and nothing here recurses.
 *
 * The second pass sorts the blocks that were not reached into those that are lost by themselves and those that are
 * lost with them. It takes as few as possible of the first kind: one of each cycle that nothing else leads to. For
 * that it goes over the blocks twice. The first time, in order, each block that was not found before is a leader,
 * and all that it leads to is found. The second time everything is unknown again, and the leaders are taken in
 * reverse order. If a leader can be reached from another one, but not that one from it, the other came later, or the
 * first would have been found from it; now it is found from the other, and is no leader any more.
 */
#ifndef SHEAF_LEAK_MARK_H
#define SHEAF_LEAK_MARK_H

#include "diagnostics/leak/heap.h"

/* What is lost with a lost block. */
struct lost_with {
    uint64_t blocks, bytes;
};

struct mark {
    struct heap *heap;
    struct maps *maps;
    struct block *stack; /* blocks whose contents are to be read */
    uint64_t depth;
    uint64_t most;            /* blocks that `stack` and `list` have room for: all that were live */
    struct block *list;       /* second pass: the leaders, in order */
    uint64_t leaders;         /* their number */
    struct lost_with *leader; /* of the block that is lost by itself; NULL in the first pass */
    struct lost_with *with;   /* by number */
    uint8_t found;            /* the state of a block that is found: enum block_state */
    bool holes;               /* parts of the heap cannot be read */
};

/* Prepare the first pass. `heap->live` blocks exist. Returns false if there is no memory. */
bool mark_begin(struct mark *mark, struct heap *heap, struct maps *maps);

/* First pass: the word is a reference if it is an address within a block. */
void mark_word(struct mark *mark, uintptr_t word);

/* The same for all words of a range; a visitor of ranges (diagnostics/leak/maps.h) whose `with` is the struct mark.
 */
void mark_range(uintptr_t from, uintptr_t to, void *mark);

/* First pass: follow the references in the blocks reached so far. */
void mark_reached(struct mark *mark);

/* Second pass: sort the blocks that were not reached into BLOCK_LOST and BLOCK_LOST_WITH. */
void mark_lost(struct mark *mark);

#endif
