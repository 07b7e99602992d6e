/* probe_graph_walk: parts of graph_walk by themselves.
 *
 *   probe_graph_walk VERTICES BLOCK SEED   the four out-edges of each vertex, a line each
 *   probe_graph_walk VERTICES BLOCK        hops, and the lines that a walk is expected to visit in them: in one
 *                                          block, and in stays of 1,000 hops; last, those of a warm-up
 *   probe_graph_walk                       of the ticks on stdin the quantiles, and each bin of the histogram */
#define main kernel_main
#include "../../kernels/graph_walk.c"
#undef main
static struct tally tally;

int main(int argc, char **argv)
{
    if (argc > 3) {
        uint64_t n = strtoull(argv[1], NULL, 10), seed = strtoull(argv[3], NULL, 10);
        struct graph g = plan_graph(aligned_alloc(64, n * LINE), places_in(1, LINE, LINE), n, strtoull(argv[2], NULL, 10), &seed);
        link_vertices(&g, n / 2, n);
        link_vertices(&g, 0, n / 2);
        for (uint64_t v = 0; v < n; v++)
            printf("%u %u %u %u\n", g.line[v].edge[0], g.line[v].edge[1], g.line[v].edge[2], g.line[v].edge[3]);
        return count_wrong(&g, 0, n) != 0;
    }
    if (argc > 2) {
        struct graph g = {.vertices = strtoull(argv[1], NULL, 10), .block = strtoull(argv[2], NULL, 10)};
        for (double hops = 1; hops < 1e9; hops *= 7)
            printf("%.17g %.17g %.17g\n", hops, expected_lines(&g, hops, 0), expected_lines(&g, hops, 1000));
        return printf("%.17g\n", expected_lines(&g, (double)hops_for(g.vertices, 4e6), 0)) < 0;
    }
    unsigned long long ticks;
    static const double asked[] = {0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999};
    while (scanf("%llu", &ticks) == 1)
        count(&tally, ticks);
    for (unsigned i = 0; i < 7; i++)
        printf("%.17g ", quantile(&tally, asked[i]));
    for (uint64_t bin = 0; bin < BINS; bin++)
        if (tally.bin[bin])
            printf("\n%" PRIu64 " %" PRIu64, least_of(bin), tally.bin[bin]);
    return 0;
}
