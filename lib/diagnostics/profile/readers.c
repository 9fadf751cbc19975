#include "diagnostics/profile/readers.h"
#include "platform/os/vm.h"
#include "memory/space/internal.h"

#define READERS 16

static struct reader *reader_at(void *all, const struct readers *readers, unsigned i)
{
    return (struct reader *)(void *)((char *)all + i * readers->bytes);
}

struct reader *readers_claim(struct readers *readers, unsigned slot)
{
    if (!__atomic_load_n(&readers->all, __ATOMIC_ACQUIRE) && vm_map_once(&readers->all, READERS * readers->bytes))
        internal_note(readers->all, READERS * readers->bytes); /* they have addresses of objects */
    void *all = __atomic_load_n(&readers->all, __ATOMIC_ACQUIRE);
    struct reader *mine = all ? reader_at(all, readers, slot % READERS) : NULL;
    return mine && !atomic_exchange_explicit(&mine->busy, true, memory_order_acquire) ? mine : NULL;
}

void readers_fork_child(struct readers *readers)
{
    for (unsigned i = 0; readers->all && i < READERS; i++) {
        struct reader *one = reader_at(readers->all, readers, i);
        if (atomic_load_explicit(&one->busy, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&one->busy, false, memory_order_relaxed);
    }
}
