#define _GNU_SOURCE
#include "faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOLD_FD 198
#define SAW     42
#define MOST    65536

void *tell(void *p)
{
    if (write(TOLD_FD, &p, sizeof(p)) != sizeof(p))
        _exit(3);
    return p;
}

void shows_poison(void)
{
    _exit(SAW);
}

struct outcome {
    int status;
    void *pointer;
    char text[MOST];
};

static void read_all(int fd, char *into, size_t most)
{
    size_t n = 0;
    ssize_t got;
    while ((got = read(fd, into + n, most - n)) > 0)
        n += (size_t)got;
    close(fd);
}

static void become(const char *program, const char *name, const char *const *env, int err, int told)
{
    static const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(err, 2);
    dup2(told, TOLD_FD);
    for (; env && *env; env++)
        putenv((char *)(size_t)*env);
    execl(program, program, "--run", name, NULL);
    _exit(4);
}

static void run_case(const char *program, const struct fault *fault, const char *const *env, struct outcome *outcome)
{
    int err[2], told[2];
    memset(outcome, 0, sizeof(*outcome));
    if (pipe(err) || pipe(told))
        exit(1);
    pid_t pid = fork();
    if (pid == 0)
        become(program, fault->name, env, err[1], told[1]);
    close(err[1]);
    close(told[1]);
    read_all(err[0], outcome->text, MOST - 1);
    read_all(told[0], (char *)&outcome->pointer, sizeof(outcome->pointer));
    waitpid(pid, &outcome->status, 0);
}

static int saw(const struct outcome *outcome)
{
    return WIFEXITED(outcome->status) && WEXITSTATUS(outcome->status) == SAW;
}

/* Returns what is wrong with a report of `kind`, or NULL if it is right. */
static const char *judge_report(const struct fault *fault, const char *kind, const struct outcome *outcome, int owned)
{
    char pointer[32];
    const char *text = outcome->text;
    snprintf(pointer, sizeof(pointer), "%p", outcome->pointer);
    if (strncmp(text, "sheaf: ", 7) || strncmp(text + 7, kind, strlen(kind)))
        return "the report begins differently";
    size_t first = strcspn(text, "\n");
    char line[512] = "";
    memcpy(line, text, first < sizeof(line) - 1 ? first : sizeof(line) - 1);
    if (!strstr(line, fault->cache))
        return "the report names another cache";
    if (outcome->pointer && !strstr(line, pointer))
        return "the report names another pointer";
    const char *by = strstr(text, "allocated by");
    if (owned && (!by || !strstr(by, "give+")))
        return "the report lacks the allocation's backtrace";
    if (owned && strstr(kind, "free") && !strstr(kind, "interior") && !strstr(text, "take+"))
        return "the report lacks the free's backtrace";
    return WIFSIGNALED(outcome->status) && WTERMSIG(outcome->status) == SIGABRT
               ? NULL
               : "the process did not end by SIGABRT";
}

static const char *judge(const struct fault *fault, const char *kind, const struct outcome *outcome, int debugged)
{
    if (kind && !strcmp(kind, SHOWS))
        return saw(outcome) ? NULL : "the program did not see poison";
    if (kind)
        return judge_report(fault, kind, outcome, debugged && fault->owned);
    if (strstr(outcome->text, "sheaf: "))
        return "a report was printed although none is expected";
    return debugged && outcome->status ? "the process ended without a report" : NULL;
}

static int report(int number, const char *mode, const struct fault *fault, const struct outcome *outcome,
                  const char *why)
{
    printf("%s %d %s-%s%s%s\n", why ? "not ok" : "ok", number, fault->name, mode, why ? " - " : "", why ? why : "");
    if (why)
        printf("# status %x, pointer %p, output: %.1500s\n", (unsigned)outcome->status, outcome->pointer,
               outcome->text);
    return why != NULL;
}

static const char *cell(const char *kind)
{
    return !kind ? "no" : !strcmp(kind, SHOWS) ? "reads the fill pattern" : "yes";
}

/* Prints a fault's row of the table. It shows what was found, which is not compared with what is expected. */
static void print_row(const char *program, const struct fault *fault, const char *const *debug_env)
{
    static struct outcome plain, debugged;
    run_case(program, fault, NULL, &plain);
    run_case(program, fault, debug_env, &debugged);
    char kind[128] = "";
    if (!strncmp(debugged.text, "sheaf: ", 7))
        memcpy(kind, debugged.text + 7, strcspn(debugged.text + 7, "0"));
    if (strstr(kind, " ("))
        *strstr(kind, " (") = 0;
    for (size_t n = strlen(kind); n && kind[n - 1] == ' '; n--)
        kind[n - 1] = 0;
    printf("| %s | %s | %s |\n", fault->what, cell(strstr(plain.text, "sheaf: ") ? "yes" : NULL),
           *kind ? kind : cell(saw(&debugged) ? SHOWS : NULL));
}

int faults_main(int argc, char **argv, const struct fault *faults, int count, const char *const *debug_env)
{
    static struct outcome outcome;
    int failed = 0;
    if (argc == 3 && !strcmp(argv[1], "--run")) {
        for (int i = 0; i < count; i++)
            if (!strcmp(argv[2], faults[i].name))
                faults[i].run();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--table")) {
        for (int i = 0; i < count; i++)
            print_row(argv[0], &faults[i], debug_env);
        return 0;
    }
    printf("1..%d\n", 2 * count);
    for (int i = 0; i < count; i++) {
        run_case(argv[0], &faults[i], NULL, &outcome);
        failed += report(2 * i + 1, "plain", &faults[i], &outcome, judge(&faults[i], faults[i].plain, &outcome, 0));
        run_case(argv[0], &faults[i], debug_env, &outcome);
        failed +=
            report(2 * i + 2, "debugged", &faults[i], &outcome, judge(&faults[i], faults[i].debugged, &outcome, 1));
        fflush(stdout);
    }
    return failed != 0;
}
