/* graph_walk: land on a vertex of 64 bytes, pick one of its four out-edges at random, follow it; ns per access is per hop.
 *
 *   graph_walk --layout packed --order random --lines 16777216 --vertices 16777216 --mode plain
 *
 * plain      --walkers K independent walks in turn, in one thread: as many loads, and page walks, can be in flight
 * blocked    edges stay inside blocks of --block_vertices; every --block_steps hops, on to a random vertex of another block
 * prefetch   a plain walk that knows its path beforehand and asks for the vertex --distance hops ahead (0: for none)
 * --layout spread puts each vertex on a page of its own: the same walk on 64 times the pages (of 4 KiB).
 *
 * --per_hop 1 reads a serialised clock before and after each hop and keeps a histogram of the differences: from it, less what
 * two readings around nothing differ by ("clock_ns"), "p5_ns" to "p999_ns" and "mean_ns". ns per access is then of all the time.
 *
 * Elsewhere in this book no random number is drawn while time runs. Here it is, once for all walkers: picks made beforehand would
 * be an array with a share of the caches, and picks made of the vertex a walk that falls into a cycle of about sqrt(vertices)
 * hops. A draw waits for no load, and of a load's address it decides two bits. */
#include "nodes.h"
#include "walk.h"

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

/* A loop for each number of walkers: with up to eight, each has a register; with more, some stand in the first cache. */
__attribute__((noinline)) static void walk_on(const struct vertex *line, struct walk *w, uint64_t turns)
{
#define WITH(k) case k: turns_of(line, w, turns, k); break;
#define WITH_8(k) WITH(k) WITH(k + 1) WITH(k + 2) WITH(k + 3) WITH(k + 4) WITH(k + 5) WITH(k + 6) WITH(k + 7)
    switch (w->walkers) { WITH_8(1) WITH_8(9) WITH_8(17) WITH_8(25) }
}

/* [timed: prefetch] */
__attribute__((noinline)) static void walk_ahead(const struct vertex *line, struct walk *w, const uint32_t *ahead, uint64_t turns)
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
__attribute__((noinline)) static void walk_clocked(const struct vertex *line, struct walk *w, uint64_t turns)
{
    for (; turns; turns--) {
        const uint32_t *edge = line[w->at[0]].edge + (draw(&w->state) & 3);
        __asm__ volatile("" : "+r"(edge)); /* all but the load is done before the clock is read */
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

/* What a hop takes at the least: the same loop over a graph of four vertices, which the first cache holds. */
static double four_vertices_ns(const struct walk *as, uint64_t seed)
{
    static struct vertex four[4] __attribute__((aligned(64)));
    struct graph g = plan_graph(four, places_in(1, LINE, LINE), 4, 4, &seed);
    struct walk w = {.graph = &g, .walkers = as->walkers, .segment = UINT64_MAX, .left = UINT64_MAX};
    double ns[16];
    link_vertices(&g, 0, 4);
    for (int i = -1; i < 16; i++) { /* the first for warmth */
        uint64_t t0 = now_ns(), turns = (1ull << 16) / (uint64_t)w.walkers;
        walk(&w, turns);
        ns[i < 0 ? 0 : i] = (double)(now_ns() - t0) / (double)(turns * (uint64_t)w.walkers);
    }
    return median(ns, 16);
}

/* The walk in batches of so many turns behind perf's gate; the last one is walked again and must end where it ended. */
static void time_batches(const struct config *c, struct walk *w, uint64_t turns, struct region *r)
{
    struct walk again = *w;
    open_region(c, r);
    for (uint64_t t0; r->batches < BATCHES; add_batch(r, now_ns() - t0, turns * (uint64_t)w->walkers)) {
        again = *w;
        t0 = now_ns();
        walk(w, turns);
    }
    close_region(c, r);
    retrace(&again, turns, NULL);
    must_stand(w, &again);
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"random", NULL}, *const layouts[] = {"packed", "spread", NULL},
                      *const modes[] = {"plain", "blocked", "prefetch", NULL};
    struct own own[] = {{.name = "vertices", .least = 4, .most = 1 << 29},
                        {.name = "walkers", .value = 1, .least = 1, .most = MOST_WALKERS},
                        {.name = "block_vertices", .least = 4, .most = 1 << 29},
                        {.name = "block_steps", .value = 1024, .least = 1, .most = 1 << 30},
                        {.name = "distance", .value = 8, .least = 0, .most = AHEAD},
                        {.name = "per_hop", .least = 0, .most = 1}, {.name = NULL}};
    static struct tally tally;
    struct config c = parse_more(argc, argv, "graph_walk", orders, layouts, modes, own);
    int blocked = c.mode == modes[1], ahead = c.mode == modes[2], per_hop = (int)own[5].value, walkers = (int)own[1].value;
    uint64_t vertices = c.lines, block = blocked ? own[2].value : vertices, seed = c.seed;
    uint64_t most = c.packed ? own[0].most : (own[0].most * 8) / (base_page() * c.stride_pages / LINE); /* a line's number has 32 bits */
    if ((own[0].given && own[0].value != vertices) || vertices & (vertices - 1) || vertices < 4 || vertices > most)
        bad_argument("--vertices takes a power of two from 4 to %" PRIu64 ", and as many --lines.", most);
    if (block & (block - 1) || !block || block > vertices || (!blocked && (own[2].given || own[3].given)))
        bad_argument("--mode blocked, and no other, takes --block_vertices, a power of two up to --vertices, and --block_steps.");
    if ((walkers > 1 && (ahead || per_hop)) || (ahead && per_hop) || (own[4].given && !ahead))
        bad_argument("--distance takes --mode prefetch; --per_hop 1 takes another mode; and each of the two takes one walker.");
    static struct cpus allowed;
    allowed = allowed_cpus(); /* before pin() narrows them to one */
    c.cpu = pin(c.cpu);
    struct arena a = reserve(&c);
    lay_arena(&c, &a);
    struct graph g = plan_graph(a.base, places_in(c.packed, a.stride, a.page), vertices, block, &seed);
    uint64_t t0 = now_ns(), threads = on_all_cpus(1, &g, &a, &allowed);
    on_all_cpus(0, &g, &a, &allowed);
    also("prepare_graph_ns", (double)(now_ns() - t0));
    also("prepare_threads", (double)threads);
    also_off_node(&a, c.cpu);

    /* Hops of a random walk are exchangeable once the caches are warm, so of a large graph a part is timed (placement.h). */
    double caches = (double)lines_to_warm(&c);
    uint64_t required = hops_for(vertices, PART * (per_hop ? TAIL : 1)), room = hops_for(vertices, PATHS * caches) + (1 << 18);
    struct walk w = {.graph = &g, .walkers = walkers, .distance = ahead ? (int)own[4].value : 0,
                     .segment = blocked ? own[3].value : ahead ? room : UINT64_MAX};
    for (int k = 0; k < walkers; k++)
        w.at[k] = stand(&g, draw(&seed) & (vertices - 1));
    w.state = w.path_state = seed;
    w.left = w.segment;
    struct walk early = w;
    uint64_t checksum = retrace(&early, 4096, NULL);
    w.path = ahead ? record_path(&w) : NULL;
    if (per_hop)
        start_tally(w.tally = &tally);
    else if (!ahead)
        also("four_vertices_ns_per_access", four_vertices_ns(&w, c.seed));
    walk(&w, 4096);
    must_stand(&w, &early);
    uint64_t warm = hops_for(vertices, caches) / (uint64_t)walkers + 4096, begin = now_ns(), fastest = UINT64_MAX;
    also("warm_hops", (double)(warm * (uint64_t)walkers));
    do { /* 5 ms at the least, as in measure() */
        uint64_t from = now_ns();
        walk(&w, warm);
        from = now_ns() - from;
        fastest = from < fastest ? from : fastest;
    } while (now_ns() - begin < 5000000);
    verify_backing(&c, &a);
    struct region r = {.batches = 0};
    sample_clock(&r);
    double turns = (double)c.region_ns / (double)fastest * (double)warm, least = (double)required / walkers;
    uint64_t batch = (uint64_t)((turns > least ? turns : least) / BATCHES) + 1;
    walk(&w, 4096); /* what stood between is out of the first caches again */
    forget_hops(&tally);
    also("distinct_lines_expected", expected_lines(&g, (double)(batch * BATCHES * (uint64_t)walkers), blocked ? (double)w.segment : 0));
    uint64_t ticks = stamp(), ns = now_ns();
    time_batches(&c, &w, batch, &r);
    double ghz = (double)(stamp() - ticks) / (double)(now_ns() - ns);
    sample_clock(&r);
    verify_backing(&c, &a);
    if (per_hop)
        also_hops(&tally, ghz);
    return report(&c, &a, &r, checksum, per_hop ? print_histogram : NULL, &(struct histogram){&tally, ghz});
}
