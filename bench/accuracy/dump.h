#ifndef ACCURACY_DUMP_H
#define ACCURACY_DUMP_H

#ifdef __cplusplus
extern "C"
#endif
    /* Has the profiler of the preloaded allocator write its next file. */
    void
    accuracy_dump(void);

#endif
