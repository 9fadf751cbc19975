#define _GNU_SOURCE
#include "diagnostics/leak/report.h"
#include "diagnostics/feature/debug_report.h"
#include "diagnostics/leak/memory.h"
#include "platform/os/syscall.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define PAGE_BYTES (1u << 20) /* of text that is written at once to a file */

/* ---- text ---- */

struct page {
    char *text;
    size_t length, most;
    bool kept; /* it is the whole report, and is not written */
};

static void page_write(struct page *page)
{
    if (page->length)
        debug_write_lines(page->text, page->length);
    page->length = 0;
}

/* Without memory for a page each line is written by itself. */
static void page_line(struct page *page, struct message *m)
{
    if (!page->text) {
        debug_write(m);
        return;
    }
    if (page->length + m->length + 1 > page->most) {
        if (page->kept)
            return;
        page_write(page);
    }
    memcpy(page->text + page->length, m->text, m->length);
    page->length += m->length;
    page->text[page->length++] = '\n';
}

/* Pipes do not mix what several processes write if each writes no more than PIPE_BUF at once. */
static void page_begin(struct page *page)
{
    *page = (struct page){.text = leak_map(PAGE_BYTES), .most = debug_writes_to_file() ? PAGE_BYTES : PIPE_BUF};
}

static void message_count(struct message *m, uint64_t n, const char *thing)
{
    message_number(m, n);
    message_text(m, " ");
    message_text(m, thing);
    message_text(m, n == 1 ? "" : "s");
}

/* A size with at most one decimal, such as 1.2 MiB. */
static void message_size(struct message *m, uint64_t bytes)
{
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB"};
    unsigned unit = 0;
    uint64_t tenths = bytes * 10;
    for (; tenths >= 10240 && unit + 1 < array_size(units); unit++)
        tenths = (tenths + 512) / 1024;
    message_number(m, tenths / 10);
    if (unit && tenths % 10) {
        message_text(m, ".");
        message_number(m, tenths % 10);
    }
    message_text(m, bytes == 1 ? " byte" : units[unit]);
}

static void message_blocks(struct message *m, uint64_t bytes, uint64_t blocks)
{
    message_size(m, bytes);
    message_text(m, " in ");
    message_count(m, blocks, "block");
}

/* ---- stacks ---- */

/* The lines of frames by address, because most stacks share their outer frames and dladdr() is slow. */
#define FRAMES      4096u
#define FRAME_BYTES 248u
struct frame {
    uintptr_t pc;
    char line[FRAME_BYTES];
};

static void frame_line(struct frame *frames, struct message *m, uintptr_t pc)
{
    struct frame *frame = frames ? &frames[(pc ^ pc >> 12) % FRAMES] : NULL;
    if (frame && frame->pc == pc) {
        message_text(m, frame->line);
        return;
    }
    debug_frame(m, pc, "    ");
    if (!frame || m->length >= FRAME_BYTES)
        return;
    frame->pc = pc;
    memcpy(frame->line, m->text, m->length);
    frame->line[m->length] = 0;
}

static void frame_address(struct message *m, uintptr_t pc)
{
    message_text(m, "sheaf:     ");
    message_pointer(m, (void *)pc);
}

/* ---- groups ---- */

static void message_exact(struct message *m, uint64_t bytes, uint64_t blocks)
{
    message_count(m, bytes, "byte");
    message_text(m, " in ");
    message_count(m, blocks, "block");
}

static void report_group(struct page *page, struct frame *frames, const struct group *group)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: leak: ");
    message_exact(&m, group->bytes, group->blocks);
    message_text(&m, " of ");
    message_text(&m, group->cache ? group->cache : "several caches");
    message_text(&m, ", lost");
    if (group->with.blocks) {
        message_text(&m, ", and ");
        message_exact(&m, group->with.bytes, group->with.blocks);
        message_text(&m, group->blocks == 1 ? " through it" : " through them");
    }
    message_text(&m, group->depth ? ":" : "");
    page_line(page, &m);
    for (uint32_t i = 0; i < group->depth; i++) {
        m.length = 0;
        if (page->kept)
            frame_address(&m, group->pcs[i]);
        else
            frame_line(frames, &m, group->pcs[i]);
        page_line(page, &m);
    }
}

static void report_rest(struct page *page, const struct groups *groups, uint32_t from)
{
    struct message m = {.length = 0};
    uint64_t bytes = 0, blocks = 0;
    for (uint32_t i = from; i < groups->count; i++) {
        bytes += groups->all[i].bytes + groups->all[i].with.bytes;
        blocks += groups->all[i].blocks + groups->all[i].with.blocks;
    }
    message_text(&m, "sheaf: leak: and ");
    message_blocks(&m, bytes, blocks);
    message_text(&m, " in ");
    message_count(&m, groups->count - from, "smaller group");
    message_text(&m, "; set SHEAF_DEBUG_LOG=FILE for all of them");
    page_line(page, &m);
}

static void report_running(struct page *page, uint32_t running)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: leaks: ");
    message_count(&m, running, "thread");
    message_text(&m, " could not be stopped; blocks that only their registers refer to count as lost");
    page_line(page, &m);
}

static void report_sum(struct page *page, const struct groups *groups, uint32_t process)
{
    struct message m = {.length = 0};
    message_text(&m, "sheaf: ");
    if (groups->blocks) {
        message_text(&m, "lost ");
        message_blocks(&m, groups->bytes, groups->blocks);
    } else {
        message_text(&m, "nothing lost");
    }
    if (groups->with.blocks) {
        message_text(&m, ", ");
        message_blocks(&m, groups->with.bytes, groups->with.blocks);
        message_text(&m, groups->blocks == 1 ? " through it" : " through them");
    }
    message_text(&m, "; still referenced: ");
    message_blocks(&m, groups->reached.bytes, groups->reached.blocks);
    message_text(&m, " (process ");
    message_number(&m, process);
    message_text(&m, ", ");
    message_text(&m, program_invocation_short_name);
    message_text(&m, ")");
    page_line(page, &m);
}

static void report_all(struct page *page, struct frame *frames, const struct groups *groups, uint32_t most)
{
    for (uint32_t i = 0; i < most; i++)
        report_group(page, frames, &groups->all[i]);
    if (most < groups->count)
        report_rest(page, groups, most);
}

void report_leaks(const struct groups *groups, uint32_t running)
{
    struct page page;
    struct frame *frames = leak_map(FRAMES * sizeof(*frames));
    debug_report_start();
    page_begin(&page);
    report_all(&page, frames, groups,
               debug_writes_to_file() || groups->count < GROUPS_TOLD ? groups->count : GROUPS_TOLD);
    if (running)
        report_running(&page, running);
    report_sum(&page, groups, (uint32_t)sys_call3(SYS_getpid, 0, 0, 0));
    page_write(&page);
}

size_t report_compose(const struct groups *groups, uint32_t running, uint32_t process, const char **text)
{
    enum { LINE = sizeof(((struct message *)0)->text) + 1, FRAME_LINE = 32, OTHERS = 4 };
    size_t size = (groups->count + OTHERS) * (size_t)LINE;
    for (uint32_t i = 0; i < groups->count; i++)
        size += groups->all[i].depth * (size_t)FRAME_LINE;
    struct page page = {.text = leak_map(size), .most = size, .kept = true};
    if (!page.text)
        return 0;
    report_all(&page, NULL, groups, groups->count);
    if (running)
        report_running(&page, running);
    report_sum(&page, groups, process);
    *text = page.text;
    return page.length;
}
