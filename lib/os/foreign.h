/*
 * Foreign threads: those that the program made by clone() with CLONE_VM and that libc does not know.
 *
 * Such a thread runs with the thread-local storage of its parent, which may run at the same time, or with one that
 * the program made. Its thread pointer therefore does not identify it, and the kernel has no rseq area for it: what
 * its thread-local storage says of slots is the parent's, or anything. So each foreign thread is entered here by its
 * thread number before it allocates, and as long as there is one
 *
 *   - the fast paths miss in all threads (fast_pause() in malloc/classes.h), because they cannot tell who runs them;
 *   - slow paths ask foreign_here(), and a foreign thread uses no section (slot/slot.c);
 *   - a lock that a foreign thread takes names it by its thread number (os/lock.h).
 *
 * preload/clone.c enters them. A child that suspends its parent (CLONE_VFORK) needs none of this: it takes the
 * parent's place, with the parent's thread pointer, locks and rseq area.
 */
#ifndef SHEAF_OS_FOREIGN_H
#define SHEAF_OS_FOREIGN_H

#include "os/compiler.h"

/*
 * Foreign threads that may be running. A thread that is not foreign may read an old value, which is as if it had come
 * earlier; a foreign thread was made after the number had risen.
 */
extern hidden _Atomic uint32_t foreign_threads;

/* Whether the calling thread is foreign; to be called through foreign_here(). */
bool foreign_look(void);

static inline bool foreign_here(void)
{
    return unlikely(atomic_load_explicit(&foreign_threads, memory_order_relaxed) != 0) && foreign_look();
}

/* What locks name the calling thread by, which is foreign. No thread pointer has the highest bit. */
uint64_t foreign_self(void);
static inline bool foreign_name(uint64_t name)
{
    return name >> 63;
}

/*
 * Enter a thread that is about to be made: foreign_add() returns the address of the entry's word, or NULL if there is
 * no room. `pointer` is what __builtin_thread_pointer() will return in the thread; threads with another one need no
 * system call to know that they are not it. The thread stores its number in the word by foreign_begin() before it
 * does anything else. The word becomes 0 at the thread's end: by the kernel if it is the address of
 * CLONE_CHILD_CLEARTID, else by foreign_sweep(). foreign_remove() undoes foreign_add() if no thread could be made.
 */
#define FOREIGN_ANY_POINTER 0u /* unknown */
_Atomic uint32_t *foreign_add(uintptr_t pointer);
void foreign_begin(_Atomic uint32_t *word);
void foreign_remove(_Atomic uint32_t *word);

/*
 * Forget the threads that have ended. Returns true if there are none left. Without `probe`, only threads whose words
 * the kernel has cleared are known to have ended.
 */
bool foreign_sweep(bool probe);

/*
 * In the child of a fork, which has one thread: forget all. The child of a foreign thread `stays` foreign, because
 * what it inherited is no registered rseq area.
 */
void foreign_fork_child(bool stays);

#endif
