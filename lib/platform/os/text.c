#include "platform/os/text.h"

#include <string.h>

bool text_number(const char **at, bool suffix, uint64_t *value)
{
    static const char suffixes[] = "KMGT";
    const char *p = *at;
    uint64_t n = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return false;
    int upper = *p & ~0x20; /* 0 for a blank: strchr() would find the terminator */
    const char *s = suffix && upper ? strchr(suffixes, upper) : NULL;
    if (s) {
        unsigned shift = 10 * (unsigned)(s - suffixes + 1);
        if (n >> (64 - shift))
            return false;
        n <<= shift;
        p++;
        if (!text_word(&p, "iB"))
            text_word(&p, "B");
    }
    *at = p;
    *value = n;
    return true;
}

bool text_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0)
        return false;
    *at += length;
    return true;
}

/* Backtracking to the last star suffices: what earlier stars matched never has to be revised. */
bool text_matches(const char *pattern, size_t length, const char *name)
{
    size_t p = 0, star = SIZE_MAX;
    const char *from = name;
    while (*name) {
        if (p < length && pattern[p] == '*') {
            star = p++;
            from = name;
        } else if (p < length && (pattern[p] == '?' || pattern[p] == *name)) {
            p++;
            name++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (p < length && pattern[p] == '*')
        p++;
    return p == length;
}
