/* page_gather: the throughput of independent loads, one cache line a page, in a shuffled but stable order.
 *
 *   page_gather --pages 4k --layout spread --lines 4096
 *
 * The loop of the published numpy script, arr[indices].sum(): all addresses are known beforehand, so the core keeps
 * many loads, and as many page walks as it has walkers, in flight. ns per access is therefore not a latency. */
#include "harness.h"

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
    return gather(g->base, g->index, g->lines, rounds) - rounds * g->lines; /* every byte is 1 */
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", "sequential", NULL}, *const layouts[] = {"spread", "packed", NULL};
    struct config c = parse_arguments(argc, argv, "page_gather", orders, layouts);
    c.cpu = pin(c.cpu);
    int packed = c.layout[0] == 'p';
    struct arena a = map_arena(&c);
    int64_t *index = malloc(c.lines * sizeof *index);
    if (!index)
        unavailable("memory-short", "no room for %" PRIu64 " indices", c.lines);
    uint64_t seed = c.seed, checksum = 0xCBF29CE484222325ull;
    for (uint64_t i = 0; i < c.lines; i++) {
        index[i] = (int64_t)line_offset(i, packed, a.stride);
        a.base[index[i]] = 1;
    }
    for (uint64_t i = c.lines - 1; c.order[0] == 'c' && i > 0; i--) { /* Fisher-Yates: any order will do, no chain here */
        uint64_t j = next_random(&seed, i + 1);
        int64_t swap = index[i];
        index[i] = index[j];
        index[j] = swap;
    }
    for (uint64_t i = 0; i < c.lines; i++)
        checksum = mix(checksum, (uint64_t)index[i] / (packed ? LINE : a.stride));
    struct gather g = {a.base, index, c.lines};
    if (gather(a.base, index, c.lines, 1) != c.lines)
        unavailable("kernel-garbage", "the gather did not visit every line once");
    return measure(&c, &a, gather_rounds, &g, c.lines, 0, checksum);
}
