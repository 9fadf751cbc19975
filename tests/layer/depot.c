/* The depot of call stacks by itself; stack_walk() finds what the test puts into os_stack. */
#include "layer.h"
#include "diagnostics/feature/depot.h"

static uint32_t here(uintptr_t a, uintptr_t b)
{
    os_stack[0] = a;
    os_stack[1] = b;
    os_stack_depth = b ? 2 : 1;
    return depot_here();
}

CASE(each_stack_is_stored_once)
{
    uint32_t first = here(1, 2);
    must(first && here(1, 2) == first);
    must(here(2, 1) != first && here(1, 0) != first);
    must(here(1, 2) == first);
    const struct depot_stack *stack = depot_stack(first);
    must_be(stack->depth, 2);
    must(stack->pcs[0] == 1 && stack->pcs[1] == 2);
    must(!depot_stack(0));
    must_be(os_count(OS_MAP), 1);
}

static unsigned visited;

static void visit(struct depot_stack *stack, void *with)
{
    must(stack->depth == 2 && with == &visited);
    visited++;
}

CASE(all_stacks_are_visited)
{
    depot_each(visit, &visited);
    must_be(visited, 0);
    for (uintptr_t i = 1; i <= 50000; i++) /* more than there are chains */
        must(here(i, i + 1) != 0);
    depot_each(visit, &visited);
    must_be(visited, 50000);
    for (uintptr_t i = 1; i <= 50000; i += 999)
        must_be(depot_stack(here(i, i + 1))->pcs[0], i);
}

CASE(a_refused_depot_has_no_stacks)
{
    os_refuse(OS_MAP, 1, 1);
    must_be(here(1, 2), 0);
    os_refuse(OS_COMMIT, 1, 1);
    must_be(here(1, 2), 0);
    must_be(os_mapped, 0);
    must(here(1, 2) != 0);
}

CASE(a_refused_part_is_not_used_up)
{
    uint32_t first = here(1, 2);
    os_refuse(OS_COMMIT, 1, 1);
    must_be(here(3, 4), 0);
    must(here(1, 2) == first);
    must_be(here(3, 4), first + (sizeof(struct depot_stack) + 16) / 8);
}

CASE(no_stack_no_entry)
{
    os_stack_depth = 0;
    must_be(depot_here(), 0);
    must_be(os_count(OS_MAP), 0);
}
