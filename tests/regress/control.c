/*
 * A process answers requests in the control area of its record: while it works, while it sleeps and has a helper
 * thread, in handlers, and in forked children, each for itself. No request harms it, nor does a full file system.
 */
#define _GNU_SOURCE
#include "../client.h"
#include "../small.h"
#include "recorded.h"
#include "sheaf/profile.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>

static void end(pid_t pid)
{
    int status = -1;
    must(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* ---- programs that answer ---- */

PART(busy)
{
    static void *held[20000];
    for (size_t i = 0; i < sizeof(held) / sizeof(*held); i++)
        held[i] = malloc(i % 2000);
    for (size_t i = 0; i < sizeof(held) / sizeof(*held); i += 3)
        free(held[i]);
    void *volatile large = malloc(3 << 20);
    must(large);
    for (unsigned long i = 0;; i++)
        work_once(i);
}

PART(sleeping)
{
    void *volatile p = malloc(10 << 20);
    must(p);
    memset(p, 1, 10 << 20);
    work_a_while(NULL);
    free(p);
    for (;;)
        pause();
}

/* The child works and sleeps as its parent does. */
PART(both_sleep)
{
    work_a_while(NULL);
    fork();
    sleeping();
}

/* The process must end with its last thread but the helper. */
PART(part_main_thread_ends)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, work_a_while, NULL) == 0);
    work_a_while(NULL);
    pthread_exit(NULL);
}

PART(part_parent)
{
    must(malloc(100));
    if (fork() == 0)
        busy();
    busy();
}

/* As fork, but without handlers: the child shares the record until its first slow path. */
PART(cloned_child)
{
    must(malloc(100));
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0)
        busy();
    busy();
}

/* A handler that interrupted the holder of a lock gets no memory for large blocks, nor does a child forked there. */
static void fork_in_handler(int signal)
{
    (void)signal;
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < 2000; i++) {
            void *volatile p = malloc(i % 1000);
            free(p);
        }
        _exit(0);
    }
    if (pid > 0)
        must_succeed(pid);
    errno = saved;
}

PART(forks_in_handlers)
{
    signal(SIGALRM, fork_in_handler);
    struct itimerval often = {.it_interval = {.tv_usec = 10000}, .it_value = {.tv_usec = 10000}};
    must(setitimer(ITIMER_REAL, &often, NULL) == 0);
    busy();
}

/* ---- cases ---- */

/* Begins a case with a client of a process that runs the part. */
#define CONTROL_CASE(name, part, option)                                                                             \
    static void name(struct client *client, pid_t pid);                                                              \
    static void name##_with_client(void)                                                                             \
    {                                                                                                                \
        struct client client;                                                                                        \
        make_records(records, sizeof(records));                                                                      \
        pid_t pid = start(part, option);                                                                             \
        client_of(&client, records, pid);                                                                            \
        name(&client, pid);                                                                                          \
        end(pid);                                                                                                    \
        must(remove_records(records) > 0);                                                                           \
    }                                                                                                                \
    ADD_CASE(all_cases, name, name##_with_client, NULL)                                                              \
    static void name(struct client *client, __attribute__((unused)) pid_t pid)

#define must_do(client, operation, subject, value) must(client_ask(client, operation, subject, value) == SHEAF_DONE)

static uint64_t value_of(const struct client *client, const char *name)
{
    static char text[16384];
    uint64_t value = 0;
    int number = -1;
    char line[64];
    ssize_t n = pread(client->file, text, client->header.checked_size - client->header.text_offset,
                      (off_t)client->header.text_offset);
    must(n > 0);
    snprintf(line, sizeof(line), "value %s\n", name);
    char *found = strstr(text, line);
    must(found);
    for (char *at = text; at < found && (at = strstr(at, "\nvalue ")); at++)
        number++;
    must(pread(client->file, &value, 8, (off_t)client->header.values_offset + 8 * number) == 8);
    return value;
}

static void describes_memory(struct client *client)
{
    unsigned kinds[6] = {0}, slabs_out = 0;
    must_do(client, SHEAF_MAP, 0, 0);
    uint64_t first = client->control->results[0], n = client->control->results[1], all = client->control->results[2];
    must(first == 0 && n > 0 && n <= SHEAF_WINDOW_BYTES / 4 && n <= all);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word = client->window[i], kind = word & 15, cache = word >> 4 & 2047;
        must(kind <= SHEAF_SLICE_OTHER);
        kinds[kind]++;
        must(kind == SHEAF_SLICE_SLAB || word >> 4 << 5 == 0);
        must(kind != SHEAF_SLICE_SLAB || cache < client->header.cache_max || cache == SHEAF_SLICE_UNRECORDED);
        slabs_out += kind == SHEAF_SLICE_SLAB ? word >> 15 & 8191 : 0;
    }
    must(kinds[SHEAF_SLICE_SLAB] > 10 && slabs_out > 10000 && kinds[SHEAF_SLICE_LARGE] >= (3 << 20 >> 16));
    must(client_ask(client, SHEAF_MAP, 0, n / 2) == SHEAF_DONE && client->control->results[0] == n / 2);
    must(client_ask(client, SHEAF_MAP, 0, all) == SHEAF_DONE && client->control->results[1] == 0);
    must(client_ask(client, SHEAF_MAP, 0, all + 100000) == SHEAF_RANGE);
    must(client_ask(client, SHEAF_MAP, 0, (1ull << 40) - 1) == SHEAF_RANGE);
}

static void sets_options(struct client *client)
{
    static const struct {
        unsigned subject;
        uint64_t value, status;
    } asked[] = {
        {SHEAF_SET_DECAY, 50, SHEAF_DONE},
        {SHEAF_SET_DECAY, 86400001, SHEAF_RANGE},
        {SHEAF_SET_DECAY, 1ull << 32, SHEAF_RANGE},
        {SHEAF_SET_DECAY, 0, SHEAF_DONE},
        {SHEAF_SET_HELPER, 1, SHEAF_DONE}, /* it answers */
        {SHEAF_SET_DECAY, 1000, SHEAF_DONE},
        {SHEAF_SET_HELPER, 1, SHEAF_DONE},
        {SHEAF_SET_HELPER, 0, SHEAF_DONE},
        {SHEAF_SET_HELPER, 2, SHEAF_DONE},
        {SHEAF_SET_HELPER, 3, SHEAF_RANGE},
        {SHEAF_SET_KEEP, 0, SHEAF_DONE},
        {SHEAF_SET_KEEP, (1ull << 40) - 1, SHEAF_DONE},
        {SHEAF_SET_KEEP, 1 << 20, SHEAF_DONE},
        {SHEAF_SET_HUGE, 0, SHEAF_DONE},
        {SHEAF_SET_HUGE, 2, SHEAF_RANGE},
        {SHEAF_SET_HUGE, 1, SHEAF_DONE},
        {SHEAF_SET_BARN_MAX, 0, SHEAF_DONE},
        {SHEAF_SET_BARN_MAX, 4 << 20, SHEAF_DONE},
        {0, 1, SHEAF_UNKNOWN},
        {6, 1, SHEAF_UNKNOWN},
        {255, 1, SHEAF_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++)
        must(client_ask(client, SHEAF_SET, asked[i].subject, asked[i].value) == asked[i].status);
}

CONTROL_CASE(control_every_operation, "busy", "")
{
    must_do(client, SHEAF_FOLD, 0, 0);
    uint64_t trims = value_of(client, "trims");
    for (int i = 1; i <= 300; i++) { /* more often than there are sequence numbers */
        must_do(client, SHEAF_TRIM, 0, 0);
        while (i % 100 == 0 && value_of(client, "trims") < trims + (uint64_t)i) /* a slow path may publish an */
            must_do(client, SHEAF_FOLD, 0, 0);                                  /* earlier number a moment later */
    }
    do { /* it has answered faster than it has allocated */
        must_do(client, SHEAF_FOLD, 0, 0);
    } while (value_of(client, "large_bytes") < 3 << 20);
    describes_memory(client);
    sets_options(client);
    must(client_ask(client, 7, 0, 0) == SHEAF_UNKNOWN && client_ask(client, 255, 255, 1 << 30) == SHEAF_UNKNOWN);
    uint64_t answer = client->control->answer;
    must(client_send(client, SHEAF_NOTHING, 3, 5)); /* never answered */
    must(client_ask(client, SHEAF_FOLD, 0, 1) == SHEAF_DONE && client->control->answer != answer);
    must(client->control->looks > 0);
}

CONTROL_CASE(control_asleep_with_helper, "sleeping", "SHEAF_HELPER=1")
{
    must_do(client, SHEAF_SET, SHEAF_SET_DECAY, 100);
    for (int i = 0; i < 20; i++) /* for longer than the thread would stay otherwise */
        must_do(client, SHEAF_TRIM, 0, 0);
    must_do(client, SHEAF_MAP, 0, 0);
    must_do(client, SHEAF_SET, SHEAF_SET_HELPER, 0);
    while (threads(pid) > 1) /* the thread ends */
        client_pause();
    must(!client->control->waits);
}

/* Without options a process with one thread answers while it sleeps, and options that would end decay change nothing.
 */
CONTROL_CASE(control_asleep, "sleeping", "")
{
    for (int i = 0; i < 20; i++)
        must_do(client, SHEAF_TRIM, 0, 0);
    must_do(client, SHEAF_SET, SHEAF_SET_DECAY, 0);
    must_do(client, SHEAF_SET, SHEAF_SET_DECAY, 86400000);
    must_do(client, SHEAF_MAP, 0, 0);
    must(ftruncate(client->file, (off_t)(client->header.profile_offset + client->header.profile_size)) == 0);
    must_do(client, SHEAF_PROFILE, 0, 4096);
    must_do(client, SHEAF_PROFILE, 0, 0);
    must(threads(pid) == 2 && client->control->waits && client->control->waits != (uint32_t)pid); /* the helper */
}

static unsigned long switches_of(const char *task)
{
    char path[300], line[256];
    unsigned long n = 0;
    snprintf(path, sizeof(path), "%s/status", task);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, "voluntary_ctxt_switches:", 24))
            n = strtoul(line + 24, NULL, 10);
    if (file)
        fclose(file);
    return n;
}

/* How often the threads of a process went to sleep. */
static unsigned long switches(pid_t pid)
{
    char path[64], task[300];
    unsigned long sum = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    must(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        snprintf(task, sizeof(task), "%s/%.200s", path, entry->d_name);
        sum += entry->d_name[0] != '.' ? switches_of(task) : 0;
    }
    closedir(dir);
    return sum;
}

/* A thread that looked from time to time would never have slept for two seconds. */
CONTROL_CASE(control_sleeps_without_waking, "sleeping", "")
{
    must_do(client, SHEAF_TRIM, 0, 0);
    unsigned long before, now = switches(pid);
    do {
        before = now;
        sleep(2);
        now = switches(pid);
    } while (now != before);
    must_do(client, SHEAF_TRIM, 0, 0);
}

CONTROL_CASE(control_no_helper, "busy", "SHEAF_HELPER=0")
{
    for (int i = 0; i < 50; i++)
        must_do(client, SHEAF_FOLD, 0, 0);
    must(threads(pid) == 1 && !client->control->waits);
}

CASE(control_main_thread_ends)
{
    make_records(records, sizeof(records));
    must_succeed(start("part_main_thread_ends", "SHEAF_HELPER=1"));
    must_succeed(start("part_main_thread_ends", ""));
    must(remove_records(records) > 0);
}

/* The child of `pid`, which has a record too. */
static pid_t child_of(pid_t pid)
{
    char path[300];
    for (;; client_pause()) {
        DIR *dir = opendir(records);
        must(dir);
        for (struct dirent *entry; (entry = readdir(dir));) {
            struct client client;
            snprintf(path, sizeof(path), "%s/%.200s", records, entry->d_name);
            if (!strstr(entry->d_name, ".sheaf") || !client_open(&client, path))
                continue;
            pid_t child = client.header.parent_pid == (uint32_t)pid ? (pid_t)client.header.pid : 0;
            client_close(&client);
            if (child) {
                closedir(dir);
                return child;
            }
        }
        closedir(dir);
    }
}

static void answers_for_itself(const char *part)
{
    struct client parent, child;
    make_records(records, sizeof(records));
    pid_t pid = start(part, ""), second = child_of(pid);
    client_of(&parent, records, pid);
    client_of(&child, records, second);
    must_do(&parent, SHEAF_TRIM, 0, 0);
    uint64_t answer = parent.control->answer;
    must(child.control->answer == 0 && child.control->request == 0);
    for (int i = 0; i < 10; i++)
        must(client_ask(&child, i % 2 ? SHEAF_MAP : SHEAF_TRIM, 0, 0) == SHEAF_DONE);
    must(parent.control->answer == answer && parent.control->request == answer);
    must_do(&parent, SHEAF_MAP, 0, 0);
    must(kill(second, SIGKILL) == 0);
    end(pid);
    must(remove_records(records) == 2);
}

CASE(control_forked_children)
{
    answers_for_itself("part_parent");
}

CASE(control_children_asleep)
{
    answers_for_itself("both_sleep");
}

CASE(control_cloned_children)
{
    answers_for_itself("cloned_child");
}

static int files_in(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    must(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

CONTROL_CASE(control_forks_while_it_answers, "forks_in_handlers", "")
{
    for (int i = 0; i < 150 || files_in(records) < 2; i++)
        must(client_ask(client, i % 3 == 0 ? SHEAF_MAP : i % 3 == 1 ? SHEAF_FOLD : SHEAF_TRIM, 0, 0) == SHEAF_DONE);
}

CASE(control_full_file_system)
{
    struct client client;
    mount_small(records, sizeof(records), 1 << 20);
    pid_t pid = start("busy", "");
    client_of(&client, records, pid);
    fill_small(records);
    must_do(&client, SHEAF_FOLD, 0, 0);
    must(client_ask(&client, SHEAF_MAP, 0, 0) == SHEAF_NO_ROOM);
    must(ftruncate(client.file, (off_t)(client.header.profile_offset + client.header.profile_size)) == 0);
    must(client_ask(&client, SHEAF_PROFILE, 0, 65536) == SHEAF_NO_ROOM);
    must_do(&client, SHEAF_TRIM, 0, 0);
    char filler[80];
    snprintf(filler, sizeof(filler), "%s/filler", records);
    must(unlink(filler) == 0);
    must_do(&client, SHEAF_MAP, 0, 0);
    end(pid);
    client_close(&client);
    unmount_small(records);
}

/* A file that is extended for the profile area, and one from which that and the window's memory is taken away. */
CONTROL_CASE(control_file_changes_its_size, "busy", "")
{
    must(client->header.profile_offset >= client->header.file_size && client->header.profile_size);
    for (int i = 0; i < 20; i++) {
        uint64_t size = i % 2 ? client->header.file_size
                              : client->header.profile_offset + client->header.profile_size / (1u << i % 3);
        must(ftruncate(client->file, (off_t)size) == 0);
        must_do(client, SHEAF_MAP, 0, 0);
        must_do(client, SHEAF_PROFILE, 0, 0);
        must(fallocate(client->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)client->header.window_offset,
                       SHEAF_WINDOW_BYTES) == 0 ||
             errno == EOPNOTSUPP);
    }
}

/* Only a file that was extended has room for samples. */
CONTROL_CASE(control_profile, "busy", "")
{
    struct sheaf_profile area;
    must(client_ask(client, SHEAF_PROFILE, 0, 4096) == SHEAF_NO_ROOM);
    must(ftruncate(client->file, (off_t)(client->header.profile_offset + client->header.profile_size)) == 0);
    must_do(client, SHEAF_PROFILE, 0, 4096);
    do {
        client_pause();
        must(pread(client->file, &area, sizeof(area), (off_t)client->header.profile_offset) == sizeof(area));
    } while (!area.taken);
    must(memcmp(area.magic, SHEAF_PROFILE_MAGIC, 8) == 0 && area.rate == 4096);
    must_do(client, SHEAF_PROFILE, 0, 0);
}
