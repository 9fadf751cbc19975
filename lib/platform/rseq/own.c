#include "platform/rseq/own.h"
#include "platform/os/syscall.h"
#include "platform/os/vm.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#if SHEAF_HAVE_RSEQ

_Thread_local struct own_area own_area OWN_AREA_MODEL = {.field[RSEQ_CPU_ID_AT / 4] = UINT32_MAX, .mark = OWN_MARK};

static uint32_t reserved;  /* the number in areas that are not registered */
static size_t reserved_at; /* the index of the field that has it; 0: none has */

uintptr_t own_offset(void)
{
    uintptr_t at = (uintptr_t)&own_area;
    __asm__("" : "+r"(at)); /* or the compiler uses the offset in an instruction that linkers do not know */
    return at - (uintptr_t)__builtin_thread_pointer();
}

#ifdef __GLIBC__

static bool ends_create(void)
{
    return true;
}

static void ends_expect(void) {}

#else

static pthread_key_t ends_key;

/* Other destructors may allocate, so this one acts in the last round. No handler may run while the kernel's numbers
 * of a thread that is not registered are in the area. */
static void at_thread_end(void *area)
{
    uint64_t all = ~0ull, mask = 0;
    if (++own_area.rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(ends_key, area) == 0)
        return;
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, sizeof(mask), 0, 0);
    if (sys_call(SYS_rseq, (long)&own_area, RSEQ_FIRST_SIZE, UNREGISTER, (long)RSEQ_SIGNATURE, 0, 0) == 0) {
        if (reserved_at)
            own_area.field[reserved_at] = reserved;
        own_area.state = OWN_ENDED;
    }
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
}

static bool ends_create(void)
{
    static bool created;
    created = created || pthread_key_create(&ends_key, at_thread_end) == 0;
    return created;
}

/* Allocates nothing: musl has room for all values in the thread. */
static void ends_expect(void)
{
    pthread_setspecific(ends_key, &own_area);
}

#endif

/* The kernel writes the numbers before the system call returns. EBUSY: this very area is registered already. */
__attribute__((noinline)) bool own_register(void)
{
    if (own_area.state != OWN_CREATED)
        return own_area.state == OWN_REGISTERED;
    if (!ends_create())
        return false;
    ends_expect();
    long done = sys_call(SYS_rseq, (long)&own_area, RSEQ_FIRST_SIZE, 0, (long)RSEQ_SIGNATURE, 0, 0);
    write_once(own_area.state, done == 0 || done == -EBUSY ? OWN_REGISTERED : OWN_REFUSED);
    return own_area.state == OWN_REGISTERED;
}

void own_set(const struct rseq_area *area, bool registered)
{
    if (area->cs != own_offset() + RSEQ_CS_AT)
        return;
    if (!registered && reserved_at)
        write_once(own_area.field[reserved_at], reserved);
    write_once(own_area.state, registered ? OWN_REGISTERED : OWN_REFUSED);
}

/* ---- the image ---- */

extern const ElfW(Ehdr) __ehdr_start hidden;

/* The segment of the object, or of the program that it is linked into; NULL if there is none of that kind. */
static const ElfW(Phdr) * segment(uint32_t type)
{
    const ElfW(Phdr) *all = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
    for (size_t i = 0; i < __ehdr_start.e_phnum; i++)
        if (all[i].p_type == type && (type != PT_LOAD || !all[i].p_offset))
            return &all[i];
    return NULL;
}

static struct own_area *area_in(char *image, size_t size)
{
    for (size_t at = 0; at + sizeof(struct own_area) <= size; at += _Alignof(struct own_area)) {
        struct own_area *area = (struct own_area *)(void *)(image + at);
        if (area->mark == OWN_MARK)
            return area;
    }
    return NULL;
}

/*
 * Whether the dynamic linker has made [from, to) read-only after relocation. It leaves out a last page that the
 * segment fills only in part, as where pages are larger than the linker assumed: variables that follow lie there.
 */
static bool is_sealed(const char *bias, const char *from, const char *to)
{
    const ElfW(Phdr) *relro = segment(PT_GNU_RELRO);
    if (!relro)
        return false;
    uintptr_t end = ((uintptr_t)bias + relro->p_vaddr + relro->p_memsz) & ~(vm_page_size() - 1);
    return from >= bias + relro->p_vaddr && (uintptr_t)to <= end;
}

static bool write_image(uint32_t field, uint32_t value)
{
    const ElfW(Phdr) *first = segment(PT_LOAD), *tls = segment(PT_TLS);
    if (!first || !tls)
        return false;
    char *bias = (char *)&__ehdr_start - first->p_vaddr;
    struct own_area *area = area_in(bias + tls->p_vaddr, tls->p_filesz);
    if (!area)
        return false;
    char *page = (char *)(((uintptr_t)area) & ~(vm_page_size() - 1));
    size_t size = (size_t)((char *)(area + 1) - page);
    bool sealed = is_sealed(bias, (char *)area, (char *)(area + 1));
    if (sealed && sys_call3(SYS_mprotect, (long)page, (long)size, PROT_READ | PROT_WRITE) != 0)
        return false;
    write_once(area->field[field], value);
    if (sealed)
        sys_call3(SYS_mprotect, (long)page, (long)size, PROT_READ);
    return true;
}

/* Whether this process has other threads, as far as /proc shows. */
static bool threads_exist(void)
{
    enum { ENTRIES = 2 }; /* . and .. */
    struct stat tasks;
    long done = sys_call(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/task", (long)&tasks, 0, 0, 0); /* stat(): 2.33 */
    return done == 0 && tasks.st_nlink > ENTRIES + 1;
}

bool own_reserve(const struct rseq_area *area, uint32_t slot)
{
    size_t at = (area->slot - own_offset()) / sizeof(uint32_t);
    if (!write_image((uint32_t)at, slot) || threads_exist())
        return false;
    reserved = slot;
    reserved_at = at;
    return true;
}

#endif
