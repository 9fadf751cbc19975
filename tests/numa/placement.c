/*
 * Where objects really lie, by asking the kernel (move_pages). Run on the preloaded object, in a machine with several
 * memory nodes; tests/numa/run makes one. Lines "ok" and "not ok"; the status is that of all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define OBJECTS 4000
#define CPUS    64

static int failures;

#define NODES 64
static unsigned on_node[NODES + 1]; /* where not_on() found the objects; the last one counts those without a page */

static void tell(bool good, const char *what, unsigned cpu, int node, unsigned other)
{
    printf("%s - %s: cpu %u, node %d, %u of %d objects elsewhere\n", good ? "ok" : "not ok", what, cpu, node, other,
           OBJECTS);
    for (int i = 0; !good && i <= NODES; i++)
        if (on_node[i])
            printf("# %u on node %d\n", on_node[i], i < NODES ? i : -1);
    fflush(stdout);
    failures += !good;
}

static bool pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

static int node_of_page(void *p)
{
    int status = -1;
    void *page = (void *)((unsigned long)p & ~4095ul);
    return move_pages(0, 1, &page, NULL, &status, 0) ? -1 : status;
}

/* Where the system itself places memory for this CPU: its own node, or the nearest with memory. */
static int local_node(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    int node = node_of_page(page);
    munmap(page, 4096);
    return node;
}

static void *objects[OBJECTS];

static void take(size_t size)
{
    for (int i = 0; i < OBJECTS; i++)
        memset(objects[i] = malloc(size), 1, size);
}

static void give(void)
{
    for (int i = 0; i < OBJECTS; i++)
        free(objects[i]);
}

static unsigned not_on(int node)
{
    memset(on_node, 0, sizeof(on_node));
    for (int i = 0; i < OBJECTS; i++) {
        int found = node_of_page(objects[i]);
        on_node[found >= 0 && found < NODES ? found : NODES]++;
    }
    return OBJECTS - on_node[node >= 0 && node < NODES ? node : NODES];
}

static void local_work(unsigned cpus)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        if (!pin(cpu))
            continue;
        int node = local_node();
        take(200);
        unsigned other = not_on(node);
        tell(other == 0, "local work", cpu, node, other);
        give();
    }
}

/* Taken on the first CPU, freed on the last; what the first then gets is again its own. */
static void hand_over(unsigned cpus)
{
    for (int round = 0; round < 3; round++) {
        pin(0);
        take(120);
        pin(cpus - 1);
        give();
        take(120);
        int node = local_node();
        unsigned other = not_on(node);
        tell(other == 0, "the freeing side's own", cpus - 1, node, other);
        give();
        pin(0);
        take(120);
        node = local_node();
        other = not_on(node);
        tell(other == 0, "after a hand-over", 0, node, other);
        give();
    }
}

/* ---- CPUs that go off and come back under load ---- */

static _Atomic bool stop;
static _Atomic unsigned long operations;

static void *load(void *unused)
{
    void *mine[256] = {0};
    (void)unused;
    for (unsigned i = 1; !stop; i = i * 1664525 + 1013904223) {
        unsigned at = i >> 24;
        free(mine[at]);
        mine[at] = malloc(16 + (i >> 10) % 500);
        memset(mine[at], (int)at, 16);
        operations++;
    }
    for (int i = 0; i < 256; i++)
        free(mine[i]);
    return NULL;
}

static bool online(unsigned cpu, bool yes)
{
    char path[64];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/online", cpu);
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, yes ? "1" : "0", 1) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

/*
 * Objects in the sheaves of the class of `size`, by malloc_info(). Its report goes to memory of our own: in a block
 * from malloc it could be of that class, and then each report would leave a refilled sheaf behind.
 */
static char report[1 << 16];
static unsigned long in_sheaves(unsigned size)
{
    static char buffer[4096];
    char name[32];
    memset(report, 0, sizeof(report));
    FILE *f = fmemopen(report, sizeof(report), "w");
    setvbuf(f, buffer, _IOFBF, sizeof(buffer));
    malloc_info(0, f);
    fclose(f);
    snprintf(name, sizeof(name), "\"malloc-%u\"", size);
    const char *row = strstr(report, name), *field = row ? strstr(row, "in_sheaves=\"") : NULL;
    return field ? strtoul(field + strlen("in_sheaves=\""), NULL, 10) : 0;
}

static void work(unsigned least, unsigned range)
{
    static void *held[2000];
    for (unsigned i = 0; i < 2000; i++)
        held[i] = malloc(least + i % range);
    for (unsigned i = 0; i < 2000; i++)
        free(held[i]);
}

/* What a CPU's sheaves hold when it goes off comes back while others work. */
static void dead_cpu(unsigned cpu)
{
    enum { SIZE = 14336 / 8 }; /* 1792, which nothing else here requests */
    unsigned long kept = 0, left;
    pin(cpu);
    for (int tries = 0; tries < 100 && !kept; tries++) { /* a step of decay may come in between */
        work(SIZE, 1);
        kept = in_sheaves(SIZE);
    }
    pin(0);
    bool off = online(cpu, false);
    left = kept;
    for (int tenths = 0; tenths < 200 && left; tenths++) {
        work(16, 64);
        usleep(100000);
        left = in_sheaves(SIZE);
    }
    online(cpu, true);
    bool good = off && kept && !left;
    printf("%s - CPU %u %s with %lu objects in its sheaves, %lu are left\n", good ? "ok" : "not ok", cpu,
           off ? "went off" : "could not be switched off", kept, left);
    for (const char *line = report; !good && *line;) {
        int length = (int)strcspn(line, "\n");
        printf("# %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    fflush(stdout);
    failures += !good;
}

/* ---- cpusets that change under load ---- */

static bool put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* The last set is that of node 3; what is allocated then lies there, but for slabs that were begun elsewhere. */
static void cpusets(void)
{
    static const char *const sets[][2] = {{"0-1", "0"}, {"2-3", "1"}, {"0-7", "0-1,3"}, {"6-7", "3"}};
    pthread_t threads[4];
    char pid[16];
    unsigned changed = 0;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    bool ready = !mkdir("/tmp/cg", 0755) && !mount("none", "/tmp/cg", "cgroup2", 0, NULL) &&
                 put("/tmp/cg/cgroup.subtree_control", "+cpuset") && !mkdir("/tmp/cg/a", 0755) &&
                 put("/tmp/cg/a/cpuset.cpus", "0-7") && put("/tmp/cg/a/cpuset.mems", "0-1,3") &&
                 put("/tmp/cg/a/cgroup.procs", pid);
    stop = false;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, load, NULL);
    for (int i = 0; i < 12; i++) {
        changed += put("/tmp/cg/a/cpuset.mems", sets[i % 4][1]) && put("/tmp/cg/a/cpuset.cpus", sets[i % 4][0]);
        usleep(50000);
    }
    stop = true;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    take(3000);
    unsigned other = not_on(3);
    give();
    bool good = other <= OBJECTS / 10;
    printf("%s - cpusets %s, %u of 12 changes under load\n", ready && changed == 12 ? "ok" : "not ok",
           ready ? "ready" : "not ready", changed);
    failures += !(ready && changed == 12);
    tell(good, "after the last change", 0, 3, other);
}

static void hotplug(unsigned cpus)
{
    pthread_t threads[8];
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    sched_setaffinity(0, sizeof(all), &all);
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, load, NULL);
    unsigned changed = 0;
    for (int round = 0; round < 3; round++)
        for (unsigned cpu = 1; cpu < cpus; cpu += 2) {
            changed += online(cpu, false);
            usleep(20000);
            changed += online(cpu, true);
        }
    stop = true;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    bool good = changed > 0 && operations > 1000;
    printf("%s - %u changes of CPUs under load, %lu operations\n", good ? "ok" : "not ok", changed,
           (unsigned long)operations);
    failures += !good;
}

/* ---- policies in strict mode; nodes 0, 1 and 3 have memory ---- */

static void policy(const char *name, int mode, unsigned long mask, int node)
{
    set_mempolicy(mode, &mask, 64);
    take(300);
    unsigned other = not_on(node);
    tell(other == 0, name, 0, node, other);
    give();
}

static void policies(void)
{
    pin(0);
    policy("bound", MPOL_BIND, 1ul << 3, 3);
    policy("preferred", MPOL_PREFERRED, 1ul << 1, 1);
    unsigned long mask = 0xb;
    set_mempolicy(MPOL_INTERLEAVE, &mask, 64);
    take(300);
    unsigned other = not_on(0);
    tell(other > OBJECTS / 2 && other < OBJECTS * 3 / 4, "interleaved", 0, 0, other);
    set_mempolicy(MPOL_DEFAULT, NULL, 0);
    give();
}

/* More than the first node has: the others help out. */
static void run_out(unsigned long megabytes)
{
    char *p = NULL;
    int first = -1;
    pin(0);
    for (unsigned long i = 0; i < megabytes << 10; i++) {
        p = malloc(1024);
        if (!p)
            break;
        memset(p, 1, 1024);
        first = first < 0 ? node_of_page(p) : first;
    }
    int last = p ? node_of_page(p) : -1;
    printf("%s - a node runs out: first object on %d, last on %d\n", first == 0 && last > 0 ? "ok" : "not ok", first,
           last);
    failures += !(first == 0 && last > 0);
}

int main(int argc, char **argv)
{
    unsigned cpus = (unsigned)sysconf(_SC_NPROCESSORS_CONF);
    local_work(cpus < CPUS ? cpus : CPUS);
    hand_over(cpus);
    if (argc > 1 && !strcmp(argv[1], "--hotplug")) /* for a guest: it switches CPUs of the machine */
    {
        hotplug(cpus);
        dead_cpu(cpus - 1);
    }
    if (argc > 1 && !strcmp(argv[1], "--cpusets"))
        cpusets();
    if (argc > 1 && !strcmp(argv[1], "--policies"))
        policies();
    if (argc > 2 && !strcmp(argv[1], "--fill"))
        run_out(strtoul(argv[2], NULL, 10));
    return failures != 0;
}
