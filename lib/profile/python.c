#include "profile/python.h"
#include "os/clock.h"
#include "os/object.h"
#include "os/peek.h"
#include "os/vm.h"
#include "profile/modules.h"
#include "profile/python_code.h"
#include "space/own.h"

#include <elf.h>
#include <string.h>

#define READERS 16 /* slots that share one take turns */

/* ---- the interpreter ---- */

static const struct python_layout layouts[] = {
    {.thread = 152,
     .current = 56,
     .indirect = 8 + 1,
     .code = 32,
     .previous = 48,
     .at = 56,
     .owner = 69,
     .entry = 68,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 72,
     .instructions = 184,
     .ascii = 48,
     .compact = 72},
    {.thread = 136,
     .current = 56,
     .indirect = 0 + 1,
     .code = 0,
     .previous = 8,
     .at = 56,
     .owner = 70,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 68,
     .instructions = 192,
     .ascii = 40,
     .compact = 56},
    {.thread = 152,
     .current = 72,
     .code = 0,
     .previous = 8,
     .at = 56,
     .owner = 70,
     .file = 112,
     .function = 128,
     .lines = 136,
     .first_line = 68,
     .instructions = 200,
     .ascii = 40,
     .compact = 56},
};
#define FIRST_VERSION 11 /* of the layouts: 3.11 */

uintptr_t python_loop;

static struct {
    uintptr_t loop_end;
    struct python python;
    struct sheaf_profile_module module;
} found;

struct reader {
    _Atomic bool busy;
    uintptr_t addresses[PYTHON_FRAMES];
    struct python_frames frames;
    struct python_code_objects objects;
} cache_aligned;

static struct reader *readers;

/* The dynamic section of a module, whose first segment has its headers; NULL if there is none. */
static const void *dynamic_of(const struct sheaf_profile_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->start;
    size_t bytes = module->end - module->start;
    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > bytes)
        return NULL;
    const ElfW(Phdr) *parts = (const void *)(module->start + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_DYNAMIC)
            return (const void *)(module->bias + parts[i].p_vaddr);
    return NULL;
}

static uintptr_t address_of(uintptr_t bias, const void *dynamic, const char *name, size_t *size)
{
    const ElfW(Sym) *symbol = object_symbol(bias, dynamic, name);
    if (symbol && size)
        *size = symbol->st_size;
    return symbol ? bias + symbol->st_value : 0;
}

/*
 * The offsets that CPython 3.13 publishes at the start of _PyRuntime: whether they are those of the layout. The
 * words are: a cookie, the version, whether there is no GIL, and the sizes and offsets of structures.
 */
static bool published(const struct python_layout *layout, const uint64_t *words)
{
    enum { COOKIE, VERSION, NO_GIL, THREAD = 19, FRAME = 28, CODE = 34 };
    return !memcmp(&words[COOKIE], "xdebugpy", 8) && !words[NO_GIL] && words[VERSION] >> 24 == 3 &&
           words[THREAD + 4] == layout->current && words[THREAD + 5] == layout->thread &&
           words[FRAME + 1] == layout->previous && words[FRAME + 2] == layout->code &&
           words[FRAME + 3] == layout->at && words[FRAME + 5] == layout->owner && words[CODE + 1] == layout->file &&
           words[CODE + 3] == layout->function && words[CODE + 4] == layout->lines &&
           words[CODE + 5] == layout->first_line && words[CODE + 9] == layout->instructions;
}

static const struct python_layout *layout_of(uintptr_t bias, const void *dynamic)
{
    uintptr_t version_at = address_of(bias, dynamic, "Py_Version", NULL),
              runtime = address_of(bias, dynamic, "_PyRuntime", NULL);
    if (!version_at || !runtime)
        return NULL;
    unsigned long version = *(const unsigned long *)version_at;
    unsigned minor = version >> 16 & 0xff, i = minor - FIRST_VERSION;
    if (version >> 24 != 3 || i >= sizeof(layouts) / sizeof(*layouts))
        return NULL;
    return minor < 13 || published(&layouts[i], (const uint64_t *)runtime) ? &layouts[i] : NULL;
}

void python_look(const struct sheaf_profile_module *module)
{
    size_t size = 0;
    const void *dynamic = python_loop ? NULL : dynamic_of(module);
    uintptr_t loop = dynamic ? address_of(module->bias, dynamic, "_PyEval_EvalFrameDefault", &size) : 0;
    const struct python_layout *layout = loop ? layout_of(module->bias, dynamic) : NULL;
    if (!layout)
        return;
    union {
        uintptr_t address;
        void *(*call)(void);
    } current, this;
    current.address = address_of(module->bias, dynamic, "_PyThreadState_UncheckedGet", NULL);
    if (!current.address)
        current.address = address_of(module->bias, dynamic, "PyThreadState_GetUnchecked", NULL);
    this.address = address_of(module->bias, dynamic, "PyGILState_GetThisThreadState", NULL);
    found.python =
        (struct python){layout, address_of(module->bias, dynamic, "PyCode_Type", NULL), current.call, this.call};
    found.loop_end = loop + size;
    found.module = *module;
    readers = readers ? readers : vm_map(READERS * sizeof(*readers), vm_page_size());
    if (!readers || !current.address || !this.address)
        return;
    own_note(readers, READERS * sizeof(*readers)); /* they have addresses of objects */
    __atomic_store_n(&python_loop, loop, __ATOMIC_RELEASE);
}

/* ---- stacks ---- */

static bool in_loop(uint64_t pc, uintptr_t loop)
{
    return pc - 1 - loop < found.loop_end - loop;
}

static unsigned loops_of(const struct sheaf_profile_stack *stack, uintptr_t loop)
{
    unsigned n = 0;
    for (unsigned i = 0; i < stack->depth; i++)
        n += in_loop(stack->pcs[i], loop);
    return n;
}

/* Puts each run in the place of a frame of the loop. A part of the loop's code may lie elsewhere, and not be known
 * for it, so the outermost frame of the loop gets all runs that are left if the stack is whole. */
static unsigned merge(const struct reader *reader, const struct sheaf_profile_stack *stack, uintptr_t loop,
                      uintptr_t *pcs)
{
    const struct python_frames *frames = &reader->frames;
    unsigned loops = loops_of(stack, loop), run = 0, frame = 0, n = 0;
    for (unsigned i = 0; i < stack->depth && n < SAMPLE_DEPTH; i++) {
        unsigned begin = n;
        if (in_loop(stack->pcs[i], loop)) {
            bool last = !--loops && stack->depth < SAMPLE_DEPTH;
            for (bool more = run < frames->runs; more; more = last && run < frames->runs)
                for (unsigned k = frames->run[run++]; k; k--, frame++)
                    if (n < SAMPLE_DEPTH)
                        pcs[n++] = reader->addresses[frame];
        }
        if (n == begin)
            pcs[n++] = stack->pcs[i];
    }
    return n;
}

/* The stack with Python's functions; the stack as it is if they cannot be read or have no room. */
static uint32_t merged(struct reader *reader, uint32_t native, uintptr_t loop)
{
    uintptr_t pcs[SAMPLE_DEPTH];
    reader->frames.self = peek_self();
    if (!python_read_frames(&found.python, &reader->frames) ||
        !python_addresses(&found.python, &reader->frames, &reader->objects, reader->addresses))
        return native;
    uint32_t stack = area_intern(pcs, merge(reader, area_stack_entry(native), loop, pcs));
    return stack != AREA_NO_STACK && area_stack_entry(stack)->depth ? stack : native;
}

/* A program may unload the interpreter, so it must be where it was found. */
void python_put(unsigned slot, struct walked_stack *stack)
{
    uintptr_t loop = __atomic_load_n(&python_loop, __ATOMIC_ACQUIRE);
    if (stack->stack == AREA_NO_STACK || !loops_of(area_stack_entry(stack->stack), loop) ||
        !module_still(loop, &found.module))
        return;
    struct reader *reader = &readers[slot % READERS];
    if (atomic_exchange_explicit(&reader->busy, true, memory_order_acquire))
        return;
    uint64_t start = clock_ns();
    stack->stack = merged(reader, stack->stack, loop);
    uint64_t took = clock_ns() - start;
    stack->walk_ns += (uint32_t)(took < WALK_MOST_NS ? took : WALK_MOST_NS);
    atomic_store_explicit(&reader->busy, false, memory_order_release);
}

void python_fork_child(void)
{
    struct reader *all = readers;
    for (unsigned i = 0; all && i < READERS; i++)
        if (atomic_load_explicit(&all[i].busy, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&all[i].busy, false, memory_order_relaxed);
}
