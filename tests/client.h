/* A client of the control area of a record (sheaf/control.h), for tests of the process's side. */
#ifndef SHEAF_TESTS_CLIENT_H
#define SHEAF_TESTS_CLIENT_H

#include "must.h"
#include "sheaf/control.h"
#include "sheaf/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct client {
    char path[300];
    int file;
    struct sheaf_record_header header; /* as it was at the start */
    struct sheaf_control *control;
    const uint32_t *window;
};

__attribute__((unused)) static void client_pause(void)
{
    usleep(1000);
}

/* Whether the file is a record that is complete. Such a record is mapped. */
__attribute__((unused)) static int client_open(struct client *client, const char *path)
{
    struct stat status;
    client->file = open(path, O_RDWR | O_CLOEXEC);
    if (client->file < 0)
        return 0;
    if (pread(client->file, &client->header, sizeof(client->header), 0) != sizeof(client->header) ||
        memcmp(client->header.magic, SHEAF_RECORD_MAGIC, 8) != 0 || !client->header.control_offset) {
        close(client->file);
        return 0;
    }
    must(fstat(client->file, &status) == 0 && (uint64_t)status.st_size >= client->header.file_size);
    snprintf(client->path, sizeof(client->path), "%s", path);
    client->control = mmap(NULL, sizeof(struct sheaf_control), PROT_READ | PROT_WRITE, MAP_SHARED, client->file,
                           (off_t)client->header.control_offset);
    client->window =
        mmap(NULL, SHEAF_WINDOW_BYTES, PROT_READ, MAP_SHARED, client->file, (off_t)client->header.window_offset);
    must(client->control != MAP_FAILED && client->window != MAP_FAILED);
    return 1;
}

__attribute__((unused)) static void client_close(struct client *client)
{
    munmap(client->control, sizeof(struct sheaf_control));
    munmap((void *)(uintptr_t)client->window, SHEAF_WINDOW_BYTES);
    close(client->file);
}

/* Wait for the record of a process in the directory. */
__attribute__((unused)) static void client_of(struct client *client, const char *directory, pid_t pid)
{
    char path[300];
    for (;; client_pause()) {
        DIR *dir = opendir(directory);
        must(dir);
        for (struct dirent *entry; (entry = readdir(dir));) {
            snprintf(path, sizeof(path), "%s/%.200s", directory, entry->d_name);
            if (!strstr(entry->d_name, ".sheaf") || !client_open(client, path))
                continue;
            if (client->header.pid == (uint32_t)pid) {
                closedir(dir);
                return;
            }
            client_close(client);
        }
        closedir(dir);
    }
}

/* Wake the helper thread of the process. */
__attribute__((unused)) static void client_ring(struct client *client)
{
    __atomic_fetch_add(&client->control->bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &client->control->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Send a request. Returns its word, which the answer will equal. */
__attribute__((unused)) static uint64_t client_send(struct client *client, unsigned operation, unsigned subject,
                                                    uint64_t value)
{
    uint64_t answer = __atomic_load_n(&client->control->answer, __ATOMIC_ACQUIRE);
    uint64_t word = operation | subject << 8 | (((answer >> 16) + 1) & 0xff) << 16 | value << 24;
    __atomic_store_n(&client->control->request, word, __ATOMIC_RELEASE);
    client_ring(client);
    return word;
}

/* Send a request and wait for the answer, as long as the case may take. Returns the status. */
__attribute__((unused)) static uint64_t client_ask(struct client *client, unsigned operation, unsigned subject,
                                                   uint64_t value)
{
    uint64_t word = client_send(client, operation, subject, value);
    while (__atomic_load_n(&client->control->answer, __ATOMIC_ACQUIRE) != word)
        client_pause();
    return client->control->status;
}

/* Make a directory for records. */
__attribute__((unused)) static void make_records(char *path, size_t size)
{
    snprintf(path, size, "/tmp/records.XXXXXX");
    must(mkdtemp(path));
}

/* Remove the directory with all records. Returns how many there were. A child that is about to end may be making
 * another one. */
__attribute__((unused)) static int remove_records(const char *path)
{
    int n = 0;
    do {
        DIR *dir = opendir(path);
        must(dir);
        for (struct dirent *entry; (entry = readdir(dir));)
            if (entry->d_name[0] != '.')
                n += unlinkat(dirfd(dir), entry->d_name, 0) == 0;
        closedir(dir);
    } while (rmdir(path) != 0 && errno == ENOTEMPTY);
    must(access(path, F_OK) != 0);
    return n;
}

#endif
