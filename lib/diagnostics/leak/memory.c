#include "diagnostics/leak/memory.h"
#include "memory/space/internal.h"
#include "platform/os/vm.h"

/* Only the thread that reports uses them. */
static struct internal_range tables[LEAK_TABLES];
static unsigned count;

void *leak_map(size_t bytes)
{
    size_t size = round_up(bytes + !bytes, vm_page_size());
    char *table = count < LEAK_TABLES ? vm_map(size, 1) : NULL;
    if (table)
        tables[count++] = (struct internal_range){(uintptr_t)table, (uintptr_t)table + size};
    return table;
}

void leak_unmap_all(void)
{
    while (count) {
        count--;
        vm_unmap((void *)tables[count].start, tables[count].end - tables[count].start);
    }
}

void leak_each_table(void (*visit)(uintptr_t start, uintptr_t end, void *with), void *with)
{
    for (unsigned i = 0; i < count; i++)
        visit(tables[i].start, tables[i].end, with);
}
