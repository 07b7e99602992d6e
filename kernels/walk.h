/* walk.h: what a walk of a graph is: where the walkers stand, what comes after each segment, and which lines it can be expected
 * to visit. The loops that are timed are in graph_walk.c; retrace() is the same walk as it is described. */
#ifndef WALK_H
#define WALK_H
#include "graph.h"
#include "hops.h"

#define MOST_WALKERS 32      /* a draw of 64 bits has two for each */
#define AHEAD 256            /* the most of --distance */
#define PATHS 4              /* a path comes round after so many times the lines that the caches hold, which then hold none of it */
#define TAIL 4               /* a tail of one hop in a thousand takes so many times the hops of a mean */

struct walk {
    const struct graph *graph;
    struct tally *tally;     /* per_hop */
    const uint32_t *path;    /* prefetch: the lines to come, `segment` of them and the first AHEAD again */
    uint64_t state, path_state, segment, left; /* turns until the next jump, or until the path begins again; those left of it */
    uint32_t at[MOST_WALKERS]; /* lines */
    int walkers, distance;
};

/* On to a random vertex of a random other block, which depends on this one, so that no load starts before the one before it;
 * or the path from its beginning. */
static void begin_segment(struct walk *w)
{
    uint64_t block = w->graph->block, others = w->graph->vertices / block - 1;
    w->left = w->segment;
    if (w->path) {
        w->at[0] = w->path[0];
        w->state = w->path_state;
    }
    for (int k = 0; !w->path && k < w->walkers; k++) {
        uint64_t random = draw(&w->state), from = vertex_on(w->graph, w->at[k]) / block;
        uint64_t to = (from + 1 + ((random >> 32) * others >> 32)) & others;
        w->at[k] = stand(w->graph, to * block + (random & (block - 1)));
    }
}

/* The same walk hop by hop, as it is described and not as it is timed. Returns the checksum of the vertices visited. */
static uint64_t retrace(struct walk *w, uint64_t turns, uint32_t *path)
{
    uint64_t checksum = FNV_BASIS;
    for (; turns; turns--) {
        uint64_t random = draw(&w->state);
        for (int k = 0; k < w->walkers; k++, random >>= 2) {
            checksum = mix(checksum, vertex_on(w->graph, w->at[k]));
            if (path)
                *path++ = w->at[k];
            w->at[k] = *(volatile uint32_t *)&w->graph->line[w->at[k]].edge[random % 4];
        }
        if (!--w->left)
            begin_segment(w);
    }
    return checksum;
}

static void must_stand(const struct walk *w, const struct walk *due)
{
    for (int k = 0; k < w->walkers; k++)
        must_be(w->at[k], due->at[k]);
}

/* The lines of a walk's first `segment` turns, and the first AHEAD again. */
static uint32_t *record_path(const struct walk *w)
{
    struct walk early = *w;
    uint32_t *path = malloc((w->segment + AHEAD) * sizeof *path);
    if (!path)
        unavailable("memory-short", "no room for a path of %" PRIu64 " vertices", w->segment);
    retrace(&early, w->segment, path);
    memcpy(path + w->segment, path, AHEAD * sizeof *path);
    return path;
}

/* The share of lines that `hops` hops a line leave unvisited. Not exp(-hops): independent edges lead to some vertices oftener
 * than to others. With one edge of a cycle and Poisson(3) random ones, each of which hands on a quarter of its vertex's visits,
 * a vertex's share of the visits has variance v = (v + 3 (v + 1)) / 16 = 1/4 around 1; and so much does a Gamma distribution
 * with that mean and variance leave (its Laplace transform). */
static double unvisited(double hops)
{
    double fourth = 1 / (1 + hops / 4);
    return fourth * fourth * fourth * fourth;
}

/* Lines that so many hops are expected to visit. stay: hops in a block before the next one, 0 for a graph of one block. On a
 * block falls a Poisson number of stays. */
static double expected_lines(const struct graph *g, double hops, double stay)
{
    double lines = (double)g->vertices, block = (double)g->block, left = 0;
    stay = stay > hops ? hops : stay;
    double stays = stay > 0 ? hops / stay * block / lines : 0;
    if (stay <= 0 || block >= lines || stays > 8) /* so many stays are as good as their mean */
        return lines * (1 - unvisited(hops / lines));
    double share = 1 - stays / (1 << 20);
    for (int i = 0; i < 20; i++)
        share *= share; /* exp(-stays), within 4e-5 */
    for (int k = 0; k < 64; share *= stays / ++k)
        left += share * unvisited(k * stay / block);
    return lines * (1 - left);
}

/* Hops of a plain walk that visit so many lines, or 96 % of all where that is less. */
static uint64_t hops_for(uint64_t vertices, double distinct)
{
    double lines = (double)vertices, hops = 1;
    distinct = distinct < 0.96 * lines ? distinct : 0.96 * lines;
    while (lines * (1 - unvisited(hops / lines)) < distinct)
        hops *= 1.01;
    return (uint64_t)hops + 1;
}
#endif
