/*
 * A load like that of a symbolic algebra program: powers of polynomials in four variables. A polynomial is a linked
 * list of terms, each with an integer of any length. Every step allocates new terms and frees the old ones. Modelled
 * on cfrac and the algebra programs in "Empirical measurements of six allocation-intensive C programs", SIGPLAN
 * Notices 1992.
 */
#include "../test.h"

#include <string.h>

enum { FACTOR_TERMS = 5, POWER = 14, KEPT = 8 };

/* The digits are little-endian, without leading zeros. */
struct integer {
    uint32_t length;
    uint32_t digits[];
};

struct term {
    struct term *next;  /* the next lower exponents */
    uint64_t exponents; /* 16 bits for each variable; a sum of exponents is a product of terms */
    struct integer *coefficient;
};

static uint64_t terms_made;
static struct term *kept[KEPT]; /* the latest results */

static struct integer *make_integer(uint32_t length)
{
    struct integer *made = take(sizeof(*made) + length * sizeof(uint32_t) + 4);
    made->length = length;
    return made;
}

static struct integer *times(const struct integer *a, uint32_t factor)
{
    struct integer *result = make_integer(a->length + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->length; i++) {
        carry += (uint64_t)a->digits[i] * factor;
        result->digits[i] = (uint32_t)carry;
        carry >>= 32;
    }
    result->digits[a->length] = (uint32_t)carry;
    result->length -= carry == 0;
    return result;
}

static struct integer *plus(const struct integer *a, const struct integer *b)
{
    if (a->length < b->length) {
        const struct integer *shorter = a;
        a = b;
        b = shorter;
    }
    struct integer *result = make_integer(a->length + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->length; i++) {
        carry += (uint64_t)a->digits[i] + (i < b->length ? b->digits[i] : 0);
        result->digits[i] = (uint32_t)carry;
        carry >>= 32;
    }
    result->digits[a->length] = (uint32_t)carry;
    result->length -= carry == 0;
    return result;
}

static struct term *make_term(uint64_t exponents, struct integer *coefficient)
{
    struct term *made = take(sizeof(*made));
    *made = (struct term){.exponents = exponents, .coefficient = coefficient};
    terms_made++;
    return made;
}

static void drop(struct term *term)
{
    while (term != NULL) {
        struct term *next = term->next;
        give(term->coefficient);
        give(term);
        term = next;
    }
}

static struct term *scaled(const struct term *from, uint64_t exponents, uint32_t factor)
{
    struct term *first = NULL, **end = &first;
    for (; from != NULL; from = from->next) {
        *end = make_term(from->exponents + exponents, times(from->coefficient, factor));
        end = &(*end)->next;
    }
    return first;
}

/* Returns a + b, built from the terms of both lists. */
static struct term *sum(struct term *a, struct term *b)
{
    struct term *first = NULL, **end = &first;
    while (a != NULL && b != NULL) {
        struct term **from = a->exponents >= b->exponents ? &a : &b;
        if (a->exponents == b->exponents) {
            struct term *gone = b;
            struct integer *added = plus(a->coefficient, b->coefficient);
            b = b->next;
            give(a->coefficient);
            a->coefficient = added;
            gone->next = NULL;
            drop(gone);
        }
        *end = *from;
        end = &(*from)->next;
        *from = (*from)->next;
    }
    *end = a != NULL ? a : b;
    return first;
}

/* Returns (c0 + c1 x + c2 y + c3 z + c4 t) to the power of POWER, multiplied by one factor at a time. */
static struct term *expand(uint64_t *seed)
{
    struct integer *one = make_integer(1);
    one->digits[0] = 1;
    struct term *product = make_term(0, one);
    for (unsigned power = 0; power < POWER; power++) {
        struct term *next = NULL;
        for (unsigned i = 0; i < FACTOR_TERMS; i++) {
            uint64_t variable = i == 0 ? 0 : UINT64_C(1) << (16 * (i - 1));
            next = sum(next, scaled(product, variable, 1 + (uint32_t)(random_next(seed) >> 36)));
        }
        drop(product);
        product = next;
    }
    return product;
}

static uint64_t run_algebra(const struct test *test, uint64_t ops)
{
    static uint64_t seed = 1;
    (void)test;
    uint64_t before = terms_made;
    for (unsigned n = 0; terms_made - before < ops; n++) {
        drop(kept[n % KEPT]);
        kept[n % KEPT] = expand(&seed);
    }
    return terms_made - before;
}

static const struct test algebra_tests[] = {
    {.name = "algebra-like",
     .what = "powers of polynomials in four variables with long integers; an op is one term created",
     .ops = 10000000,
     .repetitions = 1,
     .cold = 1,
     .run = run_algebra},
    {0},
};
ADD_TESTS(algebra_tests)
