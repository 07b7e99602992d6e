/* stride_sum: the sum of every 8-byte element --step_bytes apart, over --bytes.
 *
 * The published loop, for (i = 0; i < n; i += stride) sum += array[i], pass after pass: a throughput in which lines,
 * prefetchers, cache sets and translation all have a part. Elements hold their own numbers. --mode listed reads these from a
 * list, in order or shuffled. */
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

struct strides {
    const uint64_t *array;
    uint64_t elements, step, visits;
    const uint32_t *list;            /* element = number * step; NULL: in order, by the loop */
};

#define ONE_BY_ONE(sum) __asm__ volatile("" : "+r"(sum)) /* keep loads separate, also from vectors */

/* [timed: sum] */
TIMED uint64_t sum_every(const uint64_t *array, uint64_t elements, uint64_t step, uint64_t passes)
{
    uint64_t sum = 0;
    for (; passes; passes--)
        for (uint64_t i = 0; i < elements; i += step) {
            sum += array[i];
            ONE_BY_ONE(sum);
        }
    return sum;
}
/* [end] */

/* [timed: listed] */
TIMED uint64_t sum_listed(const uint64_t *array, const uint32_t *list, uint64_t visits, uint64_t step, uint64_t passes)
{
    uint64_t sum = 0;
    for (; passes; passes--)
        for (uint64_t i = 0; i < visits; i++) {
            sum += array[list[i] * step];
            ONE_BY_ONE(sum);
        }
    return sum;
}
/* [end] */

static uint64_t sum_rounds(void *state, uint64_t rounds)
{
    struct strides *s = state;
    return s->list ? sum_listed(s->array, s->list, s->visits, s->step, rounds) : sum_every(s->array, s->elements, s->step, rounds);
}

/* Element i holds i: a pass sums step * (0 + 1 + ... + visits - 1) in any order. */
static uint64_t their_numbers(const void *state, uint64_t rounds)
{
    const struct strides *s = state;
    return rounds * (s->visits % 2 ? s->visits * ((s->visits - 1) / 2) : s->visits / 2 * (s->visits - 1)) * s->step;
}

static uint64_t strided_bytes(const struct config *c) { return c->own[0].given ? c->own[0].value : c->lines * LINE; }

static void check_strides(struct config *c)
{
    uint64_t bytes = strided_bytes(c), lines = round_up(bytes, LINE) / LINE, step = c->own[1].value;
    if (lines != c->lines || bytes % sizeof(uint64_t))
        bad_argument("--bytes %" PRIu64 " takes --lines %" PRIu64 ", its lines of 64 bytes, and is a multiple of 8.", bytes, lines);
    if (step % sizeof(uint64_t) || step > bytes)
        bad_argument("--step_bytes takes a multiple of 8 within the array of %" PRIu64 " bytes, not %" PRIu64 ".", bytes, step);
    if (!strcmp(c->order, "cycle") && strcmp(c->mode, "listed"))
        bad_argument("--order cycle takes --mode listed.");
}

static struct region measure_strides(const struct config *c, const struct arena *a)
{
    uint64_t bytes = strided_bytes(c), step = c->own[1].value, checksum = FNV_BASIS, seed = c->seed;
    struct strides s = {(uint64_t *)a->base, bytes / sizeof(uint64_t), step / sizeof(uint64_t), (bytes + step - 1) / step, NULL};
    also_off_node(a, c->cpu);
    if (!strcmp(c->mode, "listed"))
        s.list = numbers_below(s.visits, !strcmp(c->order, "cycle"), &seed);
    for (uint64_t i = 0; i < s.visits; i++)
        checksum = mix(checksum, s.list ? s.list[i] : i);
    for (uint64_t i = 0; i < s.elements; i++)
        ((uint64_t *)a->base)[i] = i;
    struct region r = measure(c, &(struct work){.state = &s, .run = sum_rounds, .due = their_numbers, .accesses = s.visits});
    r.checksum = checksum;
    return r;
}

static const struct kernel stride_sum = {
    .name = "stride_sum", .orders = {"sequential", "cycle"}, .layouts = {"packed"}, .modes = {"plain", "listed"},
    .check = check_strides, .measure = measure_strides,
    .own = {{.name = "bytes", .least = sizeof(uint64_t), .most = 1ull << 40},
            {.name = "step_bytes", .value = 4096, .least = sizeof(uint64_t), .most = 1ull << 40}}};

#ifndef SESSION
int main(int argc, char **argv) { return measure_alone(&stride_sum, argc, argv); }
#endif
