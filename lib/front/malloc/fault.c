#define _GNU_SOURCE
#include "front/malloc/fault.h"
#include "diagnostics/feature/guarded_pool.h"
#include "platform/os/message.h"
#include "memory/region/region.h"

#include <signal.h>

static struct sigaction before;

static void report(const char *kind, const void *address, uint32_t block)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: ");
    message_text(&m, kind);
    message_text(&m, " ");
    message_pointer(&m, address);
    if (block != SLICE_NONE) {
        message_text(&m, " (large block at ");
        message_pointer(&m, slice_address(block));
        message_text(&m, ")");
    }
    message_write(&m);
}

/* The head of the block that the slice belongs to. */
static uint32_t head_of(uint32_t slice)
{
    while (slice && read_once(slice_at(slice)->kind) == SLICE_INSIDE)
        slice--;
    return slice;
}

static void report_region(const void *address)
{
    uint32_t slice = (uint32_t)slice_of(address), head = head_of(slice);
    const struct slice *span = slice_at(head);
    if (span->kind == SLICE_CLOSED) {
        report("access after free at", address, head);
    } else if (span->kind == SLICE_LARGE && span->guarded) {
        report("access past the end at", address, head);
    } else if (span->kind == SLICE_GUARD && span->length == 1) {
        report("access to the guard between slabs at", address, SLICE_NONE);
    } else if (span->kind == SLICE_GUARD) {
        uint32_t block = head + 1;
        while (slice_at(block)->kind == SLICE_INSIDE)
            block++;
        report("access before the start at", address, block);
    }
}

/* Afterwards the access is repeated under the previous handler: a core dump, or the program's own handler. */
static void handle(int signal, siginfo_t *info, void *context)
{
    (void)context;
    const void *address = info->si_addr;
    if (info->si_code > 0 && pool_has(address))
        pool_report(address);
    else if (info->si_code > 0 && slice_of(address) < space.slice_count)
        report_region(address);
    sigaction(signal, &before, NULL);
    if (info->si_code <= 0) /* sent by a process: it would not be repeated */
        raise(signal);
}

void fault_start(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    action.sa_sigaction = handle;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}
