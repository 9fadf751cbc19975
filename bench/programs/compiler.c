/*
 * A load like that of a compiler: trees of small nodes and names, a permanent symbol table, lists of instructions
 * that passes change, buffers that grow. Most memory of a function is freed at its end. Modelled on the compilers
 * among the programs of "The memory fragmentation problem: solved?", ISMM 1998, and of "Empirical measurements of six
 * allocation-intensive C programs", SIGPLAN Notices 1992.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

enum { BUCKETS = 4096, NAMES = 30000, STATEMENTS = 40, DEPTH = 6, KEPT_FUNCTIONS = 64 };

enum kind { CONSTANT, NAME, SUM, PRODUCT, CALL };

struct node {
    enum kind kind;
    unsigned arguments;
    uint64_t value;
    char *name;
    struct node *left, *right;
    struct node **argument;
};

struct instruction {
    struct instruction *next;
    uint64_t opcode, destination, operand[2];
};

struct symbol {
    struct symbol *next;
    char *name;
    uint64_t uses;
};

static struct symbol *symbols[BUCKETS];
static struct instruction *functions[KEPT_FUNCTIONS]; /* code of the latest functions, kept for inlining */
static char *output;                                  /* code of all functions */
static size_t output_length, output_size;
static uint64_t seed = 1, nodes;

static char *copy_name(uint64_t number)
{
    char text[40];
    int length = snprintf(text, sizeof(text), "%s_%llu", number % 3 ? "local" : "a_longer_global_name",
                          (unsigned long long)number);
    return memcpy(take((size_t)length + 1), text, (size_t)length + 1);
}

static struct node *make_node(enum kind kind)
{
    struct node *node = memset(take(sizeof(*node)), 0, sizeof(*node));
    node->kind = kind;
    nodes++;
    return node;
}

static struct node *parse(unsigned depth)
{
    uint64_t r = random_next(&seed) >> 32;
    struct node *node = make_node(depth == 0 ? (enum kind)(r % 2) : (enum kind)(r % 5));
    r /= 5;
    if (node->kind == CONSTANT)
        node->value = r % 1000;
    else if (node->kind == NAME || node->kind == CALL)
        node->name = copy_name(r % NAMES);
    if (node->kind == SUM || node->kind == PRODUCT) {
        node->left = parse(depth - 1);
        node->right = parse(depth - 1);
    }
    if (node->kind == CALL) {
        node->arguments = 1 + (unsigned)(r >> 16) % 4;
        node->argument = take(node->arguments * sizeof(struct node *));
        for (unsigned i = 0; i < node->arguments; i++)
            node->argument[i] = parse(depth - 1);
    }
    return node;
}

static void drop(struct node *node)
{
    if (node == NULL)
        return;
    drop(node->left);
    drop(node->right);
    for (unsigned i = 0; i < node->arguments; i++)
        drop(node->argument[i]);
    give(node->argument);
    give(node->name);
    give(node);
}

/* Replaces sums and products of constants by constants. */
static struct node *fold(struct node *node)
{
    for (unsigned i = 0; i < node->arguments; i++)
        node->argument[i] = fold(node->argument[i]);
    if (node->left == NULL)
        return node;
    node->left = fold(node->left);
    node->right = fold(node->right);
    if (node->left->kind != CONSTANT || node->right->kind != CONSTANT)
        return node;
    struct node *result = make_node(CONSTANT);
    uint64_t a = node->left->value, b = node->right->value;
    result->value = node->kind == SUM ? a + b : a * b;
    drop(node);
    return result;
}

static void resolve(const char *name)
{
    uint64_t hash = 5381;
    for (const char *c = name; *c != 0; c++)
        hash = hash * 33 + (unsigned char)*c;
    struct symbol **place = &symbols[hash % BUCKETS];
    while (*place != NULL && strcmp((*place)->name, name) != 0)
        place = &(*place)->next;
    if (*place == NULL) {
        size_t size = strlen(name) + 1;
        struct symbol *symbol = take(sizeof(*symbol));
        *symbol = (struct symbol){.name = memcpy(take(size), name, size)};
        *place = symbol;
    }
    (*place)->uses++;
}

static uint64_t emit(struct instruction ***end, uint64_t opcode, uint64_t a, uint64_t b)
{
    static uint64_t registers;
    struct instruction *fresh = take(sizeof(*fresh));
    *fresh = (struct instruction){.opcode = opcode, .destination = ++registers, .operand = {a, b}};
    **end = fresh;
    *end = &fresh->next;
    return registers;
}

static uint64_t generate(const struct node *node, struct instruction ***end)
{
    uint64_t a = node->value, b = 0;
    if (node->name != NULL)
        resolve(node->name);
    if (node->left != NULL) {
        a = generate(node->left, end);
        b = generate(node->right, end);
    }
    for (unsigned i = 0; i < node->arguments; i++)
        b += generate(node->argument[i], end);
    return emit(end, node->kind, a, b);
}

/* A pass that removes some instructions and duplicates others. */
static void optimize(struct instruction **place)
{
    while (*place != NULL) {
        struct instruction *here = *place;
        if (here->opcode == CONSTANT && here->operand[0] % 4 == 0) {
            *place = here->next;
            give(here);
            continue;
        }
        if (here->opcode == PRODUCT && here->destination % 8 == 0) {
            struct instruction *extra = take(sizeof(*extra));
            *extra = *here;
            here->next = extra;
            here = extra;
        }
        place = &here->next;
    }
}

static void print_code(const struct instruction *code)
{
    for (; code != NULL; code = code->next) {
        if (output_size - output_length < 100) {
            output_size = output_size * 3 / 2 + 1000;
            output = opaque(realloc(output, output_size));
            if (output == NULL)
                fail("no memory for %zu bytes of output; use a smaller --ops", output_size);
        }
        memcpy(output + output_length, &code->operand, sizeof(code->operand));
        output_length += sizeof(code->operand);
    }
}

static void drop_code(struct instruction *code)
{
    while (code != NULL) {
        struct instruction *next = code->next;
        give(code);
        code = next;
    }
}

static void compile_function(uint64_t number)
{
    struct node *body[STATEMENTS];
    struct instruction *code = NULL, **end = &code;
    for (unsigned i = 0; i < STATEMENTS; i++)
        body[i] = parse(DEPTH);
    for (unsigned i = 0; i < STATEMENTS; i++)
        body[i] = fold(body[i]);
    for (unsigned i = 0; i < STATEMENTS; i++)
        generate(body[i], &end);
    *end = NULL;
    optimize(&code);
    print_code(code);
    for (unsigned i = 0; i < STATEMENTS; i++)
        drop(body[i]);
    drop_code(functions[number % KEPT_FUNCTIONS]);
    functions[number % KEPT_FUNCTIONS] = code;
}

static uint64_t run_compiler(const struct test *test, uint64_t ops)
{
    (void)test;
    uint64_t before = nodes;
    for (uint64_t number = 0; nodes - before < ops; number++)
        compile_function(number);
    return nodes - before;
}

static const struct test compiler_tests[] = {
    {.name = "compiler-like",
     .what = "functions are parsed to trees, folded, compiled to lists of instructions, freed; an op is one node",
     .ops = 6000000,
     .repetitions = 1,
     .cold = 1,
     .run = run_compiler},
    {0},
};
ADD_TESTS(compiler_tests)
