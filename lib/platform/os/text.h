/*
 * Parsing options: numbers, words and name patterns. Nothing here allocates, so it can run before the first
 * allocation.
 */
#ifndef SHEAF_OS_TEXT_H
#define SHEAF_OS_TEXT_H

#include "platform/os/compiler.h"

/*
 * Reads digits and, with `suffix`, an optional unit K, M, G or T (with or without "iB" or "B"), and moves *at
 * behind them. Returns false, with *at unchanged, when there is no number or it does not fit.
 */
bool text_number(const char **at, bool suffix, uint64_t *value);

/* Moves *at behind `word` if the text starts with it; otherwise returns false. */
bool text_word(const char **at, const char *word);

/* Whether the pattern, of `length` characters with * and ? as wildcards, matches the whole of `name`. */
bool text_matches(const char *pattern, size_t length, const char *name);

#endif
