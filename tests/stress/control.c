/*
 * Writes random words into the control areas of the stress test and of all children that it forks, while they run:
 * the request word with valid and invalid operations, subjects and values, and all other words of the page. The
 * stress test checks the contents of all blocks, and that none is lost.
 *
 * Usage: control STRESS MODE...
 */
#define _GNU_SOURCE
#include "../client.h"

#include <stdbool.h>
#include <time.h>

enum { WORDS = 1000000, FILES = 16, BATCH = 8000, PAGE_WORDS = 512 };

static unsigned long state;
static unsigned long written, answered;

static unsigned long next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A request with a known operation, whose value is often within bounds. */
static uint64_t likely_request(void)
{
    static const uint64_t values[] = {0, 1, 2, 3, 100, 1000, 65536, 1 << 20, 64 << 20, 1ull << 32, (1ull << 40) - 1};
    uint64_t operation = next() % 6, subject = next() % 7;
    uint64_t value = next() % 4 ? values[next() % (sizeof(values) / sizeof(*values))] : next() >> 24;
    return operation | subject << 8 | (next() & 0xff) << 16 | value << 24;
}

static void write_one(struct client *client)
{
    uint64_t *page = (uint64_t *)(void *)client->control;
    unsigned long what = next() % 16;
    if (what < 12)
        __atomic_store_n(page, what < 9 ? likely_request() : next(), __ATOMIC_RELAXED);
    else
        __atomic_store_n(page + next() % PAGE_WORDS, next(), __ATOMIC_RELAXED);
    if (what % 4 == 0)
        client_ring(client);
    written++;
}

/* Extends every second record for the profile area, so that sampling can be switched on, and writes to that area. */
static void disturb_profile(struct client *client)
{
    uint64_t word = next(), end = client->header.profile_offset + client->header.profile_size;
    if (!client->header.profile_offset || client->header.pid % 2)
        return;
    must(ftruncate(client->file, (off_t)end) == 0);
    must(pwrite(client->file, &word, sizeof(word), (off_t)(client->header.profile_offset + next() % (1 << 16) * 8)) ==
         8);
}

/* Writes to the records that are in the directory now. */
static void disturb(const char *directory)
{
    struct client clients[FILES];
    char path[300];
    unsigned n = 0;
    DIR *dir = opendir(directory);
    must(dir);
    for (struct dirent *entry; n < FILES && (entry = readdir(dir));) {
        snprintf(path, sizeof(path), "%s/%.200s", directory, entry->d_name);
        if (!strstr(entry->d_name, ".sheaf") || !client_open(&clients[n], path))
            continue;
        if (kill((pid_t)clients[n].header.pid, 0) != 0) { /* it has ended, and its place in the list is needed */
            unlink(path);
            client_close(&clients[n]);
            continue;
        }
        n++;
    }
    closedir(dir);
    for (unsigned i = 0; i < n; i++)
        disturb_profile(&clients[i]);
    for (int i = 0; n && i < BATCH; i++) {
        uint64_t *page = (uint64_t *)(void *)clients[i % n].control, answer = page[1];
        write_one(&clients[i % n]);
        if (i % 256 == 0)
            usleep(50);
        answered += page[1] != answer;
    }
    for (unsigned i = 0; i < n; i++)
        client_close(&clients[i]);
}

static void run(const char *directory, char **command)
{
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        must(setenv("SHEAF_RECORD", directory, 1) == 0 && setenv("LD_PRELOAD", getenv("CONTROL_PRELOAD"), 1) == 0);
        execv(command[0], command);
        _exit(127);
    }
    int status = -1;
    while (waitpid(pid, &status, WNOHANG) == 0)
        disturb(directory);
    if (status != 0) {
        fprintf(stderr, "control: seed %lu, status %d\n", state, status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    char records[64];
    must(argc > 2 && getenv("CONTROL_PRELOAD"));
    state = (unsigned long)time(NULL) * 2654435761u | 1;
    fprintf(stderr, "control: seed %lu\n", state);
    make_records(records, sizeof(records));
    do {
        run(records, argv + 1);
    } while (written < WORDS || !answered);
    must(remove_records(records) > 0);
    printf("ok %lu words, %lu answers seen\n", written, answered);
    return 0;
}
