/* graph_walk: pick one of the four out-edges of a 64-byte vertex at random and follow it; ns per access is per hop.
 *
 * plain      --walkers K independent walks in turn in one thread, so that K loads and page walks are in flight
 * blocked    edges stay within blocks of --block_vertices; every --block_steps hops, on to another block
 * prefetch   a plain walk with a known path that prefetches the vertex --distance hops ahead (0: none)
 * --layout spread gives each vertex its own page. --per_hop 1 reads a serialised clock around each hop.
 *
 * Draws are timed: picks made beforehand would take cache, and picks made from the vertex would end in a cycle of about
 * sqrt(vertices) hops. A draw waits for no load. */
#include "plan.h"
#include "walk.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

#define BATCHES 16
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* [timed: plain] A turn: one draw, and one hop of each walker. */
static inline __attribute__((always_inline)) void turns_of(const struct vertex *line, struct walk *w, uint64_t turns, const int walkers)
{
    uint64_t state = w->state;
    uint32_t at[MOST_WALKERS];
    memcpy(at, w->at, sizeof *at * (size_t)walkers);
    for (; turns; turns--) {
        uint64_t random = draw(&state);
        UNROLL
        for (int k = 0; k < walkers; k++)
            at[k] = line[at[k]].edge[random >> 2 * k & 3];
    }
    memcpy(w->at, at, sizeof *at * (size_t)walkers);
    w->state = state;
}
/* [end] */

/* A loop per number of walkers: up to eight have a register each. */
TIMED void walk_on(const struct vertex *line, struct walk *w, uint64_t turns)
{
#define WITH(k) case k: turns_of(line, w, turns, k); break;
#define WITH_8(k) WITH(k) WITH(k + 1) WITH(k + 2) WITH(k + 3) WITH(k + 4) WITH(k + 5) WITH(k + 6) WITH(k + 7)
    switch (w->walkers) { WITH_8(1) WITH_8(9) WITH_8(17) WITH_8(25) }
}

/* [timed: prefetch] */
TIMED void walk_ahead(const struct vertex *line, struct walk *w, const uint32_t *ahead, uint64_t turns)
{
    uint64_t state = w->state;
    uint32_t at = w->at[0];
    for (uint64_t i = 0; i < turns; i++) {
        __builtin_prefetch(&line[ahead[i]]);
        at = line[at].edge[draw(&state) & 3];
    }
    w->at[0] = at;
    w->state = state;
}
/* [end] */

/* [timed: per hop] */
TIMED void walk_clocked(const struct vertex *line, struct walk *w, uint64_t turns)
{
    for (; turns; turns--) {
        const uint32_t *edge = line[w->at[0]].edge + (draw(&w->state) & 3);
        __asm__ volatile("" : "+r"(edge)); /* only the load remains */
        uint64_t begin = stamp();
        w->at[0] = *edge;
        count(w->tally, stamp() - begin);
    }
}
/* [end] */

static void walk(struct walk *w, uint64_t turns)
{
    while (turns) {
        uint64_t now = turns < w->left ? turns : w->left;
        if (w->tally)
            walk_clocked(w->graph->line, w, now);
        else if (w->distance)
            walk_ahead(w->graph->line, w, w->path + (w->segment - w->left) + w->distance, now);
        else
            walk_on(w->graph->line, w, now);
        turns -= now;
        if (!(w->left -= now))
            begin_segment(w);
    }
}

/* Least time of a hop: over four vertices in the first cache. */
static double four_vertices_ns(const struct walk *as, uint64_t seed)
{
    static struct vertex four[4] __attribute__((aligned(64)));
    struct graph g = plan_graph(four, places_in(1, LINE, LINE), 4, 4, &seed);
    struct walk w = {.graph = &g, .walkers = as->walkers, .segment = UINT64_MAX, .left = UINT64_MAX};
    double ns[16];
    link_vertices(&g, 0, 4);
    for (int i = -1; i < 16; i++) {
        uint64_t t0 = now_ns(), turns = (1ull << 16) / (uint64_t)w.walkers;
        walk(&w, turns);
        ns[i < 0 ? 0 : i] = (double)(now_ns() - t0) / (double)(turns * (uint64_t)w.walkers);
    }
    return median(ns, 16);
}

static void time_batches(const struct config *c, struct walk *w, uint64_t turns, struct region *r)
{
    struct walk again = *w;
    open_region(c, r);
    for (uint64_t t0; r->batches < BATCHES; add_batch(r, now_ns() - t0, turns * (uint64_t)w->walkers)) {
        renew_fifo(c);
        again = *w;
        t0 = now_ns();
        walk(w, turns);
    }
    close_region(c, r);
    retrace(&again, turns, NULL);
    must_stand(w, &again);
}

/* Like warm_up(), but in hops, which are exchangeable, so that a part of a large graph is timed. Return ns a turn of the
 * least disturbed walk. */
static double warm_walk(const struct config *c, struct walk *w)
{
    uint64_t turns = hops_for(c->lines, (double)lines_to_warm(c)) / (uint64_t)w->walkers + 4096, begin = now_ns(), fastest = UINT64_MAX;
    also("warm_hops", (double)(turns * (uint64_t)w->walkers));
    do {
        uint64_t from = now_ns();
        walk(w, turns);
        from = now_ns() - from;
        warm_ns += from;
        fastest = from < fastest ? from : fastest;
        renew_fifo(c);
    } while (now_ns() - begin < 5000000);
    if (!fastest)
        clock_is_coarse(0);
    return (double)fastest / (double)turns;
}

static struct region measure_walk(const struct config *c, const struct arena *a)
{
    static struct tally tally;
    static struct histogram histogram;
    struct region r = {.batches = 0};
    int per_hop = (int)c->own[5].value;
    also_off_node(a, c->cpu);
    struct walk w = start_walk(c, a), early = w;
    r.checksum = retrace(&early, 4096, NULL);
    if (per_hop)
        start_tally(w.tally = &tally);
    else if (!w.path)
        also("four_vertices_ns_per_access", four_vertices_ns(&w, c->seed));
    walk(&w, 4096);
    must_stand(&w, &early);
    enter_fifo(c);
    double turns = (double)c->region_ns / warm_walk(c, &w);
    leave_fifo();
    double least = (double)hops_for(c->lines, PART * (per_hop ? TAIL : 1)) / w.walkers;
    uint64_t batch = (uint64_t)((turns > least ? turns : least) / BATCHES) + 1;
    sample_clock(&r);
    enter_fifo(c);
    walk(&w, 4096); /* replace what was displaced from the first caches */
    forget_hops(&tally);
    also("distinct_lines_expected", expected_lines(w.graph, (double)(batch * BATCHES * (uint64_t)w.walkers),
                                                   !strcmp(c->mode, "blocked") ? (double)w.segment : 0));
    uint64_t ticks = stamp(), ns = now_ns();
    time_batches(c, &w, batch, &r);
    histogram = (struct histogram){&tally, (double)(stamp() - ticks) / (double)(now_ns() - ns)};
    leave_fifo();
    sample_clock(&r);
    if (per_hop) {
        also_hops(&tally, histogram.ghz);
        r.more = print_histogram, r.of = &histogram;
    }
    return r;
}

static const struct kernel graph_walk = {.name = "graph_walk", .orders = {"random"}, .layouts = {"packed", "spread"},
    .modes = {"plain", "blocked", "prefetch"},
    .own = {{.name = "vertices", .least = 4, .most = 1 << 29}, {.name = "walkers", .value = 1, .least = 1, .most = MOST_WALKERS},
            {.name = "block_vertices", .least = 4, .most = 1 << 29}, {.name = "block_steps", .value = 1024, .least = 1, .most = 1 << 30},
            {.name = "distance", .value = 8, .least = 0, .most = AHEAD}, {.name = "per_hop", .least = 0, .most = 1}},
    .check = check_walk, .map = map_graph, .measure = measure_walk};

int main(int argc, char **argv) {
    static const struct kernel *const kernels[] = {&graph_walk, NULL};
    return asks_for_plan(argc, argv) ? serve_plan(kernels, argc, argv) : measure_alone(&graph_walk, argc, argv);
}
