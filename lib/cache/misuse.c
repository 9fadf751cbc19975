#include "cache/misuse.h"
#include "cache/kmem_cache.h"
#include "platform/os/message.h"

#include <stdlib.h>

noinline_cold void misuse_report(const char *kind, const void *p, const char *what)
{
    struct message m = {.length = 0};
    if (hooks.report) {
        hooks.report(kind, p, what, false);
        abort();
    }
    message_text(&m, "sheaf: ");
    message_text(&m, kind);
    message_text(&m, " ");
    message_pointer(&m, p);
    message_text(&m, " (");
    message_text(&m, what);
    message_text(&m, ")");
    message_write(&m);
    abort();
}

noinline_cold void misuse_warn(const char *kind, const void *p, const char *what)
{
    if (!hooks.report || !sheaf_config.debug_go_on)
        misuse_report(kind, p, what);
    hooks.report(kind, p, what, true);
}

noinline_cold void misuse_slab(const struct kmem_cache *cache, const struct slab_report *report)
{
    misuse_report(report->fault == SLAB_INTERIOR ? "free of interior pointer" : "double free of", report->object,
                  cache->name);
}
