/* Sheaves and their pool, and barns, by themselves. */
#include "slots.h"
#include "cache/slot/barn.h"

#include <pthread.h>

static void drop(struct sheaf *sheaf)
{
    sheaf->count = 0;
    empty_sheaf_free(sheaf);
}

/* ---- sheaves and their pool ---- */

CASE(the_least_order_that_holds_a_capacity)
{
    for (unsigned capacity = 1; capacity <= 509; capacity++) {
        unsigned order = sheaf_order_for(capacity);
        must(sheaf_capacity_of(order) >= capacity);
        must(order == SHEAF_ORDER_MIN || sheaf_capacity_of(order - 1) < capacity);
    }
}

CASE(sheaves_are_found_from_any_word)
{
    start(16);
    for (unsigned i = 0; i < 40; i++)
        for (unsigned order = SHEAF_ORDER_MIN; order <= SHEAF_ORDER_MAX; order++) {
            struct sheaf *sheaf = empty_sheaf_alloc(sheaf_capacity_of(order));
            must_be((uintptr_t)sheaf % (8ul << order), 0);
            must_be(sheaf_order(sheaf), order);
            must(sheaf_at(sheaf_offset(sheaf)) == sheaf);
            for (unsigned word = 0; word < 1u << order; word++)
                must(sheaf_detached(sheaf_containing((struct end){sheaf_offset(sheaf) + 8 * word})) == sheaf);
        }
}

/* A small program touches one page for the sheaves of four orders. */
CASE(small_sheaves_share_the_first_page)
{
    start(16);
    for (unsigned order = SHEAF_ORDER_MIN; order < SHEAF_ORDER_MIN + 4; order++)
        must_be((uintptr_t)empty_sheaf_alloc(sheaf_capacity_of(order)) & ~0xffful, space.sheaves_first);
    must_be(sheaf_pool_bytes(), 4096);
    must_be(sheaf_pool_cut(), 4 * 4 + 2 * 2 + 1 + 8);
}

CASE(empty_sheaves_have_both_marks)
{
    start(16);
    struct sheaf *sheaf = empty_sheaf_alloc(13);
    must(!sheaf->bottom && sheaf->count == 0 && sheaf->capacity == 13);
    must_be(sheaf->objects[13], sheaf_full_mark());
    empty_sheaf_free(sheaf);
    must(empty_sheaf_alloc(10) == sheaf); /* the same order */
    must_be(sheaf->objects[10], sheaf_full_mark());
    drop(sheaf);
    must(empty_sheaf_alloc(13) == sheaf);
    must_be(sheaf->objects[10], 0); /* else a push would find it full there */
    must_be(sheaf->objects[13], sheaf_full_mark());
}

/* What the system refuses for a while is not used up, and can be had later. */
CASE(pieces_that_are_refused)
{
    start(16);
    for (size_t i = 1; i < space.sheaves_first_size / 4096; i++) /* the first piece is of small ones */
        must(empty_sheaf_alloc(509));
    os_refuse(OS_EXTEND, 1, 100);
    while (empty_sheaf_alloc(509)) {
    }
    uint64_t before = sheaf_pool_bytes();
    for (int i = 0; i < 99; i++)
        must(!empty_sheaf_alloc(509));
    must_be(sheaf_pool_bytes(), before);
    struct sheaf *sheaf = empty_sheaf_alloc(509);
    must_be(sheaf, space.sheaves.start);
    must_be(sheaf_order(sheaf), 9);
}

CASE(the_pool_ends)
{
    must(space_init(16, 8 * MIB));
    slot_init(false, false, false, false, FOLD);
    size_t n = 0;
    while (empty_sheaf_alloc(509))
        n++;
    must_be(n, (space.sheaves_first_size + space.sheaves.most) / 4096 - 1);
    must(empty_sheaf_alloc(5)); /* which are left */
}

CASE(stacks_are_last_in_first_out)
{
    struct sheaf_stack stack = {0};
    start(16);
    must(!sheaf_stack_pop(&stack) && !sheaf_stack_take_all(&stack));
    struct sheaf *a = filled(5, 1), *b = filled(5, 2), *c = filled(5, 3);
    sheaf_stack_push(&stack, a);
    sheaf_stack_push(&stack, b);
    must(sheaf_stack_pop(&stack) == b);
    sheaf_stack_push(&stack, c);
    struct sheaf *all = sheaf_stack_take_all(&stack);
    must(all == c && sheaf_at(c->next) == a && !a->next);
    must(!sheaf_stack_pop(&stack));
}

/* The count in the head's upper half: a head that another thread took and put back meanwhile is not the same. */
CASE(a_head_never_comes_back)
{
    struct sheaf_stack stack = {0};
    start(16);
    struct sheaf *a = filled(5, 1);
    sheaf_stack_push(&stack, a);
    uint64_t head = stack.head;
    must(sheaf_stack_pop(&stack) == a);
    sheaf_stack_push(&stack, a);
    must_be((uint32_t)stack.head, (uint32_t)head);
    must(stack.head != head);
    sheaf_stack_take_all(&stack);
    sheaf_stack_push(&stack, a);
    must(stack.head != head);
}

enum { THREADS = 4, SHEAVES = 16, ROUNDS = 100000 };
static struct sheaf_stack shared;

static void *exchange_sheaves(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct sheaf *sheaf = sheaf_stack_pop(&shared);
        if (!sheaf)
            continue;
        must_be(__atomic_exchange_n(&sheaf->bottom, 1, __ATOMIC_RELAXED), 0); /* of one thread only */
        __atomic_store_n(&sheaf->bottom, 0, __ATOMIC_RELAXED);
        sheaf_stack_push(&shared, sheaf);
    }
    return NULL;
}

CASE(stacks_of_several_threads)
{
    pthread_t threads[THREADS];
    start(16);
    for (int i = 0; i < SHEAVES; i++)
        sheaf_stack_push(&shared, filled(5, 0));
    for (int i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], NULL, exchange_sheaves, NULL));
    for (int i = 0; i < THREADS; i++)
        must(!pthread_join(threads[i], NULL));
    int n = 0;
    while (sheaf_stack_pop(&shared))
        n++;
    must_be(n, SHEAVES);
}

/* ---- barns ---- */

static struct barn barn;

static unsigned put_until_refused(uint64_t limit, unsigned most, unsigned each)
{
    unsigned n = 0;
    for (struct sheaf *sheaf; n < most; n++) {
        sheaf = filled(61, each);
        if (!barn_put(&barn, sheaf, limit)) {
            drop(sheaf);
            break;
        }
    }
    return n;
}

static void empty_barn(void)
{
    for (struct sheaf *sheaf; (sheaf = barn_get(&barn));)
        drop(sheaf);
    must(!barn.held && !barn_objects(&barn) && !barn_sheaves(&barn));
}

CASE(a_barn_is_limited_by_objects)
{
    static const unsigned limits[][3] = {{610, 61, 10}, {609, 61, 9}, {0, 1, 0}, {100, 1, 100}};
    start(16);
    for (size_t i = 0; i < array_size(limits); i++) {
        must_be(put_until_refused(limits[i][0], 200, limits[i][1]), limits[i][2]);
        must_be(barn_objects(&barn), limits[i][1] * limits[i][2]);
        must_be(barn_sheaves(&barn), limits[i][2]);
        must(barn.refused);
        empty_barn();
    }
    must(barn_put(&barn, filled(61, 61), BARN_FORCE));
    must_be(barn_objects(&barn), 61);
}

/* Two threads that both saw room: the second half of a put decides, so that the limit is hard. */
CASE(the_limit_is_hard)
{
    must(barn_count_in(&barn, 61, 100));
    must(!barn_count_in(&barn, 61, 100));
    must_be(barn_objects(&barn), 61);
    must_be(barn_sheaves(&barn), 1);
    must(barn_count_in(&barn, 39, 100) && !barn_count_in(&barn, 1, 100));
    must_be(barn_objects(&barn), 100);
}

CASE(what_is_left_of_a_sheaf_goes_back)
{
    start(16);
    must(barn_put(&barn, filled(5, 2), 2));
    must(barn_get_object(&barn) == object(1));
    must_be(barn_objects(&barn), 1);
    must(barn_get_object(&barn) == object(0));
    must_be(barn_objects(&barn) + barn_sheaves(&barn), 0);
    must(!barn_get_object(&barn));
}

/* A refill from slabs that follows a refusal shows that the barn was too small. */
CASE(a_barn_grows_with_the_traffic)
{
    start(16);
    must_be(barn_limit(&barn, 100), 100);
    barn_missed(&barn, 100, 200);
    must_be(barn_limit(&barn, 100), 100); /* nothing was refused */
    struct sheaf *sheaf = filled(5, 1);
    uint64_t limits[] = {150, 200, 200};
    for (size_t i = 0; i < array_size(limits); i++) {
        must(!barn_put(&barn, sheaf, 0));
        barn_missed(&barn, 100, 200);
        barn_missed(&barn, 100, 200);
        must_be(barn_limit(&barn, 100), limits[i]);
    }
}

CASE(a_barn_decays)
{
    start(16);
    barn.grown = 100;
    must(barn_put(&barn, filled(61, 60), BARN_FORCE) && barn_put(&barn, filled(61, 40), BARN_FORCE));
    must_be(barn_decay(&barn, false), 0); /* it was empty since the last step */
    must_be(barn_limit(&barn, 0), 100);
    must_be(barn_decay(&barn, true), 100); /* all of it was there all the time */
    must_be(barn_limit(&barn, 0), 75);
    struct sheaf *sheaf = barn_get(&barn); /* of 40 */
    must_be(sheaf->count, 40);
    must(barn_put(&barn, sheaf, BARN_FORCE));
    must_be(barn_decay(&barn, true), 60); /* these were not needed */
    for (int i = 0; i < 100; i++)
        barn_decay(&barn, true);
    must(barn_limit(&barn, 0) <= 3);
}
