/*
 * Address space and its pages. Nothing here touches errno. A call that the system refuses is counted and survived:
 * munmap and madvise may fail at any time with ENOMEM when the process is at its limit of mappings.
 */
#ifndef SHEAF_OS_VM_H
#define SHEAF_OS_VM_H

#include "os/compiler.h"

extern hidden _Atomic uint64_t vm_failures; /* calls that failed and were survived */
extern hidden bool
    vm_staged; /* some of what may be staged is not writable yet: vm_commit() must precede each write */

/* Bytes in a page of the running kernel. */
size_t vm_page_size(void);

/* Bytes of memory and swap of the machine; 0 when the system does not tell. */
uint64_t vm_machine_memory(void);

/* Map zeroed writable memory at exactly that place; never over what is there. */
enum vm_extent { VM_EXTENDED, VM_REFUSED, VM_TAKEN };
enum vm_extent vm_extend(void *at, size_t size);

/*
 * The same for tables of which little may ever be used. Where the system does not grant so much writable memory
 * (overcommit off, RLIMIT_DATA), it is readable only, and vm_staged is set: each part must be committed before it is
 * written.
 */
enum vm_extent vm_extend_staged(void *at, size_t size);

/* The same, but readable only, until vm_open() makes a part of it writable: with overcommit off it counts from then
 * on. */
enum vm_extent vm_extend_readable(void *at, size_t size);

/* Whether so much more could be mapped somewhere at this moment. */
bool vm_grants(size_t size);

/* Bytes of address space that the process may have (RLIMIT_AS); SIZE_MAX: as many as it likes. */
size_t vm_limit(void);

/* Make a part of what may be staged writable; free of cost when nothing is. False when the system refuses. */
bool vm_commit(void *addr, size_t size);

/* Map zeroed writable memory wherever there is room, at a multiple of `align`; NULL when there is none. */
void *vm_map(size_t size, size_t align);

/* The same, staged if it must be. */
void *vm_map_staged(size_t size, size_t align);
bool vm_unmap(void *addr, size_t size);

/*
 * Make a mapping of `old` bytes longer or shorter: where it stands, or by moving it over another one of `size` bytes.
 * False: nothing happened.
 */
bool vm_resize(void *at, size_t old, size_t size, void *to);

/* Give the pages back; they read as zero afterwards. False: the system refused, the contents still stand. */
bool vm_discard(void *addr, size_t size);

/* Let no access to a range through, and let all again. False: the system refused, some of it may be done. */
bool vm_close(void *addr, size_t size);
bool vm_open(void *addr, size_t size);

/* Ask for huge pages in a range, or for none: advice, which a system without them ignores. */
void vm_advise_huge(void *addr, size_t size, bool huge);

/*
 * Move the pages of a range to another one of the same size, whose contents are lost. The old range stays mapped and
 * reads as zero. VM_MOVE_REFUSED: both ranges are mapped, the first with its contents. VM_MOVE_LOST: the system has
 * unmapped the target before it refused to move, and will not map it again; the target must not be used any more.
 */
enum vm_moved { VM_MOVED, VM_MOVE_REFUSED, VM_MOVE_LOST };
enum vm_moved vm_move(void *from, void *to, size_t size);

#endif
