#include "diagnostics/leak/sort.h"

struct sorting {
    char *all;
    size_t size;
    sort_order *precedes;
};

static void *entry(const struct sorting *s, size_t i)
{
    return s->all + i * s->size;
}

static void swap(const struct sorting *s, size_t i, size_t j)
{
    uint64_t *a = entry(s, i), *b = entry(s, j);
    for (size_t word = 0; word < s->size / sizeof(*a); word++) {
        uint64_t between = a[word];
        a[word] = b[word];
        b[word] = between;
    }
}

/* Heap sort: no recursion, and no worst case. The entry that comes last is on top. */
static void sink(const struct sorting *s, size_t at, size_t end)
{
    for (size_t child; (child = 2 * at + 1) < end; at = child) {
        if (child + 1 < end && s->precedes(entry(s, child), entry(s, child + 1)))
            child++;
        if (!s->precedes(entry(s, at), entry(s, child)))
            return;
        swap(s, at, child);
    }
}

void leak_sort(void *all, size_t n, size_t size, sort_order *precedes)
{
    struct sorting s = {all, size, precedes};
    sheaf_assert(size % sizeof(uint64_t) == 0);
    for (size_t i = n / 2; i-- > 0;)
        sink(&s, i, n);
    for (size_t end = n; end-- > 1;) {
        swap(&s, 0, end);
        sink(&s, 0, end);
    }
}
