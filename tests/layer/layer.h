/* What the tests of layers share: checks that name both values, and a start of the layers below. */
#ifndef SHEAF_TESTS_LAYER_H
#define SHEAF_TESTS_LAYER_H

#include "../cases.h"
#include "os.h"
#include "platform/os/vm.h"
#include "memory/region/region.h"
#include "memory/space/locks.h"

#define must_be(x, expected)                                                                                         \
    do {                                                                                                             \
        uint64_t x_ = (uint64_t)(x), expected_ = (uint64_t)(expected);                                               \
        if (x_ != expected_) {                                                                                       \
            dprintf(2, "%s:%d: %s is %llu, not %s = %llu\n", __FILE__, __LINE__, #x, (unsigned long long)x_,         \
                    #expected, (unsigned long long)expected_);                                                       \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

#define KIB (1ul << 10)
#define MIB (1ul << 20)
#define GIB (1ul << 30)

/* A space and a region in it that keeps nothing by choice; the log is empty then. */
__attribute__((unused)) static void start_region(size_t region_bytes, uint32_t decay_ms)
{
    must(space_init(4, region_bytes));
    region_init(64 * MIB, false, decay_ms);
    os_clear();
}

/* Whether memory can be written. Its first byte is changed. */
__attribute__((unused)) static bool writable(void *p)
{
    int pipes[2];
    must(!pipe(pipes));
    must(write(pipes[1], "x", 1) == 1);
    bool good = read(pipes[0], p, 1) == 1; /* EFAULT instead of a signal */
    close(pipes[0]);
    close(pipes[1]);
    return good;
}

/* A region where the system refuses what a usual process may map, so that memory is staged. */
__attribute__((unused)) static void start_staged_region(size_t region_bytes, uint32_t decay_ms)
{
    os_refuse(OS_MAP, 1, 1);
    start_region(region_bytes, decay_ms);
    must(vm_staged);
}

/* Span a call as a signal handler would that interrupted the holder of a lock. */
#define BELOW_HANDLER(number, call)                                                                                  \
    do {                                                                                                             \
        must(lock_acquire(lock_of(number)));                                                                         \
        call;                                                                                                        \
        lock_release(lock_of(number));                                                                               \
    } while (0)

#endif
