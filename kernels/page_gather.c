/* page_gather: the throughput of independent loads, one cache line a page, in a shuffled but stable order.
 *
 *   page_gather --pages 4k --layout spread --lines 4096
 *
 * The loop of the published numpy script, arr[indices].sum(): all addresses are known beforehand, so the core keeps
 * many loads, and as many page walks as it has walkers, in flight. ns per access is therefore not a latency. */
#include "nodes.h"
#include "placement.h"

struct gather {
    const char *base;
    const int64_t *index; /* byte offsets, eight bytes each, as numpy's int64 indices are */
    uint64_t lines;
};

/* [timed] */
__attribute__((noinline)) static uint64_t gather(const char *base, const int64_t *index, uint64_t lines, uint64_t rounds)
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

static uint64_t one_each(const void *state, uint64_t rounds) /* every byte is 1 */
{
    return rounds * ((const struct gather *)state)->lines;
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", "sequential", NULL}, *const layouts[] = {"spread", "packed", NULL};
    struct config c = parse_arguments(argc, argv, "page_gather", orders, layouts);
    c.cpu = pin(c.cpu);
    struct arena a = map_arena(&c);
    also_off_node(&a, c.cpu);
    uint64_t checksum;
    int64_t *index = offsets_of(places_in(c.packed, a.stride, a.page), c.lines, !strcmp(c.order, "cycle"), c.seed, &checksum);
    for (uint64_t i = 0; i < c.lines; i++)
        a.base[index[i]] = 1;
    struct gather g = {a.base, index, c.lines};
    struct work work = {.state = &g, .run = gather_rounds, .due = one_each, .accesses = c.lines};
    struct region r = measure(&c, &a, &work);
    return report(&c, &a, &r, checksum, NULL, NULL);
}
