/* hops.h: a clock for a single hop, and a histogram of its raw readings. The counter (time-stamp counter, or arm64's generic
 * timer) may step by many ticks: by 26, or 10 ns, on Zen 4. Quantiles are less "clock_ns" and exact to 0.4 % (half a bin) and
 * half a step, "clock_step_ns"; means are not rounded to steps. */
#ifndef HOPS_H
#define HOPS_H
#include "region.h"

#define SUB 128         /* bins an octave */
#define BINS (26 * SUB) /* to 2^32 ticks, over a second; the last bin has longer ones */

/* Of two readings around nothing: the mean ticks between them, and the step. */
struct tally { uint64_t bin[BINS], ticks, hops; double clock, step; };

/* Read after all earlier loads and before any later one: RDTSCP waits for older loads, LFENCE holds back younger ones (Intel
 * SDM); on arm64 DSB waits for loads, ISB for the counter. */
static inline uint64_t stamp(void)
{
#ifdef __x86_64__
    uint32_t low, high;
    __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "rcx", "memory");
    return (uint64_t)high << 32 | low;
#else
    uint64_t now;
    __asm__ volatile("dsb ishld\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
    return now;
#endif
}

/* Ticks a ns over so many; over another stretch if they are short for a clock that steps. */
static inline double ticks_per_ns(uint64_t ticks, uint64_t ns)
{
    uint64_t first = stamp(), begin = now_ns();
    while (ns < 1000 * COARSEST_NS) {
        ns = now_ns() - begin;
        ticks = stamp() - first;
    }
    return (double)ticks / (double)ns;
}

static inline uint64_t bin_of(uint64_t ticks)
{
    uint64_t shift = ticks < 2 * SUB ? 0 : 56 - (uint64_t)__builtin_clzll(ticks), bin = shift * SUB + (ticks >> shift);
    return bin < BINS ? bin : BINS - 1;
}

static uint64_t least_of(uint64_t bin) { return bin < 2 * SUB ? bin : (bin % SUB + SUB) << (bin / SUB - 1); }

static inline void count(struct tally *t, uint64_t ticks)
{
    t->ticks += ticks;
    t->hops++;
    t->bin[bin_of(ticks)]++;
}

static double quantile(const struct tally *t, double q)
{
    uint64_t bin = 0, seen = t->bin[0];
    while ((double)seen < q * (double)t->hops && bin < BINS - 1)
        seen += t->bin[++bin];
    return ((double)least_of(bin) + (double)least_of(bin + 1) - 1) / 2;
}

/* UNKNOWN_STEP unless two readings differ that have bins of their own, as of faults none has. */
#define UNKNOWN_STEP (2 * SUB)
static double least_step(const struct tally *t)
{
    uint64_t step = UNKNOWN_STEP, before = UNKNOWN_STEP;
    for (uint64_t bin = 0; bin < UNKNOWN_STEP; bin++)
        if (t->bin[bin]) {
            step = before < bin && bin - before < step ? bin - before : step;
            before = bin;
        }
    return (double)step;
}

static void forget_hops(struct tally *t) { *t = (struct tally){.clock = t->clock, .step = t->step}; }

/* A mean, because a median is a whole number of steps; of the fastest 99 %, because an interrupt takes as long as thousands
 * of readings. */
static void start_tally(struct tally *t)
{
    double ticks = 0, readings = 0;
    for (int i = 0; i < 1 << 16; i++) {
        uint64_t begin = stamp();
        count(t, stamp() - begin);
    }
    for (uint64_t bin = 0; readings < 0.99 * (double)t->hops; readings += (double)t->bin[bin++])
        ticks += (double)t->bin[bin] * (double)least_of(bin);
    t->clock = ticks / readings;
    t->step = least_step(t);
    forget_hops(t);
}

static double mean_ns(const struct tally *t, double ghz) { return ((double)t->ticks / (double)t->hops - t->clock) / ghz; }

static void also_hops(const struct tally *t, double ghz)
{
    static const struct { const char *name; double q; } asked[] = {
        {"p5_ns", 0.05}, {"p25_ns", 0.25}, {"p50_ns", 0.5}, {"p75_ns", 0.75}, {"p95_ns", 0.95}, {"p99_ns", 0.99}, {"p999_ns", 0.999}};
    also("tsc_ghz", ghz);
    also("clock_ns", t->clock / ghz);
    also("clock_step_ns", (least_step(t) < UNKNOWN_STEP ? least_step(t) : t->step) / ghz);
    also("mean_ns", mean_ns(t, ghz));
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        double ticks = quantile(t, asked[i].q) - t->clock;
        also(asked[i].name, ticks > 0 ? ticks / ghz : 0);
    }
}

struct histogram { const struct tally *tally; double ghz; };

static void print_histogram(const void *of)
{
    const struct histogram *h = of;
    const char *comma = "";
    printf(", \"histogram\": [");
    for (uint64_t bin = 0; bin < BINS; bin++)
        if (h->tally->bin[bin]) {
            printf("%s[%.7g, %" PRIu64 "]", comma, (double)least_of(bin) / h->ghz, h->tally->bin[bin]);
            comma = ", ";
        }
    putchar(']');
}
#endif
