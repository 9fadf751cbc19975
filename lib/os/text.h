/* Reading of options: numbers, words and name patterns. No libc, so that it can run before the first allocation. */
#ifndef SHEAF_OS_TEXT_H
#define SHEAF_OS_TEXT_H

#include "os/compiler.h"

/* Digits and, with `suffix`, one of K M G T (with or without "iB" or "B"); *at goes behind them. */
bool text_number(const char **at, bool suffix, uint64_t *value);

/* If `word` stands there, *at goes behind it. */
bool text_word(const char **at, const char *word);

/* Whether a pattern of so many characters, with * and ?, stands for the whole of `name`. */
bool text_matches(const char *pattern, size_t length, const char *name);

#endif
