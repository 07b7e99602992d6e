/* page_chase: the latency of dependent loads, one cache line a page ("spread") or densely packed ("packed").
 *
 *   page_chase --pages 4k --layout spread --order cycle --lines 4096
 *
 * spread      one line a page; packed, the control, has the same lines side by side
 * alias       one line a page, but all pages are the same few pages of memory: translation alone, in eight cached lines
 *
 * cycle       one random cyclic permutation of all lines (Sattolo): the next visit to a line is always `lines` away
 * random      every access draws its line independently: the next visit may be near or far
 * sequential  the next line in memory, round and round: what prefetchers of lines and of translations like
 *
 * Each load's address comes from the load before it, so nothing overlaps: ns per access is a latency. */
#include "alias.h"
#include "chase.h"
#include "plan.h"

#define MEASURES 2 /* 1 read smaps after the warm-up */

struct draws {
    const char *base;
    const uint32_t *draw;
    uint64_t draws, round, at;     /* number of draws, of those per call, and the next one */
    uint64_t standing;
};

/* Every line holds STANDING twice. Each load is added to the next address, whose base is less STANDING, so it waits for the
 * last one while the draws stream in ahead, 16 to a cache line. A call starts with STANDING + 8, the second word, so that an
 * empty loop returns something else. */
#define STANDING 64ull
#define MOST_DRAWN (1ull << 38) /* bytes: draws are line numbers of 32 bits */
static void stand(char *line) { ((uint64_t *)line)[0] = ((uint64_t *)line)[1] = STANDING; }

/* [timed: random] Adds the visits made to what the last load brought, for draw_rounds() to take off again. */
TIMED uint64_t follow_draws(const char *base, const uint32_t *draw, uint64_t draws, uint64_t loaded)
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
    struct draws *d = state;
    for (uint64_t left = rounds * d->round, now; left; left -= now) {
        now = left < d->draws - d->at ? left : d->draws - d->at;
        d->standing = follow_draws(d->base, d->draw + d->at, now, d->standing + 8) - now;
        d->at = (d->at + now) % d->draws;
    }
    return d->standing;
}

static uint64_t always_standing(const void *state, uint64_t rounds)
{
    (void)state, (void)rounds;
    return STANDING;
}

/* Page i touches line 8 (i mod 8): eight lines in eight sets of the first-level cache. With two pages or more to a line, each
 * visit uses another address than the last, and AMD's first-level cache, which predicts its way from a hash of the virtual
 * address, is wrong each time: a constant at every size. (64 lines would pay it from 65 pages on, just where a TLB of 64
 * entries ends.) */
static uint64_t alias_offset(uint64_t i, uint64_t stride) { return i * stride + i % 8 * 8 * LINE; }

static uint64_t offset_of(const struct config *c, const struct arena *a, uint64_t line)
{
    struct places places = places_in(c->packed, a->stride, a->page);
    return c->alias ? alias_offset(line, a->stride) : line_offset(&places, line);
}

static void touch_standing(const struct config *c, const struct arena *a)
{
    for (uint64_t i = 0; i < c->lines; i++)
        must_be(*(volatile uint64_t *)(a->base + offset_of(c, a, i)), STANDING);
}

static struct arena map_alias(const struct config *c)
{
    struct arena a = map_aliased(c, "alias", PROT_READ, stand);
    touch_standing(c, &a);
    return a;
}

/* The visits of follow_draws(), in lines. random: at least 2^18 draws (2^16 for alias, to stay in the second-level cache) and
 * four a line, so that a repeated sequence looks random. cycle (only alias): one permutation, repeated until the call costs
 * nothing. warm: visits before a part is timed, 0 for all; the checksum is of what is timed. */
static struct draws place_visits(const struct config *c, const struct arena *a, uint64_t warm, uint64_t *checksum)
{
    int randomly = !strcmp(c->order, "random");
    uint64_t least = c->alias ? 1 << 16 : 1 << 18, draws = round_up(c->lines * 4 > least ? c->lines * 4 : least, STEP);
    uint64_t n = randomly ? draws : c->lines;
    uint64_t times = randomly ? 1 : 4096 / n + 1, seed = c->seed;
    uint32_t *visit = room_for_visits(n * times);
    for (uint64_t i = 0; i < n; i++)
        visit[i] = (uint32_t)(randomly ? next_random(&seed, c->lines) : i);
    if (!randomly)
        shuffle(visit, n, 1, &seed);
    *checksum = warm ? checksum_from(visit, n, warm + SETTLE * STEP, PART) : checksum_from(visit, n, 0, n);
    for (uint64_t i = 0; i < n * times; i++)
        visit[i] = i < n ? (uint32_t)(offset_of(c, a, visit[i]) / LINE) : visit[i - n];
    for (uint64_t i = 0; !c->alias && i < c->lines; i++)
        stand(a->base + offset_of(c, a, i));
    touch_standing(c, a);
    return (struct draws){a->base - STANDING, visit, n * times, warm ? STEP : n * times, 0, STANDING};
}

static void check_chase(struct config *c)
{
    int cycle = !strcmp(c->order, "cycle"), randomly = !strcmp(c->order, "random");
    int aliased_pages = c->pages->source == FROM_BASE || (c->pages->source == FROM_POOL && c->pages->bytes == 2 << 20);
    if (c->alias && ((!cycle && !randomly) || !aliased_pages))
        bad_argument("--layout alias takes --order cycle or random and --pages 4k or 2m.");
    if ((randomly || c->alias) && c->lines > MOST_DRAWN / (c->packed ? LINE : base_page() * c->stride_pages))
        bad_argument("--order random and --layout alias reach 256 GiB; use fewer lines.");
}

static struct arena map_chase(const struct config *c) { return c->alias ? map_alias(c) : map_arena(c); }

static struct region measure_draws(const struct config *c, const struct arena *a)
{
    uint64_t checksum, warm = visits_to_warm(c);
    struct draws draws = place_visits(c, a, warm, &checksum);
    struct work work = {.state = &draws, .run = draw_rounds, .due = always_standing, .accesses = draws.round, .warm = warm / STEP,
                        .least = warm ? PART / STEP : 0};
    struct region r = measure(c, &work);
    r.checksum = checksum;
    return r;
}

static struct region measure_chase(const struct config *c, const struct arena *a)
{
    if (!c->alias)
        also_off_node(a, c->cpu);
    return c->alias || !strcmp(c->order, "random") ? measure_draws(c, a) : measure_cycle(c, a, !strcmp(c->order, "cycle"));
}

static const struct kernel page_chase = {
    .name = "page_chase", .orders = {"cycle", "random", "sequential"}, .layouts = {"spread", "packed", "alias"},
    .check = check_chase, .map = map_chase, .measure = measure_chase};

#ifndef SESSION
int main(int argc, char **argv) { return measure_alone(&page_chase, argc, argv); }
#endif
