/*
 * What the compiler calls with -fsanitize=thread: before each plain access to memory, and in place of each atomic
 * operation. And the store buffers of x86: a store that stays in the buffer is in memory only while its thread runs.
 */
#include "explore.h"

#include <string.h>

/* ---- store buffers ---- */

static void put(uintptr_t at, unsigned size, uint64_t value)
{
    memcpy((void *)at, &value, size);
}

static uint64_t get(uintptr_t at, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, (void *)at, size);
    return value;
}

void stores_settle(struct thread *thread)
{
    struct store *last = thread->stores ? &thread->buffered[thread->stores - 1] : NULL;
    if (last && !last->captured) {
        last->value = get(last->at, last->size);
        last->captured = true;
    }
}

void stores_expect(struct thread *thread, uintptr_t at, size_t size)
{
    stores_settle(thread);
    if (thread->stores == BUFFERED_MOST) { /* the oldest becomes visible: it is in memory already */
        memmove(thread->buffered, thread->buffered + 1, sizeof(thread->buffered) - sizeof(thread->buffered[0]));
        thread->stores--;
    }
    thread->buffered[thread->stores++] =
        (struct store){.at = at, .size = (uint8_t)size, .under = get(at, (unsigned)size)};
}

void stores_hide(struct thread *thread)
{
    stores_settle(thread);
    for (unsigned i = thread->stores; i--;)
        put(thread->buffered[i].at, thread->buffered[i].size, thread->buffered[i].under);
}

void stores_show(struct thread *thread)
{
    for (unsigned i = 0; i < thread->stores; i++) {
        struct store *store = &thread->buffered[i];
        store->under = get(store->at, store->size);
        put(store->at, store->size, store->value);
    }
}

void stores_drain(struct thread *thread)
{
    if (thread != me)
        stores_show(thread);
    else
        stores_settle(thread);
    thread->stores = 0;
}

/* ---- plain accesses ---- */

static inline void before_read(void *at, size_t size, bool plain)
{
    if (!me)
        return;
    stores_settle(me);
    point(READ, (uintptr_t)at, size, plain);
}

static inline void before_write(void *at, size_t size, bool plain)
{
    if (!me)
        return;
    stores_settle(me);
    if (point(WRITE, (uintptr_t)at, size, plain))
        stores_expect(me, (uintptr_t)at, size);
}

#define PLAIN(n)                                                                                                     \
    void __tsan_read##n(void *at);                                                                                   \
    void __tsan_read##n(void *at)                                                                                    \
    {                                                                                                                \
        before_read(at, n, true);                                                                                    \
    }                                                                                                                \
    void __tsan_write##n(void *at);                                                                                  \
    void __tsan_write##n(void *at)                                                                                   \
    {                                                                                                                \
        before_write(at, n, true);                                                                                   \
    }                                                                                                                \
    void __tsan_unaligned_read##n(void *at);                                                                         \
    void __tsan_unaligned_read##n(void *at)                                                                          \
    {                                                                                                                \
        before_read(at, n, true);                                                                                    \
    }                                                                                                                \
    void __tsan_unaligned_write##n(void *at);                                                                        \
    void __tsan_unaligned_write##n(void *at)                                                                         \
    {                                                                                                                \
        before_write(at, n, true);                                                                                   \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)

/* Longer ones are not held back: the buffer is emptied first, which is an order that x86 has too. */
static void before_range(enum access access, void *at, size_t size)
{
    if (!me)
        return;
    stores_settle(me);
    for (size_t i = 0; i < size; i += 8)
        point(access == READ ? READ : UPDATE, (uintptr_t)at + i, 8, true);
    if (access != READ)
        stores_drain(me);
}

void __tsan_read16(void *at);
void __tsan_read16(void *at)
{
    before_range(READ, at, 16);
}
void __tsan_write16(void *at);
void __tsan_write16(void *at)
{
    before_range(WRITE, at, 16);
}
void __tsan_unaligned_read16(void *at);
void __tsan_unaligned_read16(void *at)
{
    before_range(READ, at, 16);
}
void __tsan_unaligned_write16(void *at);
void __tsan_unaligned_write16(void *at)
{
    before_range(WRITE, at, 16);
}
void __tsan_read_range(void *at, unsigned long size);
void __tsan_read_range(void *at, unsigned long size)
{
    before_range(READ, at, size);
}
void __tsan_write_range(void *at, unsigned long size);
void __tsan_write_range(void *at, unsigned long size)
{
    before_range(WRITE, at, size);
}

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *from);
void __tsan_func_entry(void *from)
{
    (void)from;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* The linker puts these in the place of libc's, for the code under exploration (include/explore_string.h). */
void *explore_memcpy(void *to, const void *from, size_t size);
void *explore_memcpy(void *to, const void *from, size_t size)
{
    before_range(READ, (void *)(uintptr_t)from, size);
    before_range(WRITE, to, size);
    return memcpy(to, from, size);
}
void *explore_memmove(void *to, const void *from, size_t size);
void *explore_memmove(void *to, const void *from, size_t size)
{
    before_range(READ, (void *)(uintptr_t)from, size);
    before_range(WRITE, to, size);
    return memmove(to, from, size);
}
void *explore_memset(void *to, int value, size_t size);
void *explore_memset(void *to, int value, size_t size)
{
    before_range(WRITE, to, size);
    return memset(to, value, size);
}

/* ---- atomic operations ---- */

static inline void before_update(volatile void *at, size_t size)
{
    if (!me)
        return;
    stores_settle(me);
    point(UPDATE, (uintptr_t)at, size, false);
    stores_drain(me);
}

#define ATOMIC(bits, type)                                                                                           \
    type __tsan_atomic##bits##_load(const volatile type *at, int order);                                             \
    type __tsan_atomic##bits##_load(const volatile type *at, int order)                                              \
    {                                                                                                                \
        (void)order;                                                                                                 \
        before_read((void *)(uintptr_t)at, sizeof(type), false);                                                     \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                \
    }                                                                                                                \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order);                                      \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                                       \
    {                                                                                                                \
        if (order == __ATOMIC_SEQ_CST)                                                                               \
            before_update(at, sizeof(type));                                                                         \
        else                                                                                                         \
            before_write((void *)(uintptr_t)at, sizeof(type), false);                                                \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                               \
    }                                                                                                                \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order);                                   \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)                                    \
    {                                                                                                                \
        (void)order;                                                                                                 \
        before_update(at, sizeof(type));                                                                             \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                     \
    }                                                                                                                \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *expected, type value, int order,      \
                                                      int failure);                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *expected, type value, int order,      \
                                                      int failure)                                                   \
    {                                                                                                                \
        (void)order, (void)failure;                                                                                  \
        before_update(at, sizeof(type));                                                                             \
        return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
    }                                                                                                                \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *expected, type value, int order,        \
                                                    int failure);                                                    \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *expected, type value, int order,        \
                                                    int failure)                                                     \
    {                                                                                                                \
        return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, order, failure);                   \
    }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

#define FETCH(bits, type, name)                                                                                      \
    type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order);                               \
    type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order)                                \
    {                                                                                                                \
        (void)order;                                                                                                 \
        before_update(at, sizeof(type));                                                                             \
        return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                                                   \
    }
#define FETCHES(bits, type)                                                                                          \
    FETCH(bits, type, add) FETCH(bits, type, sub) FETCH(bits, type, and) FETCH(bits, type, or) FETCH(bits, type, xor)
FETCHES(8, uint8_t)
FETCHES(16, uint16_t)
FETCHES(32, uint32_t)
FETCHES(64, uint64_t)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    if (!me)
        return;
    stores_settle(me);
    if (order == __ATOMIC_SEQ_CST) {
        point_always("passes a fence");
        stores_drain(me);
    }
}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
