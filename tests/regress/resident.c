/*
 * Limits how much of the preloaded object is resident when a small program ends. RESIDENT_OBJECT names the object.
 * The numbers are in KiB, from /proc/PID/smaps of a child that is stopped at its exit.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <gnu/libc-version.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>

enum {
    MOST_MAPPINGS = 256,
    /* Symbols and relocations take 15 KiB, and the loader writes to two pages. The rest leaves room for growth. */
    MOST_UNUSED = 40,
    /* With the code that all programs run 112 KiB, or 116 with assertions; the whole object has 300. */
    MOST_USED = 128,
    MOST_OLD = 340,
};

struct mapping {
    char name[256];
    char permissions[8];
    unsigned long from, to, rss;
};

static struct mapping mappings[MOST_MAPPINGS];
static unsigned count;

static void read_mappings(pid_t child)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/smaps", child);
    FILE *f = fopen(path, "r");
    must(f);
    count = 0;
    while (fgets(line, sizeof(line), f)) {
        struct mapping m = {.name = ""};
        unsigned long rss;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &m.from, &m.to, m.permissions, m.name) >= 3) {
            must(count < MOST_MAPPINGS);
            mappings[count++] = m;
        } else if (count && sscanf(line, "Rss: %lu kB", &rss) == 1) {
            mappings[count - 1].rss = rss;
        }
    }
    fclose(f);
}

/* Runs a command with the object preloaded and reads its mappings when it exits. */
static void look_at(const char *object, char **command)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(CASE_SKIPPED);
        setenv("LD_PRELOAD", object, 1);
        execv(command[0], command);
        _exit(CASE_SKIPPED);
    }
    must(waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) /* the program is missing, or ptrace is not permitted */
        _exit(CASE_SKIPPED);
    must(!ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)));
    for (long signal = 0; status >> 8 != (SIGTRAP | PTRACE_EVENT_EXIT << 8); signal = WSTOPSIG(status))
        must(!ptrace(PTRACE_CONT, child, NULL, (void *)signal) && waitpid(child, &status, 0) == child &&
             WIFSTOPPED(status));
    read_mappings(child);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    waitpid(child, &status, 0);
}

static bool of_object(const struct mapping *m, const char *object)
{
    const char *base = strrchr(m->name, '/');
    const char *own = strrchr(object, '/');
    return base && !strcmp(base, own ? own : object);
}

static unsigned long resident_of(const char *object)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < count; i++)
        if (of_object(&mappings[i], object))
            sum += mappings[i].rss;
    return sum;
}

/* Returns an executable mapping of the object: 0 is the code that all programs run, 1 the rarely used code. */
static const struct mapping *code(const char *object, unsigned which)
{
    for (unsigned i = 0; i < count; i++)
        if (of_object(&mappings[i], object) && strchr(mappings[i].permissions, 'x') && !which--)
            return &mappings[i];
    return NULL;
}

static void at_most(const char *what, unsigned long kib, unsigned long most)
{
    printf("# %s: %lu KiB, at most %lu\n", what, kib, most);
    fflush(stdout);
    must(kib <= most);
}

static const char *object;
static const struct mapping *common, *seldom;

/* Finds the code of the object in a command's process at its end. */
static void find_code(char **command)
{
    if (sysconf(_SC_PAGESIZE) != 4096) /* for which the bounds are */
        _exit(CASE_SKIPPED);
    look_at(object, command);
    common = code(object, 0);
    seldom = code(object, 1);
    must(common);
    if (!seldom) /* the object is linked without its layout */
        _exit(CASE_SKIPPED);
}

CASE(a_program_that_never_allocates)
{
    find_code((char *[]){"/bin/true", NULL});
    at_most("the object", resident_of(object), MOST_UNUSED);
    at_most("of these, code", common->rss + seldom->rss, 0);
}

PART(a_hundred_blocks)
{
    static void *blocks[100];
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = memset(malloc(i * 37 + 1), 1, i * 37 + 1);
    for (unsigned i = 0; i < 100; i++)
        free(realloc(blocks[i], i * 50 + 1));
    free(calloc(40, 1000));
}

CASE(a_program_of_a_hundred_blocks)
{
    find_code((char *[]){"/proc/self/exe", "--part", "a_hundred_blocks", NULL});
    must(common->rss > 0); /* the program has run the object's code */
    /* Before glibc 2.34 the start looks a function up in libc's symbols, as few programs do later. */
    bool looks_up = strverscmp(gnu_get_libc_version(), "2.34") < 0;
    at_most("the object", resident_of(object), looks_up ? MOST_OLD : MOST_USED);
    if (!looks_up)
        at_most("of these, code that few programs run", seldom->rss, 0);
}

BEFORE_CASES(argv)
{
    object = getenv("RESIDENT_OBJECT");
    must(object);
}
