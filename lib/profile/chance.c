#include "profile/chance.h"
#include "config/config.h"
#include "os/clock.h"
#include "os/random.h"

static _Atomic double per_byte; /* 1 / SHEAF_PROFILE: the chance of each byte with the smallest mean */

static always_inline double distance(size_t size, unsigned mean)
{
    static const double less_often[CHANCE_MEANS] = {1, 1.0 / 8, 1.0 / 64, 1.0 / 512};
    return (double)(size ? size : 1) * less_often[mean] * atomic_load_explicit(&per_byte, memory_order_relaxed);
}

/* ---- what each slot has ---- */

/*
 * Two slots may share an entry, and two threads may update it at once. A lost update delays a change of the mean,
 * lets two allocations use the same random number, or leaves the bytes of one uncounted.
 */
#define PACES 128
static struct {
    _Atomic uint32_t since_ms, spent_us;
    _Atomic uint32_t mean;
    _Atomic uint64_t drawn; /* random numbers */
    _Atomic uint64_t left;  /* bytes of requests until chance_hit() samples one, the byte that does so included;
                             * 0: not drawn yet */
} cache_aligned paces[PACES];

void chance_forget(void)
{
    for (unsigned i = 0; i < PACES; i++)
        if (atomic_load_explicit(&paces[i].left, memory_order_relaxed)) /* a write would copy the page */
            atomic_store_explicit(&paces[i].left, 0, memory_order_relaxed);
}

void chance_set(uint64_t bytes)
{
    atomic_store_explicit(&per_byte, 1 / (double)bytes, memory_order_relaxed);
    chance_forget();
}

/* A sequence of its own for each slot: slow paths of several CPUs do not wait for a shared counter. */
static always_inline uint64_t next(unsigned slot)
{
    uint64_t i = slot % PACES, n = atomic_load_explicit(&paces[i].drawn, memory_order_relaxed) + 1;
    atomic_store_explicit(&paces[i].drawn, n, memory_order_relaxed);
    return random_mix((n ^ i << 56) + random_key());
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

/* A lower bound of exponential(bits), without a division: -ln(u) >= 1 - u. */
static always_inline double exponential_least(uint64_t bits)
{
    return (double)(int64_t)(~bits >> 1) / 9223372036854775808.0;
}

static always_inline bool exponential_reaches(uint64_t bits, double x)
{
    return likely(exponential_least(bits) >= x) || exponential(bits) >= x;
}

/* ---- samples ---- */

double chance_of(size_t size, unsigned mean)
{
    return one_less_exp(distance(size, mean));
}

uint32_t chance_distance(unsigned slot, size_t size, unsigned mean, uint32_t far)
{
    uint64_t bits = next(slot);
    double step = distance(size, mean);
    if (exponential_least(bits) >= step * far)
        return far;
    double n = exponential(bits) / step;
    return n < UINT32_MAX - 1 ? (uint32_t)n : UINT32_MAX - 1;
}

/* By rejection. For short spans most uniform numbers are accepted, for long ones most of the distribution's. */
uint32_t chance_distance_below(unsigned slot, size_t size, unsigned mean, uint32_t span)
{
    double step = distance(size, mean);
    for (int i = 0; i < 100; i++) {
        if (step * span > 1) {
            uint32_t n = chance_distance(slot, size, mean, span);
            if (n < span)
                return n;
            continue;
        }
        uint32_t n = (uint32_t)((next(slot) >> 32) * (uint64_t)span >> 32);
        if (exponential_reaches(next(slot), step * n))
            return n;
    }
    return span - 1; /* practically never: each try fails with a probability of at most 0.63 */
}

/* ---- cost ---- */

/*
 * The entry is looked at for each sample and, while the mean is raised, at every LOOK_EVERY-th number drawn and every
 * 2^LOOK_SHIFT bytes of other requests, so that the mean also falls when no samples come.
 */
#define WINDOW_MS  16 /* the shortest time after which the mean falls */
#define LOOK_EVERY 16
#define LOOK_SHIFT 16

static void begin_window(unsigned i, uint32_t now, unsigned mean)
{
    if (mean != atomic_load_explicit(&paces[i].mean, memory_order_relaxed))
        atomic_store_explicit(&paces[i].left, 0, memory_order_relaxed);
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
    if (!mean || atomic_load_explicit(&paces[i].drawn, memory_order_relaxed) % LOOK_EVERY)
        return mean;
    reconsider(i, clock_ms());
    return atomic_load_explicit(&paces[i].mean, memory_order_relaxed);
}

void chance_spent(unsigned slot, uint64_t ns)
{
    unsigned i = slot % PACES;
    atomic_fetch_add_explicit(&paces[i].spent_us, (uint32_t)(ns / 1000 + 1), memory_order_relaxed);
    reconsider(i, clock_ms());
}

/* ---- requests of the slow paths, and large blocks ---- */

static uint64_t draw_left(unsigned i, unsigned mean)
{
    return 1 + (uint64_t)(exponential(next(i)) / distance(1, mean));
}

/* `left` is 0, or at most `size`. */
static noinline_cold bool reach(unsigned i, size_t size, unsigned mean, uint64_t left)
{
    if (!left)
        left = draw_left(i, mean);
    bool hit = left <= size;
    atomic_store_explicit(&paces[i].left, hit ? draw_left(i, mean) : left - size, memory_order_relaxed);
    return hit;
}

/*
 * The bytes until the next sample are drawn once and counted down. That is the same as drawing for each byte, because
 * the distribution is memoryless.
 */
bool chance_hit(unsigned slot, size_t size, unsigned mean)
{
    unsigned i = slot % PACES;
    uint64_t left = atomic_load_explicit(&paces[i].left, memory_order_relaxed), rest = left - size;
    if (unlikely(left <= size))
        return reach(i, size, mean, left);
    atomic_store_explicit(&paces[i].left, rest, memory_order_relaxed);
    if (unlikely(mean && (left ^ rest) >> LOOK_SHIFT))
        reconsider(i, clock_ms());
    return false;
}
