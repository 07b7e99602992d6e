/* table_chase: what a miss of the TLB costs by how many page tables of each level its walks go through.
 *   table_chase --lines 8192 --tables_1 1024 --tables_2 16 --tables_3 1
 *
 * --lines pages are spread evenly over --tables_1 tables of the lowest level, these over --tables_2 of the level above, and these over
 * --tables_3, above which are the root's own. All pages are the same eight pages of memory, so that data stay in eight lines and time is
 * translation's alone. With more pages than the TLB holds each visit walks, from the lowest level whose entry a cache of upper entries
 * holds: with more tables of a level than such a cache has entries, a miss costs a load more.
 *
 * A page's entry has a cache line to itself, an upper entry shares one with seven others, and lines are drawn at random: so a level takes
 * as many lines of entries however many tables of eight pages or more they are in. A page's place within its line is drawn too. It is the
 * lowest bits of the page's number, which choose a set of the TLB: in order, it would leave tables of fewer than eight pages only part of
 * the sets, and more misses. --mode even fills each table from its first entry on: pages and tables exactly a power of two apart. */
#include "placement.h"
#include "region.h"

#define STANDING 64ull   /* both words of every line: see follow_draws() of page_chase.c */
#define EIGHT 8          /* entries of a page table to a cache line: 64 bytes of 8; and the pages of memory behind all others */
#define LEVELS 3         /* whose tables are counted; the root is always one */
#define MOST_LINES 1024  /* of a table: 64 KiB of entries */

struct tables {
    uint64_t page, fanout;         /* bytes; entries a table */
    uint64_t at[LEVELS + 1];       /* tables of level n, at[0] the pages */
    uint64_t span[LEVELS + 1];     /* bytes below an entry of level n + 1, span[0] a page's */
    int even;
};

struct visits {
    const uint64_t *address;       /* less STANDING */
    uint64_t visits, standing;
};

/* [timed: walks] Adds the visits made to what the last load brought, for walk_rounds() to take off again. */
__attribute__((noinline)) static uint64_t follow_addresses(const uint64_t *address, uint64_t visits, uint64_t loaded)
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

/* The first hop reads the second word, so that a loop which does nothing returns something else. */
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

/* The addresses of the `n` entries of the table at `from`. Lines are drawn without replacement. A page's entry has a line to itself, at a
 * place drawn anew for each; upper entries fill a line, in order. */
static void place_entries(const struct tables *t, int level, uint64_t from, uint64_t n, uint64_t *to, uint64_t *seed)
{
    int alone = level == 1 && !t->even;
    uint64_t slots = t->fanout / EIGHT, slot[MOST_LINES], a_line = alone ? 1 : EIGHT;
    for (uint64_t i = 0; i < slots; i++)
        slot[i] = i;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t line = k / a_line;
        if (k % a_line == 0 && !t->even) {
            uint64_t other = line + next_random(seed, slots - line), swap = slot[line];
            slot[line] = slot[other];
            slot[other] = swap;
        }
        to[k] = from + (slot[line] * EIGHT + (alone ? next_random(seed, EIGHT) : k % EIGHT)) * t->span[level - 1];
    }
}

/* The first addresses of all pages, in the order of their tables; base: of the room for twice as many tables of the highest level. */
static uint64_t *place_pages(const struct tables *t, uint64_t base, uint64_t *seed)
{
    uint64_t *above = malloc(sizeof *above * t->at[LEVELS]), most = 2 * t->at[LEVELS];
    for (uint64_t i = 0, left = t->at[LEVELS]; above && left; i++) /* of the rooms one in two, each choice as likely as another */
        if (t->even ? i % 2 == 0 : next_random(seed, most - i) < left)
            above[t->at[LEVELS] - left--] = base + i * t->span[LEVELS];
    for (int level = LEVELS; level; level--) {
        uint64_t *below = malloc(sizeof *below * t->at[level - 1]), each = t->at[level - 1] / t->at[level];
        if (!above || !below)
            unavailable("memory-short", "no room for the addresses of %" PRIu64 " pages", t->at[0]);
        for (uint64_t i = 0; i < t->at[level]; i++)
            place_entries(t, level, above[i], each, below + i * each, seed);
        free(above);
        above = below;
    }
    return above;
}

static struct tables tables_of(const struct config *c)
{
    struct tables t = {.page = base_page(), .fanout = base_page() / 8, .at = {c->lines}, .even = !strcmp(c->mode, "even")};
    t.span[0] = t.page;
    for (int level = 1; level <= LEVELS; level++) {
        t.at[level] = c->own[level - 1].value;
        t.span[level] = t.span[level - 1] * t.fanout;
        uint64_t most = level == 1 && !t.even ? t.fanout / EIGHT : t.fanout;
        if (t.at[level - 1] % t.at[level] || t.at[level - 1] / t.at[level] > most)
            bad_argument("--tables_%d takes what divides %" PRIu64 " into parts of %" PRIu64 " at the most, not %" PRIu64 ".", level,
                         t.at[level - 1], most, t.at[level]);
    }
    return t;
}

/* Addresses for twice as many tables of the highest level as there will be, aligned to what one of them spans. */
static struct arena reserve_tables(const struct config *c, const struct tables *t)
{
    uint64_t top = t->span[LEVELS], room = 2 * t->at[LEVELS] * top;
    if (room > (1ull << 62) || t->at[LEVELS] > (1ull << 20))
        unavailable("memory-short", "no address space for %" PRIu64 " tables of the third level", t->at[LEVELS]);
    struct arena a = {.page = t->page, .stride = t->page, .working_set = c->lines * t->page, .bytes = room,
                      .resident = c->lines * t->page, .physical = EIGHT * t->page};
    a.base = (char *)round_up((uint64_t)reserve_addresses(room + top), top);
    return a;
}

/* Runs of neighbouring pages, eight at the most, each a mapping of the same eight pages of memory; every page read once. */
static void map_pages(const struct tables *t, const uint64_t *page)
{
    int fd = memfd_create("tables", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(EIGHT * t->page)))
        unavailable("memory-short", "memfd of %d pages: %s", EIGHT, strerror(errno));
    char *memory = mmap(NULL, EIGHT * t->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        unavailable("memory-short", "%d pages of memory: %s", EIGHT, strerror(errno));
    madvise(memory, EIGHT * t->page, MADV_NOHUGEPAGE);
    /* From the last to the first: neighbours whose memory ascends with them are joined in one entry by some TLBs. */
    for (uint64_t at = EIGHT * t->page; at; at -= LINE)
        ((uint64_t *)(memory + at - LINE))[0] = ((uint64_t *)(memory + at - LINE))[1] = STANDING;
    for (uint64_t i = 0, run; i < t->at[0]; i += run) {
        for (run = 1; run < EIGHT && i + run < t->at[0] && page[i + run] == page[i] + run * t->page; run++)
            ;
        if (mmap((void *)page[i], run * t->page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            unavailable("memory-short", "page %" PRIu64 " could not be mapped: %s; vm.max_map_count limits mappings", i, strerror(errno));
        for (uint64_t k = 0; k < run; k++)
            must_be(*(volatile uint64_t *)(page[i] + k * t->page), STANDING);
    }
}

/* The visits. cycle: in one shuffled order that is repeated until the call around it costs nothing. random: drawn, four a page and 65,536
 * at the least, half of them among the first --hot pages and half among all, or all among all: which pages a TLB then keeps tells what it
 * replaces. Page i of a run of eight visits a line of its own, in sets of the first cache that no other one's is in. checksum: of the
 * pages' numbers from `base` on, in the order of the visits. */
static struct visits place_visits(const struct config *c, const struct tables *t, const uint64_t *page, uint64_t base, uint64_t *seed,
                                  uint64_t *checksum)
{
    uint64_t hot = c->own[LEVELS].given ? c->own[LEVELS].value : c->lines, drawn = c->lines * 4 > 1 << 16 ? c->lines * 4 : 1 << 16;
    uint64_t n = !strcmp(c->order, "random") ? drawn : c->lines, times = 4096 / n + 1, *address = malloc(n * times * sizeof *address);
    uint32_t *visit = room_for_visits(n);
    if (!address)
        unavailable("memory-short", "no room for %" PRIu64 " visits", n * times);
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
    free(visit);
    return (struct visits){address, n * times, STANDING};
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", "random", NULL}, *const layouts[] = {"alias", NULL};
    static const char *const modes[] = {"random", "even", NULL};
    struct own own[] = {{.name = "tables_1", .value = 1, .least = 1, .most = 1ull << 32},
                        {.name = "tables_2", .value = 1, .least = 1, .most = 1ull << 32},
                        {.name = "tables_3", .value = 1, .least = 1, .most = 1ull << 32},
                        {.name = "hot", .least = 1, .most = 1ull << 32}, {.name = NULL}};
    struct config c = parse_more(argc, argv, "table_chase", orders, layouts, modes, own);
    if (c.pages->source != FROM_BASE || c.stride_pages != 1)
        bad_argument("table_chase takes --pages 4k and no --stride-pages.");
    if (own[LEVELS].given && (strcmp(c.order, "random") || own[LEVELS].value > c.lines))
        bad_argument("--hot takes --order random and as many pages as there are at the most.");
    c.cpu = pin(c.cpu);
    struct tables t = tables_of(&c);
    struct arena a = reserve_tables(&c, &t);
    uint64_t seed = c.seed, checksum, base = (uint64_t)a.base, *page = place_pages(&t, base, &seed);
    map_pages(&t, page);
    struct visits v = place_visits(&c, &t, page, base, &seed, &checksum);
    struct work work = {.state = &v, .run = walk_rounds, .due = always_standing, .accesses = v.visits};
    struct region r = measure(&c, &a, &work);
    return report(&c, &a, &r, checksum, NULL, NULL);
}
