/* walk.h: a walk of a graph and the lines it is expected to visit. graph_walk.c has the timed loops; retrace() is the same
 * walk hop by hop. */
#ifndef WALK_H
#define WALK_H
#include "graph.h"
#include "hops.h"
#include "nodes.h"

#define MOST_WALKERS 32      /* a draw of 64 bits has two bits for each */
#define AHEAD 256
#define PATHS 4              /* a path repeats after so many times the lines of the caches */
#define TAIL 4               /* a quantile of one hop in a thousand takes more hops than a mean */

struct walk {
    const struct graph *graph;
    struct tally *tally;
    const uint32_t *path;    /* prefetch: `segment` lines, and the first AHEAD again */
    uint64_t state, path_state, segment, left; /* turns to the next jump or until the path repeats; those left */
    uint32_t at[MOST_WALKERS];
    int walkers, distance;
};

/* Jump to a random vertex of another block, which depends on the present one so that loads do not overlap; or restart the
 * path. */
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

/* Walk as described and not as timed; return the vertices' checksum. */
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

/* The path of a prefetching walk; points with equal graph and seed share it. */
static const uint32_t *record_path(const struct walk *w)
{
    static struct { uint64_t key, state, segment, bytes; uint32_t *line; } last;
    struct walk early = *w;
    if (last.line && last.key == w->graph->key && last.state == w->state && last.segment == w->segment)
        return last.line;
    if (last.line)
        munmap(last.line, last.bytes);
    last.bytes = (w->segment + AHEAD) * sizeof *last.line, last.line = NULL; /* no path if this fails */
    uint32_t *path = map_memory(last.bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, "a path");
    madvise(path, last.bytes, MADV_NOHUGEPAGE);
    retrace(&early, w->segment, path);
    memcpy(path + w->segment, path, AHEAD * sizeof *path);
    last.key = w->graph->key, last.state = w->state, last.segment = w->segment, last.line = path;
    return path;
}

/* The share of lines that `hops` hops per line leave unvisited. Not exp(-hops), because independent edges favour some
 * vertices: with one edge of a cycle and Poisson(3) random ones, each handing on a quarter of its vertex's visits, a vertex's
 * share has variance v = (v + 3 (v + 1)) / 16 = 1/4 around 1. This is the Laplace transform of the Gamma distribution with
 * that mean and variance. */
static double unvisited(double hops)
{
    double fourth = 1 / (1 + hops / 4);
    return fourth * fourth * fourth * fourth;
}

/* stay: hops in a block, 0 for one block. Blocks get a Poisson number of stays. */
static double expected_lines(const struct graph *g, double hops, double stay)
{
    double lines = (double)g->vertices, block = (double)g->block, left = 0;
    stay = stay > hops ? hops : stay;
    double stays = stay > 0 ? hops / stay * block / lines : 0;
    if (stay <= 0 || block >= lines || stays > 8) /* so many are as good as their mean */
        return lines * (1 - unvisited(hops / lines));
    double share = 1 - stays / (1 << 20);
    for (int i = 0; i < 20; i++)
        share *= share; /* exp(-stays), within 4e-5 */
    for (int k = 0; k < 64; share *= stays / ++k)
        left += share * unvisited(k * stay / block);
    return lines * (1 - left);
}

/* Hops of a plain walk that visit so many lines, at most 96 % of all. */
static uint64_t hops_for(uint64_t vertices, double distinct)
{
    double lines = (double)vertices, hops = 1;
    distinct = distinct < 0.96 * lines ? distinct : 0.96 * lines;
    while (lines * (1 - unvisited(hops / lines)) < distinct)
        hops *= 1.01;
    return (uint64_t)hops + 1;
}

static inline void check_walk(struct config *c)
{
    const struct own *own = c->own;
    int blocked = !strcmp(c->mode, "blocked"), ahead = !strcmp(c->mode, "prefetch"), per_hop = (int)own[5].value;
    uint64_t vertices = c->lines, block = blocked ? own[2].value : vertices;
    uint64_t most = c->packed ? own[0].most : (own[0].most * 8) / (base_page() * c->stride_pages / LINE); /* a line's number has 32 bits */
    if ((own[0].given && own[0].value != vertices) || vertices & (vertices - 1) || vertices < 4 || vertices > most)
        bad_argument("--vertices takes a power of two from 4 to %" PRIu64 ", and as many --lines.", most);
    if (block & (block - 1) || !block || block > vertices || (!blocked && (own[2].given || own[3].given)))
        bad_argument("--mode blocked, and no other, takes --block_vertices, a power of two up to --vertices, and --block_steps.");
    if ((own[1].value > 1 && (ahead || per_hop)) || (ahead && per_hop) || (own[4].given && !ahead))
        bad_argument("--distance takes --mode prefetch; --per_hop 1 takes another mode; and each of the two takes one walker.");
}

static struct arena map_graph(const struct config *c)
{
    made.graph.line = NULL; /* the last graph may have been at these addresses */
    return map_arena(c);
}

/* Place the walkers on a graph; a pass over it leaves the caches in a known state. */
static struct walk start_walk(const struct config *c, const struct arena *a)
{
    uint64_t vertices = c->lines, seed = c->seed, kept = 4 * largest_cache_bytes(c->cpu) / LINE;
    int blocked = !strcmp(c->mode, "blocked"), ahead = !strcmp(c->mode, "prefetch");
    const struct graph *g = graph_on(a, places_in(c->packed, a->stride, a->page), vertices, blocked ? c->own[2].value : vertices, &seed);
    uint64_t room = hops_for(vertices, PATHS * (double)lines_to_warm(c)) + (1 << 18);
    struct walk w = {.graph = g, .walkers = (int)c->own[1].value, .distance = ahead ? (int)c->own[4].value : 0,
                     .segment = blocked ? c->own[3].value : ahead ? room : UINT64_MAX};
    for (int k = 0; k < w.walkers; k++)
        w.at[k] = stand(g, draw(&seed) & (vertices - 1));
    w.state = w.path_state = seed;
    w.left = w.segment;
    w.path = ahead ? record_path(&w) : NULL;
    for (uint64_t v = kept && kept < vertices ? vertices - kept : 0; v < vertices; v++)
        (void)*(volatile uint32_t *)g->line[stand(g, v)].edge;
    return w;
}
#endif
