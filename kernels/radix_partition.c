/* radix_partition: a hash join of tables (rows.h) past the TLB's reach.
 *
 * naive        builds one hash table of R, open addressing at half load, and probes it with S
 * partitioned  partitions R and S by the top --bits of the hash, then joins partition by partition with the same code
 * partition    only partitions: a scatter to 2^bits places
 *
 * --passes 2 splits the bits between two scatters: the radix-cluster of Boncz, Manegold and Kersten (VLDB 1999). ns per
 * access: of joins per row of S; of `partition` per row of R or S. The arena holds 6 arrays of --tuples rows: R, S, their
 * partitions, and a table of two slots a row, also used between two passes. */
#include "plan.h"
#include "rows.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

/* [timed: partition] */
/* Where each partition begins, in rows. */
TIMED void count(struct rows source, uint32_t *cursors, unsigned skip, unsigned bits)
{
    memset(cursors, 0, sizeof *cursors << bits);
    for (uint64_t i = 0; i < source.n; i++)
        cursors[radix(source.at[i].key, skip, bits)]++;
    for (uint32_t p = 0, at = 0, n; p < 1u << bits; p++, at += n) {
        n = cursors[p];
        cursors[p] = at;
    }
}

/* The cursors end where the partitions end. */
TIMED void scatter(struct rows source, struct row *target, uint32_t *cursors, unsigned skip, unsigned bits)
{
    for (uint64_t i = 0; i < source.n; i++)
        target[cursors[radix(source.at[i].key, skip, bits)]++] = source.at[i];
}

/* Stable. Of two passes the first leaves its partitions, by the upper bits, in between; `coarse` holds their ends, NULL for
 * one pass. */
static void partition(struct side *of, struct row *between, uint32_t *coarse, unsigned bits)
{
    uint32_t *ends = of->ends;
    unsigned lower = bits / 2, upper = bits - lower;
    if (!coarse) {
        count(of->rows, ends, 0, bits);
        scatter(of->rows, of->parts.at, ends, 0, bits);
        return;
    }
    count(of->rows, coarse, 0, upper);
    scatter(of->rows, between, coarse, 0, upper);
    for (uint32_t p = 0, begin = 0; p < 1u << upper; begin = coarse[p++], ends += 1u << lower) {
        struct rows part = {between + begin, coarse[p] - begin};
        count(part, ends, upper, lower);
        scatter(part, of->parts.at + begin, ends, upper, lower);
        for (uint32_t fine = 0; fine < 1u << lower; fine++)
            ends[fine] += begin;
    }
}
/* [end] */

/* [timed: join] */
/* r's keys are unique; table has at least two slots a row of r. */
TIMED struct answer join(struct rows r, struct rows s, struct row *table, unsigned skip)
{
    uint64_t slots = 2 * r.n, at;
    struct answer found = {0, 0};
    for (at = 0; at < slots; at++)
        table[at].number = 0; /* free: rows count from 1 */
    for (uint64_t i = 0; i < r.n; i++) {
        at = slot_of(r.at[i].key, skip, slots);
        while (table[at].number)
            at = after(at, slots);
        table[at] = r.at[i];
    }
    for (uint64_t i = 0; i < s.n && slots; i++)
        for (at = slot_of(s.at[i].key, skip, slots); table[at].number; at = after(at, slots))
            if (table[at].key == s.at[i].key) {
                found.pairs++;
                found.sum += table[at].number * s.at[i].number;
                break;
            }
    return found;
}

static struct answer join_parts(const struct side *r, const struct side *s, struct row *table, unsigned bits)
{
    struct answer found = {0, 0};
    for (uint32_t p = 0, r_begin = 0, s_begin = 0; p < 1u << bits; r_begin = r->ends[p], s_begin = s->ends[p++]) {
        struct rows of_r = {r->parts.at + r_begin, r->ends[p] - r_begin}, of_s = {s->parts.at + s_begin, s->ends[p] - s_begin};
        struct answer more = join(of_r, of_s, table, bits);
        found.pairs += more.pairs;
        found.sum += more.sum;
    }
    return found;
}
/* [end] */

struct job {
    struct side r, s;
    struct row *table;
    struct answer due;
    uint32_t *coarse, room_for_coarse[1 << (MOST_BITS + 1) / 2];
    unsigned bits;
    int joins;
    uint64_t seed, checksum;
};

static struct job j; /* many points of a mapping join the same rows */

static uint64_t is_wrong(const struct job *j, struct answer found) { return found.pairs != j->due.pairs || found.sum != j->due.sum; }

static uint64_t naive_rounds(void *state, uint64_t rounds)
{
    struct job *j = state;
    uint64_t wrong = 0;
    for (; rounds; rounds--)
        wrong += is_wrong(j, join(j->r.rows, j->s.rows, j->table, 0));
    return wrong;
}

static uint64_t partition_anew(struct job *j, struct side *of)
{
    wipe_spots(of);
    partition(of, j->table, j->coarse, j->bits);
    return wrong_spots(of);
}

static uint64_t partition_rounds(void *state, uint64_t rounds)
{
    struct job *j = state;
    uint64_t wrong = 0;
    for (; rounds; rounds--) {
        wrong += partition_anew(j, &j->r) + partition_anew(j, &j->s);
        if (j->joins)
            wrong += is_wrong(j, join_parts(&j->r, &j->s, j->table, j->bits));
    }
    return wrong;
}

static uint64_t none_is_wrong(const void *state, uint64_t rounds) { return (void)state, (void)rounds, 0; }

/* ns a row of counting alone: the median of three. */
static double histogram_ns(struct job *j)
{
    double ns[3];
    for (int i = 0; i < 3; i++) {
        uint64_t t0 = now_ns();
        count(j->r.rows, j->r.ends, 0, j->bits);
        ns[i] = (double)(now_ns() - t0) / (double)j->r.rows.n;
    }
    return median(ns, 3);
}

static struct arena map_rows(const struct config *c)
{
    j.r.rows.at = NULL; /* the last rows may have been at these addresses */
    return map_arena(c);
}

static void place_rows(const struct config *c, const struct arena *a)
{
    struct row *at = (struct row *)a->base;
    uint64_t tuples = tuples_of(c), room = round_up(tuples, ROWS_A_LINE);
    if (j.r.rows.at == at && j.r.rows.n == tuples && j.seed == c->seed)
        return;
    j.r.rows = (struct rows){at, tuples}, j.s.rows = (struct rows){at + room, tuples};
    j.r.parts = (struct rows){at + 2 * room, tuples}, j.s.parts = (struct rows){at + 3 * room, tuples};
    j.table = at + 4 * room, j.seed = c->seed, j.checksum = FNV_BASIS, j.r.spots = j.s.spots = 0;
    j.due = fill(j.r.rows, j.s.rows, c->seed, &j.checksum);
}

static struct region measure_join(const struct config *c, const struct arena *a)
{
    int naive = !strcmp(c->mode, "naive"), only = !strcmp(c->mode, "partition");
    uint64_t tuples = tuples_of(c);
    also_off_node(a, c->cpu);
    place_rows(c, a);
    j.coarse = c->own[2].value == 2 ? j.room_for_coarse : NULL, j.bits = (unsigned)c->own[1].value, j.joins = !only;
    if (!naive) {
        partition_anew(&j, &j.r);
        partition_anew(&j, &j.s);
        keep_spots(&j.r, c->seed, j.bits, 0);
        keep_spots(&j.s, c->seed, j.bits, 1);
    }
    if (only)
        also("histogram_ns_per_access", histogram_ns(&j));
    struct work work = {.state = &j, .run = naive ? naive_rounds : partition_rounds, .due = none_is_wrong, .accesses = tuples << only};
    struct region r = measure(c, &work);
    r.checksum = j.checksum;
    return r;
}

static const struct kernel radix_partition = {.name = "radix_partition", .orders = {"random"}, .layouts = {"packed"},
    .modes = {"naive", "partitioned", "partition"},
    .own = {{.name = "tuples", .least = LEAST, .most = MOST}, {.name = "bits", .value = 6, .least = 1, .most = MOST_BITS},
            {.name = "passes", .value = 1, .least = 1, .most = 2}},
    .check = check_join, .map = map_rows, .measure = measure_join};

int main(int argc, char **argv) {
    static const struct kernel *const kernels[] = {&radix_partition, NULL};
    return asks_for_plan(argc, argv) ? serve_plan(kernels, argc, argv) : measure_alone(&radix_partition, argc, argv);
}
