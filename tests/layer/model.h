/*
 * The model of a cache: the tables of docs/cold-path.md, "What each event changes". Cells are compared as text.
 *
 * Numbers of objects are those of one sheaf, -1 where there is none.
 */
#ifndef SHEAF_TESTS_LAYER_MODEL_H
#define SHEAF_TESTS_LAYER_MODEL_H

#include <stdbool.h>

#define ABSENT (-1)

enum place { POP, PUSH, SPARE, PLACES };

struct state {
    int in[PLACES];
    int capacity;            /* of sheaves */
    int barn, sheaves, last; /* objects and sheaves in the barn; objects in the sheaf that was put last */
    int limit;               /* objects that the barn accepts */
    const char *conditions;  /* those of the column "if" that hold, with a comma behind each */
};

enum column { EVENT, GUARDS, BARN = GUARDS + PLACES, IF, NEXT, NEW_BARN = NEXT + PLACES, COUNTERS, COLUMNS };

struct row {
    char cell[COLUMNS][128];
    unsigned line, met;
};

struct model {
    struct row rows[100];
    unsigned count;
};

/* Read the nth table of the page, which begins at 0. */
void model_read(struct model *model, const char *page, unsigned table);

/* The first row of the event that fits, or of the event before its comma. It ends the test if there is none. */
struct row *model_row(struct model *model, const char *event, const struct state *before);

/* The event of the row that fits and was met least; NULL if none fits. */
const char *model_rare(const struct model *model, const struct state *is);

/* End the test unless the row says that `before` may become `after`. */
void model_check(const struct row *row, const struct state *before, const struct state *after);

/* What the row says of a counter, or of another word of that column: how often it must and may go up. For counters of
 * objects any number is 1. */
struct range {
    int least, most;
};
struct range model_counts(const struct row *row, const char *name);

/* End the test with a message about the row. */
__attribute__((noreturn, format(printf, 2, 3))) void model_fail(const struct row *row, const char *format, ...);

#endif
