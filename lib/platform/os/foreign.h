/*
 * Foreign threads: those that the program made by clone() with CLONE_VM and that libc does not know.
 *
 * Such a thread runs with the thread-local storage of its parent, which may run at the same time, or with one that
 * the program made. Its thread pointer therefore does not identify it, and the kernel has no rseq area for it: what
 * its thread-local storage says of slots is the parent's, or anything. So each foreign thread is entered here by its
 * thread number before it allocates, and as long as there is one
 *
 *   - the fast paths miss in all threads (slot_pause_fast() in cache/slot/slot.h), because they cannot tell who runs
 * them;
 *   - slow paths ask foreign_here(), and a foreign thread uses no section (cache/slot/slot.c);
 *   - a lock that a foreign thread takes names it by its entry (platform/os/lock.h).
 *
 * preload/clone.c enters them. A child that suspends its parent (CLONE_VFORK) needs none of this: it takes the
 * parent's place, with the parent's thread pointer, locks and rseq area (preload/vfork.h says when it does not).
 */
#ifndef SHEAF_OS_FOREIGN_H
#define SHEAF_OS_FOREIGN_H

#include "platform/os/compiler.h"

/*
 * Foreign threads that may be running. A thread that is not foreign may read an old value, which is as if it had come
 * earlier; a foreign thread was made after the number had risen.
 */
extern hidden _Atomic uint32_t foreign_threads;

/* The name of the calling thread if it is foreign, else 0; to be called through foreign_name(). */
uint64_t foreign_find(void);

/* What locks name a foreign thread by: no thread pointer has the highest bit. 0 if the calling thread is not foreign.
 */
static inline uint64_t foreign_name(void)
{
    return unlikely(atomic_load_explicit(&foreign_threads, memory_order_relaxed) != 0) ? foreign_find() : 0;
}

static inline bool foreign_here(void)
{
    return foreign_name() != 0;
}

static inline bool is_foreign_name(uint64_t name)
{
    return name >> 63;
}

/*
 * Enter a thread that is about to be made. Returns the word of the entry, or NULL if there is no room. `pointer` is
 * what
 * __builtin_thread_pointer() will return in the new thread; threads with another one need no system call to know that
 * they are not it. `parent` is the name (lock_self()) of a parent that calls foreign_remove_of(), otherwise 0.
 *
 * The new thread stores its number in the word by foreign_begin(). If the word is the address of
 * CLONE_CHILD_CLEARTID, the kernel stores 0 when the thread ends or executes a program. If it is not, foreign_made()
 * tells by which number the parent knows the thread, which is how its end is noticed then. foreign_remove() undoes
 * foreign_add() if no thread could be made.
 */
#define FOREIGN_ANY_POINTER 0u  /* unknown */
#define FOREIGN_CLONES      512 /* entries for clone(); others are for children in their parents' places */
_Atomic uint32_t *foreign_add(uintptr_t pointer, uint64_t parent, unsigned most);
void foreign_begin(_Atomic uint32_t *word);
void foreign_made(_Atomic uint32_t *word, uint32_t number);
void foreign_remove(_Atomic uint32_t *word);

/* Free the entries that were added for `parent`. */
void foreign_remove_of(uint64_t parent);

/* Free the entries of threads that have ended. Returns true if there are none left. */
bool foreign_sweep(void);

/*
 * In the child of a fork, which has one thread: forget all. The child of a foreign thread `stays` foreign, because
 * what it inherited is no registered rseq area.
 */
void foreign_fork_child(bool stays);

#endif
