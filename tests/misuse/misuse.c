/*
 * One fault for each case, in a child of its own, without debugging. It must print one line with the kind of
 * fault, the pointer and its cache, and end by SIGABRT. Prints TAP. Usage: misuse [CASE]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char global[64];
static int telling; /* a pipe on which the child passes the misused pointer to the parent */

static void *tell(void *p)
{
    if (write(telling, &p, sizeof(p)) != sizeof(p))
        _exit(3);
    return p;
}

static void double_now(void)
{
    void *p = malloc(64);
    free(p);
    free(tell(p));
}

static void double_second(void)
{
    void *a = malloc(64), *b = malloc(64);
    free(a);
    free(b);
    free(tell(a));
}

/* Other objects are freed in between, so the fault is found only when the sheaf is flushed. */
static void double_late(void)
{
    void *many[8];
    for (int i = 0; i < 8; i++)
        many[i] = malloc(250);
    for (int i = 0; i < 8; i++)
        free(many[i]);
    free(tell(many[2]));
    malloc_trim(0);
}

static void interior_small(void)
{
    char *p = malloc(250);
    free(tell(p + 16));
    malloc_trim(0);
}

static void interior_large(void)
{
    char *p = malloc(1 << 20);
    free(tell(p + 4096));
}

static void interior_large_slice(void)
{
    char *p = malloc(1 << 20);
    free(tell(p + (1 << 16)));
}

static void large_twice(void)
{
    void *p = malloc(1 << 20);
    free(p);
    free(tell(p));
}

static void static_object(void)
{
    free(tell(global));
}

static void stack_object(void)
{
    char local[64];
    char *volatile p = local;
    free(tell(p));
}

static void code_address(void)
{
    free(tell((void *)(size_t)code_address));
}

static void mapped(void)
{
    free(tell(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
}

static void small_number(void)
{
    free(tell((void *)(size_t)0x1234));
}

static void never_allocated(void)
{
    char *p = malloc(1 << 20);
    free(tell(p + (1l << 32)));
}

static void realloc_foreign(void)
{
    void *volatile p = realloc(tell(global), 100);
    (void)p;
}

static void usable_foreign(void)
{
    volatile size_t n = malloc_usable_size(tell(global));
    (void)n;
}

static void outside_the_address_space(void)
{
    free(tell((void *)(size_t)0xdead00000000beef));
}

static void argument(void)
{
    free(tell(program_invocation_name));
}

static __thread char own[100];

static void of_thread(void)
{
    free(tell(own + 4));
}

static void *free_it(void *p)
{
    free(p);
    return NULL;
}

/* free() compares with the slot's two latest frees. If the thread uses another slot, the flush finds the fault. */
static void double_in_other_thread(void)
{
    pthread_t t;
    void *p = malloc(300);
    free(tell(p));
    pthread_create(&t, NULL, free_it, p);
    pthread_join(t, NULL);
    malloc_trim(0);
}

/* The memory of the object's slab has already been returned to the system. */
static void double_after_trim(void)
{
    void *p[5000];
    for (int i = 0; i < 5000; i++)
        p[i] = malloc(1000);
    for (int i = 0; i < 5000; i++)
        free(p[i]);
    malloc_trim(0);
    free(tell(p[2000]));
    malloc_trim(0);
}

static void large_after_trim(void)
{
    void *p = malloc(1 << 20);
    free(p);
    malloc_trim(0);
    free(tell(p));
}

static void interior_aligned(void)
{
    char *p = memalign(1 << 20, 1 << 20);
    free(tell(p + 64));
}

static void below_block(void)
{
    char *p = malloc(1 << 20);
    free(tell(p - 16));
}

static void realloc_interior_large(void)
{
    char *p = malloc(1 << 20);
    void *volatile q = realloc(tell(p + 4096), 100);
    (void)q;
}

static void realloc_freed_large(void)
{
    void *p = malloc(1 << 20);
    free(p);
    void *volatile q = realloc(tell(p), 2 << 20);
    (void)q;
}

static void outside_twice(void)
{
    void *p = malloc(1 << 20);
    p = realloc(p, 30 << 20);
    free(p);
    free(tell(p));
}

/* Legal use must print nothing. */
static void legal(void)
{
    void *p[300];
    free(NULL);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 300; i++)
            p[i] = malloc((size_t)(i * round) % 3000);
        for (int i = 0; i < 300; i++)
            free(p[(i * 7) % 300]);
    }
    malloc_trim(0);
}

static const struct misuse {
    const char *name;
    void (*run)(void);
    const char *kind; /* the kind of fault in the report; NULL: there is no fault */
    const char *of;   /* the cache in the report */
} cases[] = {
    {"double-free-at-once", double_now, "double free", "malloc-64"},
    {"double-free-of-second-latest", double_second, "double free", "malloc-64"},
    {"double-free-seen-at-flush", double_late, "double free", "malloc-256"},
    {"interior-of-small", interior_small, "interior pointer", "malloc-256"},
    {"interior-of-large", interior_large, "interior pointer", "large block"},
    {"interior-of-large-at-slice", interior_large_slice, "interior pointer", "large block"},
    {"large-twice", large_twice, "double free", "large block"},
    {"static", static_object, "foreign pointer", ""},
    {"stack", stack_object, "foreign pointer", ""},
    {"code", code_address, "foreign pointer", ""},
    {"mapped", mapped, "foreign pointer", ""},
    {"small-number", small_number, "foreign pointer", ""},
    {"never-allocated", never_allocated, "foreign pointer", ""},
    {"realloc-foreign", realloc_foreign, "foreign pointer", ""},
    {"usable-size-foreign", usable_foreign, "foreign pointer", ""},
    {"outside-the-address-space", outside_the_address_space, "foreign pointer", ""},
    {"argument-of-main", argument, "foreign pointer", ""},
    {"thread-local", of_thread, "foreign pointer", ""},
    {"double-free-in-other-thread", double_in_other_thread, "double free", "malloc-320"},
    {"double-free-after-trim", double_after_trim, "", ""},
    {"large-after-trim", large_after_trim, "double free", "large block"},
    {"interior-of-aligned", interior_aligned, "interior pointer", "large block"},
    {"below-a-block", below_block, "", ""},
    {"realloc-interior-of-large", realloc_interior_large, "interior pointer", "large block"},
    {"realloc-freed-large", realloc_freed_large, "double free", "large block"},
    {"grown-and-freed-twice", outside_twice, "double free", "large block"},
    {"legal", legal, NULL, ""},
};

static const char *judge(const struct misuse *c, int status, const char *text, void *pointer)
{
    static char wanted[32];
    if (!c->kind)
        return status ? "a legal program failed" : *text ? "a report was printed for a legal program" : NULL;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        return "the process did not end by SIGABRT";
    snprintf(wanted, sizeof(wanted), "%p", pointer);
    const char *newline = strchr(text, '\n');
    if (strncmp(text, "sheaf: ", 7) || !newline || newline[1])
        return "the report is not one line that begins with sheaf:";
    return !strstr(text, c->kind)  ? "the report has another kind"
           : !strstr(text, wanted) ? "the report lacks the pointer"
           : !strstr(text, c->of)  ? "the report lacks the cache"
                                   : NULL;
}

static int run(int number, const struct misuse *c)
{
    int err[2], told[2];
    char text[1024] = "";
    void *pointer = NULL;
    if (pipe(err) || pipe(told))
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(err[1], 2);
        close(err[1]);
        telling = told[1];
        c->run();
        _exit(0);
    }
    close(err[1]);
    close(told[1]);
    size_t n = 0;
    ssize_t got;
    while ((got = read(err[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    if (read(told[0], &pointer, sizeof(pointer)) < 0)
        pointer = NULL;
    close(err[0]);
    close(told[0]);
    int status;
    waitpid(pid, &status, 0);
    const char *why = judge(c, status, text, pointer);
    printf("%s %d %s%s%s%s\n", why ? "not ok" : "ok", number, c->name, why ? " - " : "", why ? why : "", "");
    if (why)
        printf("# status %x, output: %s\n", status, text);
    fflush(stdout);
    return why != NULL;
}

int main(int argc, char **argv)
{
    int failed = 0, count = (int)(sizeof(cases) / sizeof(*cases));
    printf("1..%d\n", argc > 1 ? 1 : count);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        if (argc < 2 || !strcmp(argv[1], cases[i].name))
            failed += run(argc > 1 ? 1 : i + 1, &cases[i]);
    return failed != 0;
}
