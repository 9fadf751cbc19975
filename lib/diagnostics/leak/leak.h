/*
 * The leak report at exit: which blocks are live and no longer referenced, found by a conservative scan of the
 * process's memory, as LeakSanitizer does.
 */
#ifndef SHEAF_LEAK_LEAK_H
#define SHEAF_LEAK_LEAK_H

/*
 * Stop the other threads, scan, let them go on, and report. Called at exit, by one thread, which holds no lock of the
 * allocator; takes none while the threads are stopped. The allocator works throughout, but for stopped threads.
 */
void leak_report(void);

#endif
