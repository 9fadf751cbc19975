#include "model.h"
#include "../must.h"
#include "platform/os/compiler.h"

#include <ctype.h>
#include <stdarg.h>

void model_fail(const struct row *row, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    dprintf(2, "docs/cold-path.md:%u: %s: ", row->line, row->cell[EVENT]);
    vdprintf(2, format, list);
    dprintf(2, "\n");
    va_end(list);
    _exit(1);
}

/* ---- reading ---- */

static void read_row(struct row *row, char *text, unsigned line)
{
    row->line = line;
    strsep(&text, "|");
    for (unsigned i = 0; i < COLUMNS; i++) {
        char *cell = strsep(&text, "|");
        must(cell && text);
        while (*cell == ' ')
            cell++;
        size_t n = strlen(cell);
        while (n && cell[n - 1] == ' ')
            n--;
        must(n < sizeof(row->cell[i]));
        memcpy(row->cell[i], cell, n);
    }
}

void model_read(struct model *model, const char *page, unsigned table)
{
    static const char head[] = "| event | pop | push |";
    char text[1024];
    unsigned line = 0, tables = 0;
    bool inside = false;
    FILE *file = fopen(page, "r");
    must(file);
    while (fgets(text, sizeof(text), file)) {
        line++;
        bool begins = !strncmp(text, head, sizeof(head) - 1);
        tables += begins;
        inside = *text == '|' && (inside || begins);
        if (!inside || begins || tables != table + 1 || !strncmp(text, "|--", 3))
            continue;
        must(model->count < array_size(model->rows));
        read_row(&model->rows[model->count++], text, line);
    }
    fclose(file);
    must(model->count);
}

/* ---- comparing ---- */

/* Whether a sheaf with n objects is one of the alternatives in the cell. */
static bool fits_sheaf(const struct row *row, const char *cell, int n, int capacity)
{
    char text[sizeof(row->cell[0])], *at = text;
    strcpy(text, cell);
    for (char *word; (word = strsep(&at, " "));) {
        if (!strcmp(word, "or"))
            continue;
        bool fits = !strcmp(word, "none")    ? n == ABSENT
                    : !strcmp(word, "empty") ? n == 0
                    : !strcmp(word, "holds") ? n > 0
                    : !strcmp(word, "room")  ? n >= 0 && n < capacity
                    : !strcmp(word, "full")  ? n == capacity
                    : !strcmp(word, "low")   ? n > 0 && 4 * n <= 3 * capacity
                    : !strcmp(word, "high")  ? 4 * n > 3 * capacity
                                             : (model_fail(row, "what is '%s'?", word), false);
        if (fits)
            return true;
    }
    return false;
}

static bool fits_barn(const struct row *row, const struct state *is)
{
    const char *cell = row->cell[BARN];
    bool room = is->barn + is->capacity <= is->limit;
    if (!strcmp(cell, "empty"))
        return !is->sheaves;
    if (!strcmp(cell, "holds"))
        return is->sheaves;
    if (strcmp(cell, "room") != 0 && strcmp(cell, "full") != 0)
        model_fail(row, "what is a barn that is '%s'?", cell);
    return room == !strcmp(cell, "room");
}

static bool fits(const struct row *row, const struct state *is)
{
    for (unsigned i = 0; i < PLACES; i++)
        if (*row->cell[GUARDS + i] && !fits_sheaf(row, row->cell[GUARDS + i], is->in[i], is->capacity))
            return false;
    if (*row->cell[BARN] && !fits_barn(row, is))
        return false;
    const char *found = *row->cell[IF] ? strstr(is->conditions, row->cell[IF]) : NULL;
    return !*row->cell[IF] || (found && found[strlen(row->cell[IF])] == ',');
}

struct row *model_row(struct model *model, const char *event, const struct state *before)
{
    char plain[64];
    strcpy(plain, event);
    plain[strcspn(plain, ",")] = 0;
    for (const char *name = event;; name = plain) {
        for (struct row *row = model->rows; row < model->rows + model->count; row++)
            if (!strcmp(row->cell[EVENT], name) && fits(row, before))
                return row;
        if (name == plain)
            break;
    }
    dprintf(2, "no row for %s: pop %d, push %d, spare %d, barn %d of %d in %d, %s\n", event, before->in[POP],
            before->in[PUSH], before->in[SPARE], before->barn, before->limit, before->sheaves, before->conditions);
    _exit(1);
}

const char *model_rare(const struct model *model, const struct state *is)
{
    const struct row *rare = NULL;
    for (const struct row *row = model->rows; row < model->rows + model->count; row++)
        if ((!rare || row->met < rare->met) && fits(row, is))
            rare = row;
    return rare ? rare->cell[EVENT] : NULL;
}

/* A number, or a name with a number added to it. */
static int number(const struct row *row, const char *word, const struct state *before)
{
    static const char *const names[] = {"pop", "push", "spare"};
    size_t n = strcspn(word, "+-");
    int more = word[n] ? atoi(word + n) : 0;
    for (unsigned i = 0; i < PLACES; i++)
        if (n == strlen(names[i]) && !strncmp(word, names[i], n)) {
            int had = before->in[i];
            return more && had == ABSENT ? more : had + more;
        }
    if (!strncmp(word, "barn", n))
        return before->last + more;
    if (!strncmp(word, "capacity", n))
        return before->capacity + more;
    if (!isdigit(*word))
        model_fail(row, "what is '%s'?", word);
    return atoi(word);
}

static bool becomes(const struct row *row, const char *cell, const struct state *before, int n)
{
    char text[sizeof(row->cell[0])], *at = text;
    int last = 0;
    strcpy(text, cell);
    for (char *word; (word = strsep(&at, " "));) {
        if (!strcmp(word, "or"))
            continue;
        if (!strcmp(word, "any") || (!strcmp(word, "more") && n >= last))
            return true;
        if (!strcmp(word, "more"))
            continue;
        last = !strcmp(word, "none") ? ABSENT : number(row, word, before);
        if (n == last)
            return true;
    }
    return false;
}

static bool barn_becomes(const struct row *row, const struct state *before, const struct state *after)
{
    const char *cell = row->cell[NEW_BARN];
    int more = after->barn - before->barn, sheaves = after->sheaves - before->sheaves;
    if (!strcmp(cell, "any"))
        return true;
    if (!strcmp(cell, "0"))
        return !after->barn && !after->sheaves;
    if (!strcmp(cell, "-sheaf"))
        return more == -before->last && sheaves == -1;
    if (!strcmp(cell, "-1"))
        return more == -1 && sheaves == (before->last == 1 ? -1 : 0);
    if (*cell == '+')
        return more == number(row, cell + 1, before) && sheaves == 1;
    return !more && !sheaves;
}

void model_check(const struct row *row, const struct state *before, const struct state *after)
{
    static const char *const names[] = {"pop end", "push end", "spare"};
    for (unsigned i = 0; i < PLACES; i++) {
        const char *cell = row->cell[NEXT + i];
        if (*cell ? !becomes(row, cell, before, after->in[i]) : after->in[i] != before->in[i])
            model_fail(row, "the %s went from %d to %d, not to '%s'", names[i], before->in[i], after->in[i], cell);
    }
    if (!barn_becomes(row, before, after))
        model_fail(row, "the barn went from %d in %d to %d in %d, not to '%s'", before->barn, before->sheaves,
                   after->barn, after->sheaves, row->cell[NEW_BARN]);
}

struct range model_counts(const struct row *row, const char *name)
{
    char text[sizeof(row->cell[0])], *at = text;
    strcpy(text, row->cell[COUNTERS]);
    for (char *word; (word = strsep(&at, ","));) {
        word += *word == ' ';
        size_t n = strlen(name);
        if (strncmp(word, name, n) != 0 || (word[n] && !strchr("? ", word[n])))
            continue;
        int times = word[n] == ' ' ? atoi(word + n) : 1;
        return (struct range){word[n] == '?' ? 0 : times, times};
    }
    return (struct range){0, 0};
}
