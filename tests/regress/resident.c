/*
 * Limits how much of the preloaded object is resident when a small program ends. Usage: resident OBJECT. The
 * numbers are in KiB, from /proc/PID/smaps of a child that is stopped at its exit. `resident OBJECT PROGRAM ...`
 * prints the resident mappings of any program instead.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SKIPPED = 77,
    MOST_MAPPINGS = 256,
    /* Symbols and relocations take 15 KiB, and the loader writes to two pages. The rest leaves room for growth. */
    MOST_UNUSED = 40,
    /* With the code that all programs run 112 KiB, or 116 with assertions; the whole object has 300. */
    MOST_USED = 128,
};

struct mapping {
    char name[256];
    char permissions[8];
    unsigned long from, to, rss;
};

static struct mapping mappings[MOST_MAPPINGS];
static unsigned count;

static _Noreturn void give_up(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    putchar('\n');
    exit(status);
}

static void read_mappings(pid_t child)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/smaps", child);
    FILE *f = fopen(path, "r");
    if (!f)
        give_up(SKIPPED, "%s: %s", path, strerror(errno));
    count = 0;
    while (fgets(line, sizeof(line), f)) {
        struct mapping m = {.name = ""};
        unsigned long rss;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &m.from, &m.to, m.permissions, m.name) >= 3) {
            if (count == MOST_MAPPINGS)
                give_up(1, "more than %d mappings", MOST_MAPPINGS);
            mappings[count++] = m;
        } else if (count && sscanf(line, "Rss: %lu kB", &rss) == 1) {
            mappings[count - 1].rss = rss;
        }
    }
    fclose(f);
}

/* Runs a command with the object preloaded (none if it is "") and reads its mappings when it exits. */
static void look_at(const char *object, char **command)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(SKIPPED);
        if (*object)
            setenv("LD_PRELOAD", object, 1);
        else
            unsetenv("LD_PRELOAD");
        execv(command[0], command);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        give_up(1, "no child: %s", strerror(errno));
    if (!WIFSTOPPED(status))
        give_up(SKIPPED, "%s is missing, or ptrace is not permitted", command[0]);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)) != 0)
        give_up(SKIPPED, "ptrace: %s", strerror(errno));
    long signal = 0;
    while (ptrace(PTRACE_CONT, child, NULL, (void *)signal) == 0 && waitpid(child, &status, 0) == child) {
        if (!WIFSTOPPED(status))
            give_up(1, "%s ended without stopping at its exit", command[0]);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
            read_mappings(child);
            ptrace(PTRACE_CONT, child, NULL, NULL);
            waitpid(child, &status, 0);
            return;
        }
        signal = WSTOPSIG(status);
    }
    give_up(1, "%s: %s", command[0], strerror(errno));
}

static bool of_object(const struct mapping *m, const char *object)
{
    const char *base = strrchr(m->name, '/');
    const char *own = strrchr(object, '/');
    return base && !strcmp(base, own ? own : object);
}

static void print_all(void)
{
    unsigned long all = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct mapping *m = &mappings[i];
        all += m->rss;
        if (m->rss)
            printf("%6lu of %8lu KiB %s %s\n", m->rss, (m->to - m->from) >> 10, m->permissions, m->name);
    }
    printf("%6lu KiB\n", all);
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

static bool at_most(const char *what, unsigned long kib, unsigned long most)
{
    printf("%s: %lu KiB, at most %lu\n", what, kib, most);
    return kib <= most;
}

/* Uses malloc like a small program. */
static int allocate(void)
{
    static void *blocks[100];
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = memset(malloc(i * 37 + 1), 1, i * 37 + 1);
    for (unsigned i = 0; i < 100; i++)
        free(realloc(blocks[i], i * 50 + 1));
    free(calloc(40, 1000));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return allocate();
    const char *object = argv[1];
    if (argc > 2) {
        look_at(object, argv + 2);
        print_all();
        return 0;
    }
    if (sysconf(_SC_PAGESIZE) != 4096)
        give_up(SKIPPED, "the bounds are for pages of 4 KiB");

    look_at(object, (char *[]){"/bin/true", NULL});
    const struct mapping *common = code(object, 0), *seldom = code(object, 1);
    if (!common)
        give_up(1, "the object is not mapped into the program");
    if (!seldom)
        give_up(SKIPPED, "the object is linked without its layout");
    bool good = at_most("the object in a program that never allocates", resident_of(object), MOST_UNUSED);
    good &= at_most("of these, code", common->rss + seldom->rss, 0);

    look_at(object, (char *[]){"/proc/self/exe", NULL});
    common = code(object, 0);
    seldom = code(object, 1);
    good &= common->rss > 0; /* the program has run the object's code */
    good &= at_most("the object in a program of a hundred blocks", resident_of(object), MOST_USED);
    good &= at_most("of these, code that few programs run", seldom->rss, 0);
    return good ? 0 : 1;
}
