#include "diagnostics/profile/sampler.h"
#include "platform/os/random.h"
#include "platform/os/vm.h"
#include "cache/slot/slot.h"

static _Atomic uint64_t rate;   /* SHEAF_PROFILE, in bytes */
static _Atomic double per_byte; /* 1 / rate: the chance of each byte */

/* ---- what each slot has ---- */

/* Two threads may update an entry at once. A lost update lets two allocations use the same random number, or leaves
 * the bytes of one uncounted. */
struct sampler_slot {
    _Atomic uint64_t drawn;  /* random numbers */
    _Atomic uint64_t left;   /* bytes of requests until sampler_hit() samples one, the byte that does so included;
                              * 0: not drawn yet */
    _Atomic uint32_t slower; /* with which `left` was drawn */
} cache_aligned;
static struct sampler_slot *slots;

void sampler_forget(void)
{
    for (unsigned i = 0; slots && i < read_once(slot_top); i++)
        if (atomic_load_explicit(&slots[i].left, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&slots[i].left, 0, memory_order_relaxed);
}

bool sampler_start(uint64_t bytes)
{
    if (!vm_map_once((void **)&slots, space.slots * sizeof(*slots)))
        return false;
    atomic_store_explicit(&rate, bytes, memory_order_relaxed);
    atomic_store_explicit(&per_byte, 1 / (double)bytes, memory_order_relaxed);
    sampler_forget();
    return true;
}

/* A sequence of its own for each slot: slow paths of several CPUs do not wait for a shared counter. */
static always_inline uint64_t next(unsigned slot)
{
    uint64_t n = atomic_load_explicit(&slots[slot].drawn, memory_order_relaxed) + 1;
    atomic_store_explicit(&slots[slot].drawn, n, memory_order_relaxed);
    return random_mix((n ^ (uint64_t)slot << 48) + random_key());
}

uint32_t sampler_number(unsigned slot)
{
    return (uint32_t)(next(slot) >> 32);
}

static always_inline double distance(size_t size, unsigned slower)
{
    double bytes = (double)(size ? size : 1) * atomic_load_explicit(&per_byte, memory_order_relaxed);
    return bytes / (double)(1u << slower);
}

/* ---- functions of the mathematical library, which the object does not load ---- */

/* 1 - exp(-x) for x >= 0: the series for small x, and f(2x) = f(x) * (2 - f(x)). The error is below 1e-12. */
static double one_less_exp(double x)
{
    unsigned doublings = 0;
    if (x > 40)
        return 1;
    while (x > 0.25) {
        x /= 2;
        doublings++;
    }
    double sum = 0, term = x;
    for (int n = 2; n <= 10; n++) {
        sum += term;
        term *= -x / n;
    }
    for (; doublings; doublings--)
        sum *= 2 - sum;
    return sum;
}

/* A number of the exponential distribution with mean 1: -ln(u), where the bits are those of u, uniform in (0, 1). */
static double exponential(uint64_t bits)
{
    int zeros = __builtin_clzll(bits |= 1);
    double m = (double)(bits << zeros) / 9223372036854775808.0; /* [1, 2) */
    double halves = zeros + 1;
    if (m > 1.4142135623730951) {
        m /= 2;
        halves -= 1;
    }
    double s = (m - 1) / (m + 1), s2 = s * s; /* ln m = 2 artanh s */
    double series = s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9 + s2 * (1.0 / 11)))));
    return halves * 0.6931471805599453 - 2 * s * (1 + series);
}

/* ---- samples ---- */

bool sampler_always(size_t n)
{
    return n >= atomic_load_explicit(&rate, memory_order_relaxed);
}

double sampler_probability(size_t size, unsigned slower)
{
    if (!slower && sampler_always(size))
        return 1;
    return one_less_exp(distance(size, slower));
}

uint32_t sampler_distance(unsigned slot, size_t size, unsigned slower)
{
    if (!slower && sampler_always(size))
        return 0;
    double n = exponential(next(slot)) / distance(size, slower);
    return n < UINT32_MAX - 2 ? (uint32_t)n : UINT32_MAX - 2;
}

void sampler_draw(unsigned slot, unsigned slower)
{
    uint64_t left = 1 + (uint64_t)(exponential(next(slot)) / distance(1, slower));
    atomic_store_explicit(&slots[slot].slower, slower, memory_order_relaxed);
    atomic_store_explicit(&slots[slot].left, left, memory_order_relaxed);
}

unsigned sampler_slower(unsigned slot)
{
    return atomic_load_explicit(&slots[slot].slower, memory_order_relaxed);
}

bool sampler_tick(unsigned slot, size_t size)
{
    uint64_t left = atomic_load_explicit(&slots[slot].left, memory_order_relaxed);
    return (left ^ (left - size)) >> 20;
}

/* To count down is the same as to draw for each byte, because the distribution is memoryless. */
bool sampler_hit(unsigned slot, size_t size)
{
    uint64_t left = atomic_load_explicit(&slots[slot].left, memory_order_relaxed);
    if (unlikely(!left)) {
        sampler_draw(slot, 0);
        left = atomic_load_explicit(&slots[slot].left, memory_order_relaxed);
    }
    atomic_store_explicit(&slots[slot].left, left > size ? left - size : 0, memory_order_relaxed);
    return left <= size;
}
