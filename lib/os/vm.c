#define _GNU_SOURCE
#include "os/vm.h"
#include "os/syscall.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif

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
    struct sysinfo info;
    if (sys_call3(SYS_sysinfo, (long)&info, 0, 0) < 0)
        return 0;
    return ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

bool vm_unmap(void *addr, size_t size)
{
    return survived(sys_call3(SYS_munmap, (long)addr, (long)size, 0));
}

/* Map more than asked and cut off both ends: an aligned place can not be asked for. What is aligned is start + at. */
static void *map_aligned_at(size_t size, size_t align, size_t aligned_at, int prot)
{
    size_t page = vm_page_size();
    size_t extra = align > page ? align - page : 0;
    if (size + extra < size)
        return NULL;
    char *at = sys_mmap(NULL, size + extra, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (!at || !extra)
        return at;
    char *start = (char *)round_up((uintptr_t)at + aligned_at, align) - aligned_at;
    if (start > at)
        vm_unmap(at, (size_t)(start - at));
    if (start + size < at + size + extra)
        vm_unmap(start + size, (size_t)(at + extra - start));
    return start;
}

static void *map_aligned(size_t size, size_t align, int prot)
{
    return map_aligned_at(size, align, 0, prot);
}

void *vm_reserve(size_t size, size_t align, size_t aligned_at)
{
    vm_staged = false;
    void *at = map_aligned_at(size, align, aligned_at, PROT_READ | PROT_WRITE);
    if (!at) {
        vm_staged = true;
        at = map_aligned_at(size, align, aligned_at, PROT_READ);
    }
    return at;
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
    return map_aligned(size, align, vm_staged ? PROT_READ : PROT_READ | PROT_WRITE);
}

bool vm_discard(void *addr, size_t size)
{
    return survived(sys_call3(SYS_madvise, (long)addr, (long)size, MADV_DONTNEED));
}

bool vm_close(void *addr, size_t size)
{
    return survived(sys_call3(SYS_mprotect, (long)addr, (long)size, PROT_NONE));
}

bool vm_open(void *addr, size_t size)
{
    return survived(sys_call3(SYS_mprotect, (long)addr, (long)size, PROT_READ | PROT_WRITE));
}

void vm_advise_huge(void *addr, size_t size, bool huge)
{
    sys_call3(SYS_madvise, (long)addr, (long)size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

bool vm_move(void *from, void *to, size_t size)
{
    long ret = sys_call(SYS_mremap, (long)from, (long)size, (long)size,
                        MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)to, 0);
    return survived(ret == (long)to ? 0 : ret);
}
