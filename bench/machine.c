/*
 * bench-machine: measures the properties of this CPU that determine the cost of a fast path, and prints them as one
 * line of JSON: the frequency under load, and the cycles from a store to a dependent load of the same word. Some CPUs
 * find the store on which a load depends at the rename stage and forward the value without the store buffer; a store
 * and a load then take less than a cycle. Some do so only if both use the same address register. There are therefore
 * two chains: in one, store and load use the same register; in the other, each computes the address from a base and
 * an index in registers of its own.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <stdio.h>

enum { UNROLLED = 16, CHAIN = 1 << 17, REPETITIONS = 40 };
static const uint64_t WARM_UP_NS = 50000000;

#define TIMES_4(s)  s s s s
#define TIMES_16(s) TIMES_4(s) TIMES_4(s) TIMES_4(s) TIMES_4(s)

#if defined(__x86_64__)
/* Both operands are registers, because some CPUs add constants at the rename stage without taking a cycle. */
#define ADD              "add %1, %0\n\t"
#define FORWARD          "mov %0, (%1)\n\tmov (%1), %0\n\t"
#define FORWARD_COMPUTED "mov %0, (%1,%2)\n\tmov (%3,%4), %0\n\t"
#elif defined(__aarch64__)
#define ADD              "add %0, %0, %1\n\t"
#define FORWARD          "str %0, [%1]\n\tldr %0, [%1]\n\t"
#define FORWARD_COMPUTED "str %0, [%1, %2]\n\tldr %0, [%3, %4]\n\t"
#else
#error "bench-machine has no chains for this architecture; leave it out of bench/meson.build"
#endif

static uint64_t word[8];

static void chain_of_additions(void)
{
    uint64_t sum = 1, addend = 3;
    for (unsigned i = 0; i < CHAIN; i++)
        __asm__ volatile(TIMES_16(ADD) : "+r"(sum) : "r"(addend));
}

static void chain_through_base(void)
{
    uint64_t value = 1;
    for (unsigned i = 0; i < CHAIN; i++)
        __asm__ volatile(TIMES_16(FORWARD) : "+r"(value) : "r"(word) : "memory");
}

/* Both addresses are that of word[2]: 16 bytes after word[0], and 8 bytes before word[3]. */
static void chain_through_computed_addresses(void)
{
    uint64_t value = 1, *store_base = word, *load_base = word + 3;
    int64_t store_index = 2 * sizeof(*word), load_index = -(int64_t)sizeof(*word);
    for (unsigned i = 0; i < CHAIN; i++)
        __asm__ volatile(TIMES_16(FORWARD_COMPUTED)
                         : "+r"(value)
                         : "r"(store_base), "r"(store_index), "r"(load_base), "r"(load_index)
                         : "memory");
}

/* Median nanoseconds of one link. The minimum would not do: ratios of chains need times at the same frequency. */
static double median_ns(void (*chain)(void))
{
    static double took[REPETITIONS];
    for (unsigned i = 0; i < REPETITIONS; i++) {
        uint64_t start = now_ns();
        chain();
        took[i] = (double)(now_ns() - start) / ((double)CHAIN * UNROLLED);
    }
    sort_doubles(took, REPETITIONS);
    return median_of_sorted(took, REPETITIONS);
}

/* CPUs raise their frequency only some time after the load has begun. */
static void warm_up(void)
{
    for (uint64_t start = now_ns(); now_ns() - start < WARM_UP_NS;)
        chain_of_additions();
}

int main(void)
{
    warm_up();
    double cycle = median_ns(chain_of_additions);
    double base = median_ns(chain_through_base), computed = median_ns(chain_through_computed_addresses);
    printf("{\"schema_version\": 1, \"mhz\": %.0f, \"store_forward_cycles\": %.1f, ", 1000 / cycle, base / cycle);
    printf("\"store_forward_computed_cycles\": %.1f}\n", computed / cycle);
    return 0;
}
