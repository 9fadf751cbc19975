/*
 * Blocks that libc allocates and the program frees, and the reverse; loaded modules; calls during abort,
 * cancellation and with closed streams.
 */
#define _GNU_SOURCE
#include "../cases.h"

#include <dlfcn.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif
#include <fcntl.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <wordexp.h>

CASE(strings_and_streams)
{
    for (int i = 0; i < 200; i++) {
        char *line = NULL, *text = NULL, *print = NULL;
        size_t room = 0, size = 0;
        FILE *f = open_memstream(&text, &size);
        for (int k = 0; k < 500; k++)
            fprintf(f, "%d line of text\n", k);
        must(!fclose(f) && size == strlen(text) && size > 5000);
        f = fmemopen(text, size, "r");
        int lines = 0;
        while (getline(&line, &room, f) > 0)
            lines += atoi(line) == lines;
        must(lines == 500 && !fclose(f));
        must(asprintf(&print, "%s%0*d", line, 3000, 7) > 3000);
        char *copy = strdup(print), *part = strndup(print, 10), *here = getcwd(NULL, 0), *real = realpath("/", NULL);
        must(!strcmp(copy, print) && strlen(part) == 10 && *here == '/' && !strcmp(real, "/"));
        free(line), free(text), free(print), free(copy), free(part), free(here), free(real);
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void no_action(void *p)
{
    (void)p;
}

CASE(tables_and_patterns)
{
    for (int i = 0; i < 100; i++) {
        regex_t re;
        regmatch_t match[3];
        must(!regcomp(&re, "^([a-z]+)[0-9]{1,40}(x|y)*$", REG_EXTENDED));
        must(!regexec(&re, "abc123456xyxy", 3, match, 0) && match[1].rm_eo == 3);
        regfree(&re);
        glob_t found;
        must(!glob("/*", 0, NULL, &found) && found.gl_pathc > 3);
        globfree(&found);
        wordexp_t words;
        must(!wordexp("one 'two three' ${HOME:-x}", &words, 0) && words.we_wordc >= 2);
        wordfree(&words);
        void *tree = NULL;
        static char *names[1000];
        for (int k = 0; k < 1000; k++) {
            must(asprintf(&names[k], "%d", k * 7919 % 1000) > 0);
            must(tsearch(&names[k], &tree, compare));
        }
        qsort(names, 1000, sizeof(*names), compare);
        must(!strcmp(names[0], "0") && !strcmp(names[999], "999"));
        tdestroy(tree, no_action);
        for (int k = 0; k < 1000; k++)
            free(names[k]);
    }
}

CASE(names_and_places)
{
    for (int i = 0; i < 50; i++) {
        struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE}, *info;
        must(!getaddrinfo("127.0.0.1", "80", &hints, &info) && info);
        freeaddrinfo(info);
        must(getpwuid(0) && !strcmp(getpwuid(0)->pw_name, "root"));
        must(setlocale(LC_ALL, i % 2 ? "C" : "C.UTF-8"));
        locale_t l = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
        must(l);
        freelocale(l);
        iconv_t c = iconv_open("UTF-16", "UTF-8");
        must(c != (iconv_t)-1 && !iconv_close(c));
        char name[30], value[300];
        snprintf(name, sizeof(name), "VARIABLE_%d", i);
        memset(value, 'v', sizeof(value) - 1);
        value[sizeof(value) - 1] = 0;
        must(!setenv(name, value, 1) && !setenv(name, "short", 1) && !strcmp(getenv(name), "short"));
    }
    must(!clearenv());
}

/* The module (module.c) allocates in its constructor, frees in its destructor and has thread-local storage. */
static void *load_and_unload(void *path)
{
    for (int i = 0; i < 50; i++) {
        void *module = dlopen(path, RTLD_NOW);
        must(module);
        int (*work)(int) = (int (*)(int))dlsym(module, "module_work");
        must(work && work(i) == i * 2);
        must(!dlclose(module));
    }
    return NULL;
}

static char *module_path;

CASE(modules_in_threads)
{
    pthread_t t[4];
    if (!module_path)
        _exit(CASE_SKIPPED);
    for (int i = 0; i < 4; i++)
        must(!pthread_create(&t[i], NULL, load_and_unload, module_path));
    for (int i = 0; i < 4; i++)
        must(!pthread_join(t[i], NULL));
}

#ifdef __GLIBC__

/* A handler for the SIGABRT that ends a report of misuse. backtrace() and backtrace_symbols() allocate in it. */
static void print_backtrace(int signal)
{
    void *at[50];
    (void)signal;
    int depth = backtrace(at, 50);
    char **names = backtrace_symbols(at, depth);
    bool some = names && depth > 2;
    free(names);
    free(malloc(100000));
    _exit(some ? 42 : 1);
}

CASE(backtrace_in_abort)
{
    pid_t pid = fork();
    if (pid == 0) {
        static char not_ours[100];
        void *volatile p = not_ours + 16;
        must(dup2(open("/dev/null", O_WRONLY), 2) == 2);
        signal(SIGABRT, print_backtrace);
        free(p);
        _exit(3);
    }
    int status;
    must(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

#else

NEEDS_GLIBC(backtrace_in_abort)

#endif

static _Atomic bool reached;

static void *uncancelled(void *unused)
{
    int state, type;
    must(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    must(!pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL));
    malloc_stats();
    must(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) && state == PTHREAD_CANCEL_DISABLE);
    must(!pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) && type == PTHREAD_CANCEL_DEFERRED);
    must(!pthread_cancel(pthread_self()));
    malloc_stats(); /* not a cancellation point while cancellation is disabled */
    malloc_info(0, stderr);
    malloc_trim(0);
    reached = true;
    return unused;
}

static void *cancelled_behind(void *unused)
{
    must(!pthread_cancel(pthread_self()));
    malloc_stats(); /* not a cancellation point, like glibc's */
    reached = true;
    pthread_testcancel();
    return unused;
}

CASE(cancellation_state_is_kept)
{
    pthread_t t;
    void *end;
    must(dup2(open("/dev/null", O_WRONLY), 2) == 2);
    must(!pthread_create(&t, NULL, uncancelled, NULL) && !pthread_join(t, NULL) && reached);
    reached = false;
    must(!pthread_create(&t, NULL, cancelled_behind, NULL) && !pthread_join(t, &end));
    must(reached && end == PTHREAD_CANCELED);
}

CASE(nowhere_to_print)
{
    FILE *full = fopen("/dev/full", "w");
    must(full);
    int result = malloc_info(0, full);
    must(result == 0 || result == -1);
    must(fclose(full) == EOF);
    fclose(stderr);
    close(2);
    malloc_stats();
    free(malloc(10));
}

/* Threads exchange blocks through the boxes and free them in random order. */
enum { BOXES = 200 };
static _Atomic(unsigned char *) box[BOXES];

static void *swap_aligned(void *seed)
{
    uint64_t r = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u | 1;
    for (int i = 0; i < 30000; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        size_t align = (size_t)1 << (r >> 8) % 13, n = (r >> 20) % 6000 + 2;
        unsigned char *p = i % 2 ? memalign(align, n) : aligned_alloc(align, n);
        must(p && (uintptr_t)p % align == 0);
        p[0] = p[n - 1] = (unsigned char)((uintptr_t)p >> 4);
        unsigned char *old = atomic_exchange(&box[r % BOXES], p);
        must(!old || old[0] == (unsigned char)((uintptr_t)old >> 4));
        free(old);
    }
    return NULL;
}

CASE(aligned_across_threads)
{
    pthread_t t[6];
    for (uintptr_t i = 0; i < 6; i++)
        must(!pthread_create(&t[i], NULL, swap_aligned, (void *)(i + 1)));
    for (int i = 0; i < 6; i++)
        must(!pthread_join(t[i], NULL));
    for (int i = 0; i < BOXES; i++)
        free(box[i]);
}

#ifdef __GLIBC__

CASE(mallopt_parameters)
{
    static const int known[] = {M_MXFAST,       M_TRIM_THRESHOLD, M_TOP_PAD,    M_MMAP_THRESHOLD, M_MMAP_MAX,
                                M_CHECK_ACTION, M_PERTURB,        M_ARENA_TEST, M_ARENA_MAX};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        must(mallopt(known[i], known[i] == M_PERTURB ? 0 : 1) == 1);
    must(mallopt(4711, 1) == 0);
}

#else

NEEDS_GLIBC(mallopt_parameters)

#endif

static void *early;

__attribute__((constructor)) static void before_main(void)
{
    early = realloc(malloc(100), 5000);
    memset(early, 3, 5000);
}

CASE(constructors_before_main)
{
    must(early && ((char *)early)[4999] == 3);
    free(early);
}

/* The environment variable MODULE holds the path of the module, because the argument is the name of a case. */
BEFORE_CASES(argv)
{
    module_path = getenv("MODULE") ? strdup(getenv("MODULE")) : NULL;
}
