#include "diagnostics/ruby/line.h"
#include "platform/os/peek.h"

#define ENTRY_BYTES 12 /* of an entry: its first number is the line */

/*
 * Instructions where an entry begins are marked in a table of bits, and the number of marks up to an instruction is
 * that of its entry. For the first FEW instructions this number itself is there, in 7 bits, nine of them in a word.
 * Parts of 512 bits follow: the number of marks in front of the part, the same for its second and later words in 9
 * bits each, counted from the part's beginning, and the bits.
 */
#define FEW       54
#define IN_WORD   9
#define PART_BITS 512

struct part {
    uint32_t before;
    uint64_t words_before, bits[PART_BITS / 64];
};

/* The number of entries that begin at or in front of the instruction; 0 if it cannot be told. */
static uint64_t entry_of(long self, uintptr_t index, uintptr_t place)
{
    if (place < FEW) {
        uint64_t word;
        bool read = peek(self, &word, index + place / IN_WORD * sizeof(word), sizeof(word));
        return read ? word >> place % IN_WORD * 7 & 0x7f : 0;
    }
    struct part part;
    uintptr_t bit = (place - FEW) % PART_BITS, word = bit / 64;
    uintptr_t at = index + FEW / IN_WORD * sizeof(uint64_t) + (place - FEW) / PART_BITS * sizeof(part);
    if (!peek(self, &part, at, sizeof(part)))
        return 0;
    uint64_t before = word ? part.words_before >> (word - 1) * 9 & 0x1ff : 0;
    return part.before + before + (unsigned)__builtin_popcountll(part.bits[word] << (63 - bit % 64));
}

uint32_t ruby_line(long self, const struct ruby_lines *lines, uintptr_t place)
{
    uint64_t entry = lines->n == 1 ? 1 : entry_of(self, lines->index, place);
    uint32_t line;
    if (!entry || entry > lines->n || !peek(self, &line, lines->entries + (entry - 1) * ENTRY_BYTES, sizeof(line)))
        return 0;
    return line <= INT32_MAX ? line : 0;
}
