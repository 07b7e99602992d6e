/* page_chase: the latency of dependent loads, one cache line a page ("spread") or densely packed ("packed").
 *
 *   page_chase --pages 4k --layout spread --order cycle --lines 4096
 *
 * cycle       one random cyclic permutation of all lines (Sattolo): the next visit to a line is always `lines` away
 * random      every access draws its line independently: the next visit may be near or far
 * sequential  the next line in memory, round and round: what prefetchers of lines and of translations like
 *
 * Each load's address comes from the load before it, so nothing overlaps: ns per access is a latency. */
#include "harness.h"

struct chase {
    void **at;         /* cycle, sequential: where the chase stands */
    uint64_t lines;
    const char *base;  /* random: the arena, and the draws, in units of a line */
    const uint32_t *draw;
    uint64_t draws, standing;
};

/* [timed: cycle, sequential] */
__attribute__((noinline)) static void **follow(void **p, uint64_t hops)
{
    for (uint64_t i = hops / 16; i; i--) {
        p = *p; p = *p; p = *p; p = *p; p = *p; p = *p; p = *p; p = *p;
        p = *p; p = *p; p = *p; p = *p; p = *p; p = *p; p = *p; p = *p;
    }
    for (uint64_t i = hops % 16; i; i--)
        p = *p;
    return p;
}
/* [end] */

static uint64_t follow_rounds(void *state, uint64_t rounds)
{
    struct chase *c = state;
    c->at = follow((void **)c->at, rounds * c->lines);
    return (uint64_t)c->at;
}

/* Every line holds the same word, STANDING. Adding what was loaded to the next address and having taken it off the base
 * beforehand makes each load wait for the last one, while the draws themselves stream in ahead, 16 to a cache line. */
#define STANDING 64ull

/* [timed: random] */
__attribute__((noinline)) static uint64_t follow_draws(const char *base, const uint32_t *draw, uint64_t draws, uint64_t loaded)
{
    for (uint64_t i = 0; i < draws; i += 16)
#define HOP(k) loaded = *(const uint64_t *)(base + draw[i + k] * LINE + loaded);
    {
        HOP(0) HOP(1) HOP(2) HOP(3) HOP(4) HOP(5) HOP(6) HOP(7)
        HOP(8) HOP(9) HOP(10) HOP(11) HOP(12) HOP(13) HOP(14) HOP(15)
    }
    return loaded;
}
/* [end] */

static uint64_t draw_rounds(void *state, uint64_t rounds)
{
    struct chase *c = state;
    while (rounds--)
        c->standing = follow_draws(c->base, c->draw, c->draws, c->standing);
    return c->standing;
}

/* Link the lines into one cycle; return the checksum of one walk of it, which also proves that it is one. */
static uint64_t place_cycle(char *base, uint64_t lines, int packed, uint64_t stride, int shuffled, uint64_t seed)
{
    uint32_t *next = malloc(lines * sizeof *next);
    if (!next)
        unavailable("memory-short", "no room for the order of %" PRIu64 " lines", lines);
    for (uint64_t i = 0; i < lines; i++)
        next[i] = (uint32_t)(shuffled ? i : (i + 1) % lines);
    for (uint64_t i = lines - 1; shuffled && i > 0; i--) { /* Sattolo: swap with one strictly below, and one cycle comes out */
        uint64_t j = next_random(&seed, i);
        uint32_t swap = next[i];
        next[i] = next[j];
        next[j] = swap;
    }
    for (uint64_t i = 0; i < lines; i++)
        *(void **)(base + line_offset(i, packed, stride)) = base + line_offset(next[i], packed, stride);
    free(next);
    uint64_t checksum = 0xCBF29CE484222325ull, visited = 0;
    char *p = base + line_offset(0, packed, stride);
    do {
        checksum = mix(checksum, (uint64_t)(p - base) / (packed ? LINE : stride));
        p = *(char **)p;
    } while (++visited < lines && p != base + line_offset(0, packed, stride));
    if (visited != lines || p != base + line_offset(0, packed, stride))
        unavailable("kernel-garbage", "the chase is not one cycle: back after %" PRIu64 " of %" PRIu64 " lines", visited, lines);
    return checksum;
}

/* At least 2^18 draws, and four a line, so that a repeated sequence looks random to any TLB it is played to. */
static uint32_t *place_draws(char *base, uint64_t lines, int packed, uint64_t stride, uint64_t seed, uint64_t *draws, uint64_t *checksum)
{
    *draws = round_up(lines * 4 > 1 << 18 ? lines * 4 : 1 << 18, 16);
    uint32_t *draw = malloc(*draws * sizeof *draw);
    if (!draw)
        unavailable("memory-short", "no room for %" PRIu64 " draws", *draws);
    for (uint64_t i = 0; i < lines; i++)
        *(uint64_t *)(base + line_offset(i, packed, stride)) = STANDING;
    *checksum = 0xCBF29CE484222325ull;
    for (uint64_t i = 0; i < *draws; i++) {
        uint64_t line = next_random(&seed, lines);
        draw[i] = (uint32_t)(line_offset(line, packed, stride) / LINE);
        *checksum = mix(*checksum, line);
    }
    return draw;
}

int main(int argc, char **argv)
{
    static const char *const orders[] = {"cycle", "random", "sequential", NULL};
    struct config c = parse_arguments(argc, argv, "page_chase", orders);
    c.cpu = pin(c.cpu);
    int packed = c.layout[0] == 'p';
    uint64_t checksum, working_set = c.lines * (packed ? LINE : (uint64_t)sysconf(_SC_PAGESIZE));
    if (c.order[0] == 'r' && working_set / LINE > 1ull << 32)
        bad_argument("--order random reaches 256 GiB; use fewer lines."); /* a draw has 32 bits */
    struct arena a = map_arena(&c, working_set);
    struct chase chase = {.lines = c.lines};
    if (c.order[0] == 'r') {
        chase.draw = place_draws(a.base, c.lines, packed, a.stride, c.seed, &chase.draws, &checksum);
        chase.base = a.base - STANDING;
        chase.standing = STANDING;
        return measure(&c, &a, draw_rounds, &chase, chase.draws, checksum);
    }
    checksum = place_cycle(a.base, c.lines, packed, a.stride, c.order[0] == 'c', c.seed);
    chase.at = (void **)(a.base + line_offset(0, packed, a.stride));
    return measure(&c, &a, follow_rounds, &chase, c.lines, checksum);
}
