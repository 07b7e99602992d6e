/* page_gather: the throughput of independent loads, one cache line a page, in a shuffled but stable order: the published
 * numpy script's arr[indices].sum(). All addresses are known beforehand, so many page walks are in flight. */
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

struct gather {
    const char *base;
    const int64_t *index; /* byte offsets, 8 bytes each like numpy's int64 indices */
    uint64_t lines;
};

/* [timed] */
TIMED uint64_t gather(const char *base, const int64_t *index, uint64_t lines, uint64_t rounds)
{
    uint64_t sum = 0;
    for (; rounds; rounds--)
        for (uint64_t i = 0; i < lines; i++)
            sum += (unsigned char)base[index[i]];
    return sum;
}
/* [end] */

static uint64_t gather_rounds(void *state, uint64_t rounds)
{
    struct gather *g = state;
    return gather(g->base, g->index, g->lines, rounds);
}

static uint64_t gathered_ones(const void *state, uint64_t rounds) /* every byte is 1 */
{
    return rounds * ((const struct gather *)state)->lines;
}

static struct region measure_gather(const struct config *c, const struct arena *a)
{
    uint64_t checksum;
    struct places places = places_in(c->packed, a->stride, a->page);
    also_off_node(a, c->cpu);
    struct gather g = {a->base, offsets_of(places, c->lines, !strcmp(c->order, "cycle"), c->seed, &checksum), c->lines};
    for (uint64_t i = 0; i < c->lines; i++)
        a->base[line_offset(&places, i)] = 1;
    struct region r = measure(c, &(struct work){.state = &g, .run = gather_rounds, .due = gathered_ones, .accesses = c->lines});
    r.checksum = checksum;
    return r;
}

static const struct kernel page_gather = {
    .name = "page_gather", .orders = {"cycle", "sequential"}, .layouts = {"spread", "packed"}, .measure = measure_gather};

#ifndef SESSION
int main(int argc, char **argv) { return measure_alone(&page_gather, argc, argv); }
#endif
