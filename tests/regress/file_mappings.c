/*
 * vm_populate() says whether a mapping of a file has memory, where an access would raise SIGBUS: beyond the end of
 * the file and on a full file system. Includes internal headers.
 */
#define _GNU_SOURCE
#include "../cases.h"
#include "../small.h"
#include "platform/os/vm.h"

#include <stdint.h>
#include <sys/mman.h>

enum { PAGES = 8 };

static size_t page;
static bool (*const ways[])(void *, size_t) = {vm_populate, vm_populate_pages};

/* Maps PAGES pages of a new file that has `bytes` bytes. */
static char *map_file(const char *name, size_t bytes, int *fd)
{
    page = vm_page_size();
    *fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    must(*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0);
    char *map = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    must(map != MAP_FAILED);
    return map;
}

/* Contents stay, holes read as zero, and blocks are allocated. */
CASE(populate_granted)
{
    for (int way = 0; way < 2; way++) {
        int fd;
        char name[] = "/tmp/populate.XXXXXX", *map;
        must(mkdtemp(name));
        char file[64];
        snprintf(file, sizeof(file), "%s/file", name);
        map = map_file(file, PAGES * vm_page_size(), &fd);
        memset(map + page, 0x5a, page);
        must(ways[way](map, PAGES * page));
        for (size_t i = 0; i < PAGES * page; i++)
            must(map[i] == (i / page == 1 ? 0x5a : 0));
        struct stat status;
        must(fsync(fd) == 0 && fstat(fd, &status) == 0 && status.st_blocks * 512 >= (off_t)(PAGES * page));
        must(unlink(file) == 0 && rmdir(name) == 0);
    }
}

CASE(populate_beyond_the_end)
{
    for (int way = 0; way < 2; way++) {
        int fd;
        char name[] = "/tmp/populate.XXXXXX", file[64];
        must(mkdtemp(name));
        snprintf(file, sizeof(file), "%s/file", name);
        char *map = map_file(file, 3 * vm_page_size(), &fd);
        must(ways[way](map, 3 * page));
        must(!ways[way](map, 4 * page) && !ways[way](map + 3 * page, page));
        must(ftruncate(fd, (off_t)(PAGES * page)) == 0);
        must(ways[way](map, PAGES * page));
        must(ftruncate(fd, 0) == 0);
        must(!ways[way](map, page));
        must(unlink(file) == 0 && rmdir(name) == 0);
    }
}

CASE(populate_full_file_system)
{
    char directory[64], file[80];
    mount_small(directory, sizeof(directory), 1 << 20);
    snprintf(file, sizeof(file), "%s/file", directory);
    for (int way = 0; way < 2; way++) {
        int fd;
        char *map = map_file(file, PAGES * vm_page_size(), &fd);
        map[0] = 1;
        fill_small(directory);
        must(ways[way](map, page));
        must(!ways[way](map, 2 * page) && !ways[way](map + (PAGES - 1) * page, page));
        char filler[80];
        snprintf(filler, sizeof(filler), "%s/filler", directory);
        must(unlink(filler) == 0);
        must(ways[way](map, PAGES * page) && map[0] == 1);
        must(munmap(map, PAGES * page) == 0 && close(fd) == 0 && unlink(file) == 0);
    }
    unmount_small(directory);
}

/* A mapping that may only be read cannot be confirmed for writing. */
CASE(populate_forbidden)
{
    char *map = mmap(NULL, vm_page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(map != MAP_FAILED);
    must(!vm_populate(map, vm_page_size()) && !vm_populate_pages(map, vm_page_size()));
}
