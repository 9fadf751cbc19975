#include "profile/chance.h"
#include "config/config.h"
#include "os/clock.h"
#include "os/random.h"

static _Atomic uint64_t rate;

void chance_set(uint64_t bytes)
{
    atomic_store_explicit(&rate, bytes, memory_order_relaxed);
}

static double distance(size_t size, unsigned mean)
{
    double bytes = (double)(atomic_load_explicit(&rate, memory_order_relaxed) << 3 * mean);
    return (double)(size ? size : 1) / bytes;
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

/* A number of the exponential distribution with mean 1: -ln(u) for u uniform in (0, 1]. */
static double exponential(void)
{
    uint64_t bits = random_next() | 1;
    int zeros = __builtin_clzll(bits);
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

double chance_of(size_t size, unsigned mean)
{
    return one_less_exp(distance(size, mean));
}

bool chance_hit(size_t size, unsigned mean)
{
    return exponential() < distance(size, mean);
}

uint32_t chance_distance(size_t size, unsigned mean)
{
    double n = exponential() / distance(size, mean);
    return n < UINT32_MAX - 1 ? (uint32_t)n : UINT32_MAX - 1;
}

/* By rejection. For short spans most uniform numbers are accepted, for long ones most of the distribution's. */
uint32_t chance_distance_below(size_t size, unsigned mean, uint32_t span)
{
    double step = distance(size, mean);
    for (int i = 0; i < 100; i++) {
        if (step * span > 1) {
            uint32_t n = chance_distance(size, mean);
            if (n < span)
                return n;
            continue;
        }
        uint32_t n = (uint32_t)((random_next() >> 32) * (uint64_t)span >> 32);
        if (exponential() >= step * n)
            return n;
    }
    return span - 1; /* practically never: each try fails with a probability of at most 0.63 */
}

/* ---- cost ---- */

/*
 * Two slots may share an entry, and two threads may update it at once: a lost update only delays a change. The entry
 * is looked at for each sample and, while the mean is raised, at each draw, so that it also falls when no samples
 * come.
 */
#define PACES     64
#define WINDOW_MS 16 /* the shortest time after which the mean falls */

static struct {
    _Atomic uint32_t since_ms, spent_us;
    _Atomic uint32_t mean;
} cache_aligned paces[PACES];

static void begin_window(unsigned i, uint32_t now, unsigned mean)
{
    atomic_store_explicit(&paces[i].mean, mean, memory_order_relaxed);
    atomic_store_explicit(&paces[i].spent_us, 0, memory_order_relaxed);
    atomic_store_explicit(&paces[i].since_ms, now, memory_order_relaxed);
}

/* The next smaller mean takes eight times as many samples, so it is chosen when these would still be cheap enough. */
static void reconsider(unsigned i, uint32_t now)
{
    uint64_t cost = sheaf_config.profile_cost, spent = atomic_load_explicit(&paces[i].spent_us, memory_order_relaxed);
    uint32_t elapsed = now - atomic_load_explicit(&paces[i].since_ms, memory_order_relaxed);
    unsigned mean = atomic_load_explicit(&paces[i].mean, memory_order_relaxed);
    uint64_t allowed = cost * (elapsed > WINDOW_MS ? elapsed : WINDOW_MS); /* microseconds: per mille of ms */
    if (!cost)
        begin_window(i, now, 0);
    else if (spent > allowed && mean < CHANCE_MEANS - 1)
        begin_window(i, now, mean + 1);
    else if (elapsed >= WINDOW_MS)
        begin_window(i, now, mean && 8 * spent < allowed ? mean - 1 : mean);
}

unsigned chance_mean(unsigned slot)
{
    unsigned i = slot % PACES, mean = atomic_load_explicit(&paces[i].mean, memory_order_relaxed);
    if (likely(!mean))
        return 0;
    reconsider(i, clock_ms());
    return atomic_load_explicit(&paces[i].mean, memory_order_relaxed);
}

void chance_spent(unsigned slot, uint64_t ns)
{
    unsigned i = slot % PACES;
    atomic_fetch_add_explicit(&paces[i].spent_us, (uint32_t)(ns / 1000 + 1), memory_order_relaxed);
    reconsider(i, clock_ms());
}
