/* page_chase: the latency of dependent loads, one cache line a page ("spread") or densely packed ("packed").
 *
 *   page_chase --pages 4k --layout spread --order cycle --lines 4096
 *
 * spread      one line a page; the control, packed, has the same lines side by side
 * alias       one line a page, but all pages are the same few pages of memory: translation alone, in eight cached lines
 *
 * cycle       one random cyclic permutation of all lines (Sattolo): the next visit to a line is always `lines` away
 * random      every access draws its line independently: the next visit may be near or far
 * sequential  the next line in memory, round and round: what prefetchers of lines and of translations like
 *
 * Each load's address comes from the load before it, so nothing overlaps: ns per access is a latency. */
#include "chase.h"

struct chase {
    void **at;         /* cycle, sequential: where the chase stands */
    uint64_t lines;
    const char *base;  /* random: the arena, and the draws, in units of a line */
    const uint32_t *draw;
    uint64_t draws, standing;
};

static uint64_t follow_rounds(void *state, uint64_t rounds)
{
    struct chase *c = state;
    void **last = follow(c->at, rounds * c->lines - 1);
    c->at = *last; /* the last hop, so that what is returned differs from what went in: a loop that does nothing shows */
    return (uint64_t)last;
}

/* Every line holds the same word twice, STANDING. Adding what was loaded to the next address and having taken it off the
 * base beforehand makes each load wait for the last one, while the draws themselves stream in ahead, 16 to a cache line.
 * A call starts with STANDING + 8, which leads to the second word: a loop that does nothing would return what went in. */
#define STANDING 64ull
static void stand(char *line) { ((uint64_t *)line)[0] = ((uint64_t *)line)[1] = STANDING; }

/* [timed: random] Adds the visits made to what the last load brought, for draw_rounds() to take off again. */
__attribute__((noinline)) static uint64_t follow_draws(const char *base, const uint32_t *draw, uint64_t draws, uint64_t loaded)
{
    uint64_t i = 0;
#define HOP(k) loaded = *(const uint64_t *)(base + draw[i + k] * LINE + loaded);
    for (; i + 16 <= draws; i += 16) {
        HOP(0) HOP(1) HOP(2) HOP(3) HOP(4) HOP(5) HOP(6) HOP(7)
        HOP(8) HOP(9) HOP(10) HOP(11) HOP(12) HOP(13) HOP(14) HOP(15)
    }
    for (; i < draws; i++)
        HOP(0)
    return loaded + i;
}
/* [end] */

static uint64_t draw_rounds(void *state, uint64_t rounds)
{
    struct chase *c = state;
    while (rounds--)
        c->standing = follow_draws(c->base, c->draw, c->draws, c->standing + 8) - c->draws;
    return c->standing;
}

/* ---- alias: many virtual pages on few physical ones ------------------------------------------------------- */

/* Page i touches line 8 (i mod 8): eight lines, in eight sets of the first-level cache, whatever the stride. With two
 * pages or more to a line, each visit comes by another address than the last one did. AMD's first-level cache predicts
 * its way from a hash of the virtual address, so there every visit pays for a wrong guess: a constant, on every tread of
 * the staircase alike, and no step. (64 lines would pay it from 65 pages on, just where a TLB of 64 entries ends.) */
static uint64_t alias_offset(uint64_t i, uint64_t stride) { return i * stride + i % 8 * 8 * LINE; }

static struct arena map_alias(const struct config *c)
{
    uint64_t base_page = (uint64_t)sysconf(_SC_PAGESIZE), page = page_bytes(c->pages, base_page);
    int huge = c->pages[0] == '2' ? MFD_HUGETLB | 21u << MAP_HUGE_SHIFT : 0;
    struct arena a = reserve(c, page);
    a.physical = 8 * page;
    while (!huge && a.bytes / a.physical > 8192) /* mappings; a process may have 65530 */
        a.physical *= 2;
    int fd = memfd_create("alias", MFD_CLOEXEC | huge);
    if (fd < 0 || ftruncate(fd, (off_t)a.physical))
        unavailable(huge ? "pool-empty" : "memory-short", "memfd of %" PRIu64 " bytes: %s", a.physical, strerror(errno));
    char *memory = mmap(NULL, a.physical, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        unavailable(huge ? "pool-empty" : "memory-short", "%" PRIu64 " pages of %s needed: %s", a.physical / page, c->pages, strerror(errno));
    pool_page = huge ? page : 0;
    if (!huge)
        madvise(memory, a.physical, MADV_NOHUGEPAGE);
    /* From the last page to the first: in neither direction may neighbours become physical neighbours in ascending order,
     * which some TLBs join into one entry. */
    for (uint64_t at = a.physical; at; at -= LINE)
        stand(memory + at - LINE);
    for (uint64_t at = 0; at < a.bytes; at += a.physical)
        if (mmap(a.base + at, a.bytes - at < a.physical ? a.bytes - at : a.physical, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            unavailable("memory-short", "page %" PRIu64 " could not be mapped: %s", at / page, strerror(errno));
    for (uint64_t i = 0; i < c->lines; i++)
        must_be(*(volatile uint64_t *)(a.base + alias_offset(i, a.stride)), STANDING);
    a.resident = c->lines * (a.stride < page ? a.stride : page);
    return a;
}

static uint64_t offset_of(const struct config *c, uint64_t line, uint64_t stride)
{
    return c->layout[0] == 'a' ? alias_offset(line, stride) : line_offset(line, c->layout[0] == 'p', stride);
}

/* The visits of follow_draws(), in units of a line. random: at least 2^18 draws (2^16 for alias, whose data are in
 * the first-level cache, so that they stay in the second), and four a line, so that a repeated sequence looks random. cycle
 * (alias only: its lines cannot hold links): one permutation of all pages, repeated until the call around it costs nothing. */
static uint32_t *place_visits(const struct config *c, const struct arena *a, uint64_t *visits, uint64_t *checksum)
{
    int randomly = c->order[0] == 'r';
    uint64_t least = c->layout[0] == 'a' ? 1 << 16 : 1 << 18, n = randomly ? round_up(c->lines * 4 > least ? c->lines * 4 : least, 16) : c->lines;
    uint64_t times = randomly ? 1 : 4096 / n + 1, seed = c->seed;
    uint32_t *visit = malloc(n * times * sizeof *visit);
    if (!visit)
        unavailable("memory-short", "no room for %" PRIu64 " visits", n * times);
    for (uint64_t i = 0; c->layout[0] != 'a' && i < c->lines; i++)
        stand(a->base + offset_of(c, i, a->stride));
    for (uint64_t i = 0; i < n; i++)
        visit[i] = (uint32_t)(randomly ? next_random(&seed, c->lines) : i);
    for (uint64_t i = n - 1; !randomly && i > 0; i--) { /* Fisher-Yates */
        uint64_t j = next_random(&seed, i + 1);
        uint32_t swap = visit[i];
        visit[i] = visit[j];
        visit[j] = swap;
    }
    *checksum = 0xCBF29CE484222325ull;
    for (uint64_t i = 0; i < n; i++) {
        *checksum = mix(*checksum, visit[i]);
        visit[i] = (uint32_t)(offset_of(c, visit[i], a->stride) / LINE);
    }
    for (uint64_t i = n; i < n * times; i++)
        visit[i] = visit[i - n];
    *visits = n * times;
    return visit;
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", "random", "sequential", NULL}, *const layouts[] = {"spread", "packed", "alias", NULL};
    struct config c = parse_arguments(argc, argv, "page_chase", orders, layouts);
    c.cpu = pin(c.cpu);
    int packed = c.layout[0] == 'p', alias = c.layout[0] == 'a';
    uint64_t checksum;
    if (alias && (c.order[0] == 's' || (c.pages[0] != '4' && c.pages[0] != '2')))
        bad_argument("--layout alias takes --order cycle or random and --pages 4k or 2m.");
    if ((c.order[0] == 'r' || alias) && c.lines * c.stride_pages > 1ull << (packed ? 32 : 26))
        bad_argument("--order random and --layout alias reach 256 GiB; use fewer lines."); /* a draw has 32 bits */
    struct arena a = alias ? map_alias(&c) : map_arena(&c);
    struct chase chase = {.lines = c.lines, .base = a.base - STANDING, .standing = STANDING};
    if (alias || c.order[0] == 'r') {
        chase.draw = place_visits(&c, &a, &chase.draws, &checksum);
        return measure(&c, &a, draw_rounds, &chase, chase.draws, STANDING, checksum);
    }
    void *last;
    checksum = place_cycle(a.base, c.lines, packed, a.stride, c.order[0] == 'c', c.seed, &last);
    chase.at = *(void **)last;
    return measure(&c, &a, follow_rounds, &chase, c.lines, (uint64_t)last, checksum);
}
