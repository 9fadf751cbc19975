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

#define symbol_of(name, target) __attribute__((visibility("default"), alias(#target)))

/* new and new[] are one function each, plain, nothrow, aligned, and both. */
sheaf_export void *_Znwm(size_t size);
sheaf_export void *_Znwm(size_t size)
{
    void *p = malloc_fast(size);
    return likely(p != NULL) ? p : new_failed(size, 0, false);
}

sheaf_export void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag);
sheaf_export void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag)
{
    (void)tag;
    void *p = malloc_fast(size);
    return likely(p != NULL) ? p : new_failed(size, 0, true);
}

sheaf_export void *_ZnwmSt11align_val_t(size_t size, size_t align);
sheaf_export void *_ZnwmSt11align_val_t(size_t size, size_t align)
{
    void *p = malloc_aligned(align, size);
    return likely(p != NULL) ? p : new_failed(size, align, false);
}

sheaf_export void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *tag);
sheaf_export void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *tag)
{
    (void)tag;
    void *p = malloc_aligned(align, size);
    return likely(p != NULL) ? p : new_failed(size, align, true);
}

void *_Znam(size_t size) symbol_of(_Znam, _Znwm);
void *_ZnamRKSt9nothrow_t(size_t size, const void *tag) symbol_of(_ZnamRKSt9nothrow_t, _ZnwmRKSt9nothrow_t);
void *_ZnamSt11align_val_t(size_t size, size_t align) symbol_of(_ZnamSt11align_val_t, _ZnwmSt11align_val_t);
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *tag)
    symbol_of(_ZnamSt11align_val_tRKSt9nothrow_t, _ZnwmSt11align_val_tRKSt9nothrow_t);

/* All twelve forms of delete take the pointer first; size, alignment and tag tell nothing that the map does not know.
 */
sheaf_export void _ZdlPv(void *p);
sheaf_export void _ZdlPv(void *p)
{
    free_fast(p);
}

#define DELETE(symbol) void symbol(void *p) symbol_of(symbol, _ZdlPv);
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
