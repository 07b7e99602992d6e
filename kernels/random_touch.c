/* random_touch: random single-byte reads over --bytes N bytes, each address drawn just before its load.
 *
 * The loop of the published JMH benchmark, bytes[ThreadLocalRandom.current().nextInt(size)], with its generator. Draws are
 * timed, because an array of indices would take cache and TLB, and timed alone first. --spare_draws K throws K more draws
 * away before each read, as a JVM's loop does more: fewer reads are in flight. */
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

/* One round of warm-up leaves 63 % of the lines of a 64 MiB cache as random reads leave them. */
#define DRAWS (1ull << 20)

struct touch {
    const unsigned char *base;
    uint64_t state, spare;
    uint32_t bound;
};

/* java.util.concurrent.ThreadLocalRandom.nextInt(bound) of OpenJDK 8: nextSeed(), mix32() (MurmurHash3's finaliser, cut to 32 bits),
 * nextInt(). Versions 17 and 25 take the high bits for a power of two, and add twice the thread's number to the constant. */
/* [timed] */
static inline uint32_t next_int(uint64_t *state, uint32_t bound)
{
    for (;;) {
        uint64_t z = *state += 0x9E3779B97F4A7C15ull;
        z = (z ^ z >> 33) * 0xFF51AFD7ED558CCDull;
        uint32_t r = (uint32_t)((z ^ z >> 33) * 0xC4CEB9FE1A85EC53ull >> 32);
        __asm__ volatile("" : "+r"(r)); /* one draw at a time, as in the JVM: compilers would vectorise */
        if (!(bound & (bound - 1)))
            return r & (bound - 1);
        uint32_t u = r >> 1, rest = u % bound;
        if (!((u - rest + (bound - 1)) >> 31)) /* else u is in the last, incomplete run of bound numbers below 2^31 */
            return rest;
    }
}

TIMED uint64_t touch(const unsigned char *base, uint64_t *state, uint32_t bound, uint64_t draws)
{
    uint64_t sum = 0, s = *state;
    for (; draws; draws--)
        sum += base[next_int(&s, bound)];
    *state = s;
    return sum;
}
/* [end] */

TIMED uint64_t touch_after(const unsigned char *base, uint64_t *state, uint32_t bound, uint64_t draws, uint64_t spare)
{
    uint64_t sum = 0, s = *state, thrown = 0;
    for (; draws; draws--) {
        for (uint64_t i = spare; i; i--)
            thrown += next_int(&s, bound);
        sum += base[next_int(&s, bound)];
    }
    __asm__ volatile("" ::"r"(thrown));
    *state = s;
    return sum;
}

TIMED uint64_t generate(uint64_t *state, uint32_t bound, uint64_t draws)
{
    uint64_t sum = 0, s = *state;
    for (; draws; draws--)
        sum += next_int(&s, bound);
    *state = s;
    return sum;
}

static uint64_t touch_rounds(void *state, uint64_t rounds)
{
    struct touch *t = state;
    uint64_t reads = rounds * DRAWS, sum = t->spare ? touch_after(t->base, &t->state, t->bound, reads, t->spare)
                                                    : touch(t->base, &t->state, t->bound, reads);
    return sum;
}

static uint64_t touched_ones(const void *state, uint64_t rounds) /* every byte is 1 */
{
    (void)state;
    return rounds * DRAWS;
}

/* ns of a draw alone: the median of as many rounds as measure() times at most. */
static double generator_ns(uint64_t seed, uint32_t bound)
{
    enum { ROUNDS = 16 };
    double ns[ROUNDS];
    uint64_t sum = generate(&seed, bound, DRAWS);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t t0 = now_ns();
        sum += generate(&seed, bound, DRAWS);
        ns[i] = (double)(now_ns() - t0) / DRAWS;
    }
    if (sum > (ROUNDS + 1) * DRAWS * (bound - 1ull)) /* use the sum, so that no draw is left out */
        unavailable("kernel-failed", "the draws are not below %" PRIu32, bound);
    return median(ns, ROUNDS);
}

static uint64_t array_bytes(const struct config *c) { return c->own[0].given ? c->own[0].value : c->lines * LINE; }

static void check_touch(struct config *c)
{
    uint64_t bytes = array_bytes(c), lines = round_up(bytes, LINE) / LINE;
    if (lines != c->lines || bytes > INT32_MAX)
        bad_argument("--bytes %" PRIu64 " takes --lines %" PRIu64 ", its lines of 64 bytes, and is below 2^31.", bytes, lines);
}

static struct region measure_touch(const struct config *c, const struct arena *a)
{
    uint32_t bytes = (uint32_t)array_bytes(c);
    uint64_t seed = c->seed, checksum = FNV_BASIS;
    also_off_node(a, c->cpu);
    for (int i = 0; i < 4096; i++)
        checksum = mix(checksum, next_int(&seed, bytes));
    also("generator_ns_per_access", generator_ns(c->seed, bytes));
    memset(a->base, 1, a->bytes);
    struct touch t = {(const unsigned char *)a->base, c->seed, c->own[1].value, bytes};
    struct region r = measure(c, &(struct work){.state = &t, .run = touch_rounds, .due = touched_ones, .accesses = DRAWS});
    r.checksum = checksum;
    return r;
}

static const struct kernel random_touch = {
    .name = "random_touch", .orders = {"random"}, .layouts = {"packed"}, .check = check_touch, .measure = measure_touch,
    .own = {{.name = "bytes", .least = 1, .most = INT32_MAX}, /* a draw is a Java int */
            {.name = "spare_draws", .most = 16}}};

#ifndef SESSION
int main(int argc, char **argv) { return measure_alone(&random_touch, argc, argv); }
#endif
