/* tables.h: pages in a given number of page tables of each level, all mapped to the same eight pages of memory. */
#ifndef TABLES_H
#define TABLES_H
#include "placement.h"
#include "region.h"

#define STANDING 64ull   /* see follow_draws() of page_chase.c */
#define EIGHT 8          /* entries in a cache line; also the pages of memory */
#define LEVELS 3         /* below the root, which is one table */
#define MOST_LINES 1024  /* lines of a table of 64 KiB */

struct tables {
    uint64_t page, fanout;
    uint64_t at[LEVELS + 1];       /* tables of level n; at[0]: pages */
    uint64_t span[LEVELS + 1];     /* bytes below an entry of level n + 1 */
    int even;
};

/* Addresses of n entries of the table at `from`, on lines drawn without replacement. A page's entry has its own line, at a
 * random place in it; upper entries fill a line in order. */
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

/* Addresses of all pages, table by table. base: room for twice as many tables of the highest level. */
static uint64_t *place_pages(const struct tables *t, uint64_t base, uint64_t *seed)
{
    uint64_t *above = room_for(t->at[LEVELS], sizeof *above, "addresses"), most = 2 * t->at[LEVELS];
    for (uint64_t i = 0, left = t->at[LEVELS]; left; i++) /* use half of the rooms, each choice equally likely */
        if (t->even ? i % 2 == 0 : next_random(seed, most - i) < left)
            above[t->at[LEVELS] - left--] = base + i * t->span[LEVELS];
    for (int level = LEVELS; level; level--) {
        uint64_t *below = room_for(t->at[level - 1], sizeof *below, "addresses"), each = t->at[level - 1] / t->at[level];
        for (uint64_t i = 0; i < t->at[level]; i++)
            place_entries(t, level, above[i], each, below + i * each, seed);
        free_room(above);
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

/* Map runs of up to eight neighbouring pages to the eight pages of memory, and read every page. */
static void map_pages(const struct tables *t, const uint64_t *page)
{
    int fd = file_in_memory("tables", EIGHT * t->page, 0);
    if (fd < 0)
        unavailable("memory-short", "memfd of %d pages: %s", EIGHT, strerror(errno));
    char *memory = map_memory(EIGHT * t->page, MAP_SHARED, fd, "pages");
    madvise(memory, EIGHT * t->page, MADV_NOHUGEPAGE);
    /* Descending, because some TLBs merge pages that ascend both virtually and physically. */
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
#endif
