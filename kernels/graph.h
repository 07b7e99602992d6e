/* graph.h: a graph of 64-byte vertices with four out-edges each: made ready by all CPUs at once, and checked before its use.
 *
 * Edges are vertex numbers. Edge 0 of all vertices of a block is a linear congruential generator on the block's numbers, a
 * power of two of them: by Hull and Dobell (1962) it has the full period if MULTIPLIER is 1 mod 4 and `step` odd, so each
 * vertex leads to every other one of its block. That is proved by looking at edge 0 alone, where a search of the graph would
 * take minutes. Edges 1 to 3 are random and independent. A block is the whole graph where a walk need not stay near.
 *
 * Packed, vertex v stands on line v. Spread, each has a page to itself, as a line of a chase has, and what an edge says is the
 * line: a walk of either follows the same vertices by the same loop, on 64 times the pages (of 4 KiB). */
#ifndef GRAPH_H
#define GRAPH_H
#include "placement.h"
#include "region.h"
#include <sys/syscall.h>

#define MULTIPLIER 1664525ull
#define MOST_THREADS 256 /* more would wait for memory */
#define CHUNK (1ull << 19) /* bytes faulted in and then filled: as much as stays in a second-level cache in between */

struct vertex { uint32_t edge[4], rest[12]; };
struct graph { struct vertex *line; struct places places; uint64_t vertices, block, key, step; };

static inline uint32_t stand(const struct graph *g, uint64_t v) { return (uint32_t)(line_offset(&g->places, v) / LINE); }
static inline uint64_t vertex_on(const struct graph *g, uint64_t line) { return line / (g->places.stride / LINE); }

/* Any thread can fill any part: vertex v has the generator's numbers 2v and 2v + 1 behind `key`. */
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

/* How many vertices have an edge that leaves their block, or are not followed by the next one of the cycle. */
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

struct part {
    const struct graph *graph;
    const struct arena *arena;
    uint64_t from, to, chunk;    /* bytes of the arena */
    uint64_t checked, wrong;     /* vertices */
    int fill, error;                 /* errno of what failed */
    pthread_t thread;
};

static void *prepare_part(void *given)
{
    struct part *p = given;
    char *base = p->arena->base;
    for (uint64_t at = p->from; at < p->to && !p->error; at += p->chunk) {
        uint64_t end = p->to - at < p->chunk ? p->to : at + p->chunk;
        uint64_t apart = p->graph->places.stride, first = at / apart, last = end / apart;
        last = last < p->graph->vertices ? last : p->graph->vertices; /* the last page may hold more lines */
        if (!p->fill) {
            p->wrong += count_wrong(p->graph, first, last);
            p->checked += last > first ? last - first : 0;
        } else if (madvise(base + at, end - at, MADV_POPULATE_WRITE) && errno != EINVAL) {
            p->error = errno;
        } else {
            for (uint64_t i = at; i < end; i += p->arena->stride) /* EINVAL, an older kernel's: faulted in here */
                *(volatile char *)(base + i) = 1;
            link_vertices(p->graph, first, last);
        }
    }
    return NULL;
}

/* On this CPU's node, page table included, whichever CPU writes first. */
static inline void stay_on_this_node(void)
{
    unsigned node = 0, own;
    if (!syscall(SYS_getcpu, &own, &node, NULL) && node < 64) {
        unsigned long mask = 1ul << node;
        syscall(SYS_set_mempolicy, 1 /* MPOL_PREFERRED */, &mask, 64ul);
    }
}

/* Fault the arena in and fill it, or check it, by a thread on each allowed CPU that ends here; how many there were. */
static uint64_t on_all_cpus(int fill, const struct graph *g, const struct arena *a, const struct cpus *allowed)
{
    static struct part part[MOST_THREADS];
    uint64_t chunk = a->page > CHUNK ? a->page : CHUNK, chunks = round_up(a->bytes, chunk) / chunk;
    uint64_t threads = (uint64_t)allowed->count, wrong = 0, lacking = fill ? 0 : g->vertices;
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    threads = threads > chunks ? chunks : threads;
    int error = 0;
    stay_on_this_node();
    for (uint64_t i = 0; i < threads; i++) {
        uint64_t to = chunks * (i + 1) / threads * chunk;
        part[i] = (struct part){.graph = g, .arena = a, .from = chunks * i / threads * chunk, .to = to < a->bytes ? to : a->bytes,
                                .chunk = chunk, .fill = fill};
        start_on(allowed->number[i], &part[i].thread, prepare_part, &part[i]);
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(part[i].thread, NULL);
        wrong += part[i].wrong;
        lacking -= part[i].checked;
        error = part[i].error ? part[i].error : error;
    }
    if (error)
        unavailable(pool_page ? "pool-empty" : "memory-short", "%" PRIu64 " bytes could not be faulted in: %s", a->bytes, strerror(error));
    if (wrong || lacking)
        unavailable("kernel-garbage", "%" PRIu64 " vertices lead out of their block or not to the next one of its cycle, %" PRIu64
                    " were not looked at", wrong, lacking);
    return threads;
}
#endif
