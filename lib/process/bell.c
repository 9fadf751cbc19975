#include "process/bell.h"
#include "platform/os/hooks.h"
#include "platform/os/syscall.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#define BROKEN_MS 100 /* pause if the word of the control area cannot be waited on */

static uint32_t private_word;

static uint32_t *word_of(bool *shared)
{
    uint32_t *word = hooks.control_bell ? hooks.control_bell() : NULL;
    *shared = word;
    return word ? word : &private_word;
}

struct bell bell_read(void)
{
    bool shared;
    const uint32_t *word = word_of(&shared);
    return (struct bell){.word = word, .seen = __atomic_load_n(word, __ATOMIC_SEQ_CST), .shared = shared};
}

static long wait(struct bell bell, uint32_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    return sys_call(SYS_futex, (long)bell.word, bell.shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, (long)bell.seen,
                    (long)&time, 0, 0);
}

void bell_wait(struct bell bell, uint32_t ms)
{
    long result = wait(bell, ms);
    if (result < 0 && result != -EAGAIN && result != -EINTR && result != -ETIMEDOUT && bell.shared)
        wait((struct bell){.word = &private_word, .seen = read_once(private_word)}, BROKEN_MS);
}

void bell_ring(void)
{
    bool shared;
    uint32_t *word = word_of(&shared);
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    sys_call3(SYS_futex, (long)word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX);
}
