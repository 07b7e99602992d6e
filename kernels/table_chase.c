/* table_chase: the cost of a TLB miss by how many page tables of each level its walks go through.
 *
 * The --lines pages are spread evenly over --tables_1 tables of the lowest level, these over --tables_2 and these over
 * --tables_3. All are the same eight pages of memory, so time is translation's alone. Past the TLB's reach each visit walks
 * from the lowest level whose entry a page-structure cache holds.
 *
 * A page's entry has a cache line to itself, on a drawn line and place (the page number's lowest bits select a set of the
 * TLB); so a level's entries take as many lines however many tables they are in. --mode even fills each table from its first
 * entry on. */
#include "plan.h"
#include "tables.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

struct visits {
    const uint64_t *address;       /* less STANDING */
    uint64_t visits, standing;
};

/* [timed: walks] Adds the visits made to what the last load brought, for walk_rounds() to take off again. */
TIMED uint64_t follow_addresses(const uint64_t *address, uint64_t visits, uint64_t loaded)
{
    uint64_t i = 0;
#define HOP(k) loaded = *(const uint64_t *)(address[i + k] + loaded);
    for (; i + 8 <= visits; i += 8) {
        HOP(0) HOP(1) HOP(2) HOP(3) HOP(4) HOP(5) HOP(6) HOP(7)
    }
    for (; i < visits; i++)
        HOP(0)
    return loaded + i;
}
/* [end] */

/* The first hop reads the second word, so that an empty loop returns something else. */
static uint64_t walk_rounds(void *state, uint64_t rounds)
{
    struct visits *v = state;
    for (; rounds; rounds--)
        v->standing = follow_addresses(v->address, v->visits, v->standing + 8) - v->visits;
    return v->standing;
}

static uint64_t always_standing(const void *state, uint64_t rounds)
{
    (void)state, (void)rounds;
    return STANDING;
}

/* cycle: one shuffled order, repeated until the call costs nothing. random: four draws a page, at least 65,536, among all
 * pages or half of them among the first --hot, which shows what a TLB replaces. Page i of a run of eight uses a line in cache
 * sets of its own. checksum: of the pages' numbers from `base` on. */
static struct visits place_visits(const struct config *c, const struct tables *t, const uint64_t *page, uint64_t base, uint64_t *seed,
                                  uint64_t *checksum)
{
    uint64_t hot = c->own[LEVELS].given ? c->own[LEVELS].value : c->lines, drawn = c->lines * 4 > 1 << 16 ? c->lines * 4 : 1 << 16;
    uint64_t n = !strcmp(c->order, "random") ? drawn : c->lines, times = 4096 / n + 1, *address = room_for(n * times, sizeof *address, "visits");
    uint32_t *visit = room_for_visits(n);
    for (uint64_t i = 0; i < n; i++)
        visit[i] = (uint32_t)(n != c->lines ? next_random(seed, next_random(seed, 2) ? hot : c->lines) : i);
    if (n == c->lines)
        shuffle(visit, n, 1, seed);
    *checksum = FNV_BASIS;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = page[visit[i]];
        *checksum = mix(*checksum, (at - base) / t->page);
        address[i] = at + at / t->page % EIGHT * EIGHT * LINE - STANDING;
    }
    for (uint64_t i = n; i < n * times; i++)
        address[i] = address[i - n];
    free_room(visit);
    return (struct visits){address, n * times, STANDING};
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct tables tables;
static uint64_t *page, seed_of_visits;

static void check_tables(struct config *c)
{
    if (c->pages->source != FROM_BASE || c->stride_pages != 1)
        bad_argument("table_chase takes --pages 4k and no --stride-pages.");
    if (c->own[LEVELS].given && (strcmp(c->order, "random") || c->own[LEVELS].value > c->lines))
        bad_argument("--hot takes --order random and as many pages as there are at the most.");
    tables = tables_of(c);
}

static struct arena map_tables(const struct config *c)
{
    struct arena a = reserve_tables(c, &tables);
    seed_of_visits = c->seed;
    page = place_pages(&tables, (uint64_t)a.base, &seed_of_visits);
    map_pages(&tables, page);
    return a;
}

static struct region measure_walks(const struct config *c, const struct arena *a)
{
    uint64_t checksum;
    struct visits v = place_visits(c, &tables, page, (uint64_t)a->base, &seed_of_visits, &checksum);
    qsort(page, c->lines, sizeof *page, by_address);
    for (uint64_t i = 0; i < c->lines; i++)
        (void)*(volatile uint64_t *)page[i];
    struct region r = measure(c, &(struct work){.state = &v, .run = walk_rounds, .due = always_standing, .accesses = v.visits});
    r.checksum = checksum;
    return r;
}

static const struct kernel table_chase = {.name = "table_chase", .orders = {"cycle", "random"}, .layouts = {"alias"},
    .modes = {"random", "even"},
    .own = {{.name = "tables_1", .value = 1, .least = 1, .most = 1ull << 32}, {.name = "tables_2", .value = 1, .least = 1, .most = 1ull << 32},
            {.name = "tables_3", .value = 1, .least = 1, .most = 1ull << 32}, {.name = "hot", .least = 1, .most = 1ull << 32}},
    .check = check_tables, .map = map_tables, .measure = measure_walks};

int main(int argc, char **argv) { return measure_alone(&table_chase, argc, argv); }
