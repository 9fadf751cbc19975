#define _GNU_SOURCE
#include "platform/os/vm.h"
#include "platform/os/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older kernels take the address as a hint */
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define MAP_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

_Atomic uint64_t vm_failures;
bool vm_staged;

static void *sys_mmap(void *addr, size_t size, int prot, int flags)
{
    long ret = sys_call(SYS_mmap, (long)addr, (long)size, prot, flags, -1, 0);
    return ret < 0 && ret > -4096 ? NULL : (void *)ret;
}

static bool survived(long ret)
{
    if (ret == 0)
        return true;
    atomic_fetch_add_explicit(&vm_failures, 1, memory_order_relaxed);
    return false;
}

size_t vm_page_size(void)
{
    return getauxval(AT_PAGESZ);
}

uint64_t vm_machine_memory(void)
{
    static _Atomic uint64_t known; /* threads that find it at once store the same */
    uint64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    struct sysinfo info;
    if (bytes || sys_call3(SYS_sysinfo, (long)&info, 0, 0) < 0)
        return bytes;
    bytes = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    atomic_store_explicit(&known, bytes, memory_order_relaxed);
    return bytes;
}

bool vm_map_once(void **at, size_t size)
{
    void *none = NULL, *table = __atomic_load_n(at, __ATOMIC_ACQUIRE) ? NULL : vm_map(size, vm_page_size());
    if (table && !__atomic_compare_exchange_n(at, &none, table, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        vm_unmap(table, size);
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

bool vm_unmap(void *addr, size_t size)
{
    return survived(sys_call3(SYS_munmap, (long)addr, (long)size, 0));
}

/* Maps more than requested and cuts off both ends, because mmap() cannot be asked for an alignment. */
static void *map_aligned(size_t size, size_t align, int prot)
{
    size_t page = vm_page_size();
    size_t extra = align > page ? align - page : 0;
    if (size + extra < size)
        return NULL;
    char *at = sys_mmap(NULL, size + extra, prot, MAP_FLAGS);
    if (!at || !extra)
        return at;
    char *start = (char *)round_up((uintptr_t)at, align);
    if (start > at)
        vm_unmap(at, (size_t)(start - at));
    if (start + size < at + size + extra)
        vm_unmap(start + size, (size_t)(at + extra - start));
    return start;
}

/* A kernel that ignores MAP_FIXED_NOREPLACE returns a different address when the place is occupied. */
static enum vm_extent extend(void *at, size_t size, int prot)
{
    long ret = sys_call(SYS_mmap, (long)at, (long)size, prot, MAP_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
    if (ret == (long)at)
        return VM_EXTENDED;
    if (ret < 0 && ret > -4096)
        return ret == -EEXIST ? VM_TAKEN : VM_REFUSED;
    vm_unmap((void *)ret, size);
    return VM_TAKEN;
}

enum vm_extent vm_extend(void *at, size_t size)
{
    return extend(at, size, PROT_READ | PROT_WRITE);
}

enum vm_extent vm_extend_readable(void *at, size_t size)
{
    return extend(at, size, PROT_READ);
}

enum vm_extent vm_extend_staged(void *at, size_t size)
{
    enum vm_extent done = vm_staged ? VM_REFUSED : vm_extend(at, size);
    if (likely(done != VM_REFUSED))
        return done;
    done = extend(at, size, PROT_READ);
    if (done == VM_EXTENDED)
        write_once(vm_staged, true);
    return done;
}

bool vm_grants(size_t size)
{
    void *at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_FLAGS);
    if (at)
        vm_unmap(at, size);
    return at;
}

/*
 * All other mappings have MAP_NORESERVE, with which the kernel does not compare a request with what the machine has.
 * It refuses one without the flag if the size alone exceeds memory and swap, so smaller ones need no system call.
 */
bool vm_promises(size_t size)
{
    if (size <= vm_machine_memory())
        return true;
    void *at = sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_FLAGS & ~MAP_NORESERVE);
    if (at)
        vm_unmap(at, size);
    return at;
}

size_t vm_limit(void)
{
    struct rlimit limit;
    if (sys_call(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return limit.rlim_cur;
}

/* One read, because this is part of the start: file_read() would also look for the end of the file. */
bool vm_overcommit_off(void)
{
    char mode = 0;
    long fd = sys_call(SYS_openat, AT_FDCWD, (long)"/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0)
        return false;
    sys_call3(SYS_read, fd, (long)&mode, 1);
    sys_call3(SYS_close, fd, 0, 0);
    return mode == '2';
}

bool vm_commit(void *addr, size_t size)
{
    if (likely(!vm_staged))
        return true;
    size_t page = vm_page_size();
    uintptr_t from = (uintptr_t)addr & ~(page - 1);
    uintptr_t to = round_up((uintptr_t)addr + size, page);
    return survived(sys_call3(SYS_mprotect, (long)from, (long)(to - from), PROT_READ | PROT_WRITE));
}

void *vm_map(size_t size, size_t align)
{
    return map_aligned(size, align, PROT_READ | PROT_WRITE);
}

void *vm_map_staged(size_t size, size_t align)
{
    void *at = vm_staged ? NULL : vm_map(size, align);
    if (!at && (at = map_aligned(size, align, PROT_READ)))
        write_once(vm_staged, true);
    return at;
}

/*
 * Maps fresh memory over a range. Taking away the right to write would not do: the kernel goes on charging for memory
 * that was writable once. Returns false, with nothing changed, when the process has too many mappings.
 */
static bool replace(void *addr, size_t size, int prot)
{
    return sys_call(SYS_mmap, (long)addr, (long)size, prot, MAP_FLAGS | MAP_FIXED, -1, 0) == (long)addr;
}

bool vm_discard(void *addr, size_t size)
{
    return survived(sys_call3(SYS_madvise, (long)addr, (long)size, MADV_DONTNEED));
}

bool vm_uncommit(void *addr, size_t size)
{
    return (vm_staged && replace(addr, size, PROT_READ)) || vm_discard(addr, size);
}

bool vm_close(void *addr, size_t size)
{
    if (vm_staged && replace(addr, size, PROT_NONE))
        return true;
    return survived(sys_call3(SYS_mprotect, (long)addr, (long)size, PROT_NONE));
}

bool vm_open(void *addr, size_t size)
{
    return survived(sys_call3(SYS_mprotect, (long)addr, (long)size, PROT_READ | PROT_WRITE));
}

bool vm_reopen(void *addr, size_t size)
{
    return (vm_staged && replace(addr, size, PROT_READ)) || vm_open(addr, size);
}

void vm_advise_huge(void *addr, size_t size, bool huge)
{
    sys_call3(SYS_madvise, (long)addr, (long)size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/*
 * FUTEX_WAKE_OP adds 0 to a word of the page by one atomic operation of the kernel, and wakes no thread. Where the
 * program would get SIGBUS the call fails with EFAULT.
 */
bool vm_populate_pages(void *start, size_t size)
{
    size_t page = vm_page_size();
    uint32_t none = 0;
    for (size_t at = 0; at < size; at += page)
        if (sys_call(SYS_futex, (long)&none, FUTEX_WAKE_OP_PRIVATE, 0, 0, (long)start + (long)at,
                     FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, 0)) < 0)
            return false;
    return true;
}

/* EINVAL is the answer of kernels that do not know this advice. */
bool vm_populate(void *start, size_t size)
{
    long ret = sys_call3(SYS_madvise, (long)start, (long)size, MADV_POPULATE_WRITE);
    return ret == 0 || (ret == -EINVAL && vm_populate_pages(start, size));
}

bool vm_resize(void *at, size_t old, size_t size, void *to)
{
    int flags = to ? MREMAP_MAYMOVE | MREMAP_FIXED : 0;
    long ret = sys_call(SYS_mremap, (long)at, (long)old, (long)size, flags, (long)to, 0);
    return ret == (long)(to ? to : at);
}

/*
 * When the process is short of mappings or of promised memory, mremap() may fail after it has unmapped the target.
 * Mapping the target again needs less than the move did. VM_TAKEN means that part of it is still there, hence
 * nothing was unmapped. If mmap() is refused as well, madvise() decides: it fails for a range that is not mapped.
 */
enum vm_moved vm_move(void *from, void *to, size_t size)
{
    long ret = sys_call(SYS_mremap, (long)from, (long)size, (long)size,
                        MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)to, 0);
    if (survived(ret == (long)to ? 0 : ret))
        return VM_MOVED;
    return vm_extend(to, size) != VM_REFUSED || vm_discard(to, size) ? VM_MOVE_REFUSED : VM_MOVE_LOST;
}
