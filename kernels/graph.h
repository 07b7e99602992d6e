/* graph.h: a graph of 64-byte vertices with four out-edges each, filled and checked by all CPUs.
 *
 * Edge 0 is a linear congruential generator within a block: with MULTIPLIER 1 mod 4 and `step` odd it has the full period of
 * a power of two (Hull and Dobell 1962), so every vertex reaches every other of its block. Edges 1 to 3 are random. */
#ifndef GRAPH_H
#define GRAPH_H
#include "placement.h"
#include "region.h"

#define MULTIPLIER 1664525ull
#define MOST_THREADS 256 /* more would wait for memory */
#define CHUNK (1ull << 19)   /* bytes that take as long to fill as a thread to start */

struct vertex { uint32_t edge[4], rest[12]; };
struct graph { struct vertex *line; struct places places; uint64_t vertices, block, key, step; };

static inline uint32_t stand(const struct graph *g, uint64_t v) { return (uint32_t)(line_offset(&g->places, v) / LINE); }
static inline uint64_t vertex_on(const struct graph *g, uint64_t line) { return line / (g->places.stride / LINE); }

/* Vertex v uses numbers 2v and 2v + 1 after `key`, so that any thread can fill any part. */
static inline uint64_t draw(uint64_t *state) { return scramble(*state += GOLDEN); }

static inline struct graph plan_graph(void *room, struct places places, uint64_t vertices, uint64_t block, uint64_t *seed)
{
    struct graph g = {room, places, vertices, block, draw(seed), 0};
    g.step = draw(seed) | 1;
    return g;
}

static inline uint64_t cyclic(const struct graph *g, uint64_t v)
{
    uint64_t mask = g->block - 1;
    return (v & ~mask) | ((v * MULTIPLIER + g->step) & mask);
}

static void link_vertices(const struct graph *g, uint64_t v, uint64_t end)
{
    for (uint64_t mask = g->block - 1; v < end; v++) {
        uint64_t two = scramble(g->key + 2 * v * GOLDEN), third = scramble(g->key + (2 * v + 1) * GOLDEN), base = v & ~mask;
        uint32_t *edge = g->line[stand(g, v)].edge;
        edge[0] = stand(g, cyclic(g, v));
        edge[1] = stand(g, base | (two & mask));
        edge[2] = stand(g, base | (two >> 32 & mask));
        edge[3] = stand(g, base | (third & mask));
    }
}

static uint64_t count_wrong(const struct graph *g, uint64_t v, uint64_t end)
{
    uint64_t wrong = g->step % 2 == 0 || MULTIPLIER % 4 != 1;
    for (uint64_t mask = g->block - 1; v < end; v++) {
        const uint32_t *e = g->line[stand(g, v)].edge;
        uint64_t apart = 0;
        for (int k = 0; k < 4; k++)
            apart |= (vertex_on(g, e[k]) ^ v) & ~mask;
        wrong += apart || e[0] != stand(g, cyclic(g, v));
    }
    return wrong;
}

#define PIECE 4096ull /* vertices that a second-level cache holds from filling to checking */
struct part {
    const struct graph *graph;
    uint64_t from, to, wrong;
    pthread_t thread;
};

static void *prepare_part(void *given)
{
    struct part *p = given;
    for (uint64_t v = p->from, end; v < p->to; v = end) {
        end = p->to - v < PIECE ? p->to : v + PIECE;
        link_vertices(p->graph, v, end);
        p->wrong += count_wrong(p->graph, v, end);
    }
    return NULL;
}

static uint64_t make_graph(const struct graph *g)
{
    static struct part part[MOST_THREADS];
    uint64_t chunks = round_up(g->vertices * g->places.stride, CHUNK) / CHUNK, threads = (uint64_t)cpus_given.count;
    uint64_t wrong = 0, lacking = g->vertices;
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    threads = threads > chunks ? chunks : threads;
    for (uint64_t i = 0; i < threads; i++) {
        part[i] = (struct part){.graph = g, .from = g->vertices * i / threads, .to = g->vertices * (i + 1) / threads};
        start_on(cpus_given.number[i], &part[i].thread, prepare_part, &part[i]);
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(part[i].thread, NULL);
        wrong += part[i].wrong;
        lacking -= part[i].to - part[i].from;
    }
    if (wrong || lacking)
        unavailable("kernel-failed", "%" PRIu64 " vertices lead out of their block or not to the next one of its cycle, %" PRIu64
                    " were not looked at", wrong, lacking);
    return threads;
}

/* The last graph; many points may walk it. */
static struct { struct graph graph; uint64_t threads; } made;

static const struct graph *graph_on(const struct arena *a, struct places places, uint64_t vertices, uint64_t block, uint64_t *seed)
{
    uint64_t begin = now_ns();
    struct graph g = plan_graph(a->base, places, vertices, block, seed), *m = &made.graph;
    if (m->line != g.line || m->places.stride != places.stride || m->vertices != vertices || m->block != block || m->key != g.key) {
        made.graph.line = NULL; /* no graph if this fails */
        made.threads = make_graph(&g);
        made.graph = g;
    }
    also("prepare_graph_ns", (double)(now_ns() - begin));
    also("prepare_threads", (double)made.threads);
    return &made.graph;
}
#endif
