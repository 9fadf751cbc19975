/*
 * The 20 operators that libstdc++ exports, without libstdc++: its new-handler and its bad_alloc are looked up when an
 * allocation fails. Built with -fexceptions, so that the exception passes through.
 */
#define _GNU_SOURCE
#include "malloc/fast.h"
#include "os/message.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef void (*new_handler)(void);

static new_handler current_handler(void)
{
    union {
        void *symbol;
        new_handler (*call)(void);
    } get = {.symbol = dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv")};
    return get.symbol ? get.call() : NULL;
}

static _Noreturn noinline_cold void throw_bad_alloc(void)
{
    union {
        void *symbol;
        void (*call)(void);
    } raise = {.symbol = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv")};
    if (raise.symbol)
        raise.call();
    struct message m = {.length = 0};
    message_text(&m, "sheaf: operator new found no memory, and no libstdc++ to throw bad_alloc");
    message_write(&m);
    abort();
}

static void *allocate(size_t size, size_t align)
{
    return align ? malloc_aligned(align, size) : malloc_fast(size);
}

/* As the standard has it: the handler is called until memory is found, it throws, or there is none. */
static noinline_cold void *new_failed(size_t size, size_t align, bool nothrow)
{
    for (;;) {
        new_handler handler = current_handler();
        if (!handler) {
            if (nothrow)
                return NULL;
            throw_bad_alloc();
        }
        handler();
        void *p = allocate(size, align);
        if (p)
            return p;
    }
}

static always_inline void *new_plain(size_t size, bool nothrow)
{
    void *p = malloc_fast(size);
    return likely(p != NULL) ? p : new_failed(size, 0, nothrow);
}

static void *new_aligned(size_t size, size_t align, bool nothrow)
{
    void *p = malloc_aligned(align, size);
    return likely(p != NULL) ? p : new_failed(size, align, nothrow);
}

#define NEW(symbol, nothrow, ...)                                                                                      \
    sheaf_export void *symbol(size_t size __VA_ARGS__);                                                                \
    sheaf_export void *symbol(size_t size __VA_ARGS__)

#define UNUSED_TAG , const void *tag __attribute__((unused))
#define ALIGN      , size_t align
#define ALIGN_TAG  , size_t align, const void *tag __attribute__((unused))

NEW(_Znwm, false) { return new_plain(size, false); }
NEW(_Znam, false) { return new_plain(size, false); }
NEW(_ZnwmRKSt9nothrow_t, true, UNUSED_TAG) { return new_plain(size, true); }
NEW(_ZnamRKSt9nothrow_t, true, UNUSED_TAG) { return new_plain(size, true); }
NEW(_ZnwmSt11align_val_t, false, ALIGN) { return new_aligned(size, align, false); }
NEW(_ZnamSt11align_val_t, false, ALIGN) { return new_aligned(size, align, false); }
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, true, ALIGN_TAG) { return new_aligned(size, align, true); }
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, true, ALIGN_TAG) { return new_aligned(size, align, true); }

/* All twelve take the pointer first; size, alignment and tag tell nothing that the map does not know. */
#define DELETE(symbol)                                                                                                 \
    sheaf_export void symbol(void *p);                                                                                 \
    sheaf_export void symbol(void *p)                                                                                  \
    {                                                                                                                  \
        free_fast(p);                                                                                                  \
    }

DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
