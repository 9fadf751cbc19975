/*
 * Address space and its pages. Nothing here changes errno. Calls on existing mappings may fail with ENOMEM at any
 * time, when the process is at its limit of mappings; such failures are counted in vm_failures and survived.
 */
#ifndef SHEAF_OS_VM_H
#define SHEAF_OS_VM_H

#include "platform/os/compiler.h"

extern hidden _Atomic uint64_t vm_failures; /* failed calls that were survived */

/*
 * Staged memory is only readable until vm_commit() makes a part of it writable. Memory is staged where the system
 * counts what is writable: with vm.overcommit_memory=2 a process is charged for all memory that it may write, used or
 * not, and RLIMIT_DATA counts the same. While vm_staged is false, everything is
 * mapped writable and vm_commit() does nothing. It may become true at any time and then stays; memory that was
 * mapped before may be committed again, which changes nothing.
 */
extern hidden bool vm_staged;

/* The page size of the running kernel in bytes. */
size_t vm_page_size(void);

/* Memory and swap of the machine in bytes, at the first call; 0 when the system does not report it. */
uint64_t vm_machine_memory(void);

/*
 * Map zeroed writable memory at exactly this place, never over an existing mapping. VM_TAKEN: the place is
 * occupied; VM_REFUSED: the system grants no memory.
 */
enum vm_extent { VM_EXTENDED, VM_REFUSED, VM_TAKEN };
enum vm_extent vm_extend(void *at, size_t size);

/*
 * The same, but staged if vm_staged is true. It becomes true when the system grants the memory readable but not
 * writable.
 */
enum vm_extent vm_extend_staged(void *at, size_t size);

/*
 * The same, but only readable until vm_open() makes a part writable; with overcommit off only that part is
 * charged.
 */
enum vm_extent vm_extend_readable(void *at, size_t size);

/* Whether the system would map `size` more bytes at this moment. */
bool vm_grants(size_t size);

/*
 * Whether the system's policy lets a program have `size` more bytes: with vm.overcommit_memory=0 not if that is more
 * than memory and swap together. A system call is made only for more than the machine has.
 */
bool vm_promises(size_t size);

/* The process's limit of address space (RLIMIT_AS) in bytes; SIZE_MAX when there is none. */
size_t vm_limit(void);

/* Whether the system charges for all writable memory (vm.overcommit_memory is 2); false when that is unknown. */
bool vm_overcommit_off(void);

/*
 * Make a part of staged memory writable, in whole pages; free of cost when nothing is staged. Returns false when the
 * system refuses; part of it may be done. vm_uncommit() is the opposite: it returns the pages to the system like
 * vm_discard() and, if vm_staged is true, makes the range only readable and no longer charged.
 */
bool vm_commit(void *addr, size_t size);
bool vm_uncommit(void *addr, size_t size);

/* Map zeroed writable memory at any multiple of `align`; NULL when the system refuses. */
void *vm_map(size_t size, size_t align);

/* The same, but staged, as with vm_extend_staged(), when the system grants no writable memory. */
void *vm_map_staged(size_t size, size_t align);

/* Map a table that a pointer leads to, unless *at leads to one already. Of two threads, one maps it. Returns false if
 * there is no memory. */
bool vm_map_once(void **at, size_t size);
bool vm_unmap(void *addr, size_t size);

/*
 * Resize a mapping of `old` bytes: in place, or with `to` by moving it over another mapping of `size` bytes.
 * Returns false when the system refuses. The old mapping is then unchanged, but `to` may have been unmapped.
 */
bool vm_resize(void *at, size_t old, size_t size, void *to);

/*
 * Return the pages to the system; they read as zero afterwards. Returns false when the system refuses; the
 * contents may then remain.
 */
bool vm_discard(void *addr, size_t size);

/*
 * Forbid all access to a range, and allow it again. Returns false when the system refuses; part of it may be done.
 * The contents are lost if vm_staged is true, so that a closed range is not charged. vm_reopen() is for memory that
 * is free afterwards: if vm_staged is true, it only allows reading and the range must be committed again.
 */
bool vm_close(void *addr, size_t size);
bool vm_open(void *addr, size_t size);
bool vm_reopen(void *addr, size_t size);

/*
 * Confirm that writes to a range of a shared mapping of a file find memory: beyond the end of the file, and where its
 * file system is full, they would raise SIGBUS. The contents stay, and other threads may write meanwhile. `start`
 * begins a page. Returns false when a page has no memory; pages before it may have got theirs. It stays valid until
 * the file is truncated or a hole is punched into it. Any context.
 */
bool vm_populate(void *start, size_t size);

/* The same, page by page, for kernels before Linux 5.14. */
bool vm_populate_pages(void *start, size_t size);

/* Advise for or against huge pages in a range. A system without huge pages ignores it. */
void vm_advise_huge(void *addr, size_t size, bool huge);

/*
 * Move the pages of a range to another range of the same size, whose contents are lost. The old range stays mapped
 * and reads as zero. VM_MOVE_REFUSED: both ranges are mapped, the first with its contents. VM_MOVE_LOST: the
 * system unmapped the target before it refused the move and does not map it again; the target must not be used any
 * more.
 */
enum vm_moved { VM_MOVED, VM_MOVE_REFUSED, VM_MOVE_LOST };
enum vm_moved vm_move(void *from, void *to, size_t size);

#endif
