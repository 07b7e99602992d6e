/* placement.h: where lines stand and in which order they are visited. Equal seeds give equal orders in every kernel, in C and
 * in numba (kernels/twins/placement.py), so that rows of two kernels, layouts or page sizes differ in nothing else.
 *
 * Where. A translation is used once a page, so a spread line has a page to itself; packed lines stand side by side. Which of
 * its page's lines? Always the first would put all on a 64th of the first-level cache's sets, and conflicts in the cache would
 * pass for misses of the TLB. The caches index by bits of the address above the line's 6: a cache of 2^m sets by bits 6 to 5 +
 * m. With 2^b lines to a page (b = 6 for 4 KiB, 8 for 16 KiB, 10 for 64 KiB, 15 for lines 2 MiB apart on pages of 2 MiB) line i
 * stands on its page's line number
 *
 *     w(i) = (d0 + d1 + d2 + ...) mod 2^b,  d0, d1, ... the digits of i to the base 2^b
 *
 * Then of every aligned run of as many lines as a cache has sets, each set has exactly one, so no set ever has more than the
 * lines divided by the sets, rounded up:
 *   - 2^m sets, m <= b: the run varies the low m bits of d0 alone, and the set is w mod 2^m.
 *   - m > b, memory contiguous (large pages): bits 6 + b and up are i's own low m - b bits. Fix those; 2^b lines of the run remain,
 *     whose b varying bits lie above them, at the top of one digit and at the bottom of the next. The upper digit's bits count from
 *     1 on, the lower digit's from where those end: their sum takes each value once.
 * w(i) = i mod 64, the natural choice, does this for 64 sets and puts all lines on 64 of the sets of any larger cache.
 *
 * In which order. "cycle" is one random cyclic permutation (Sattolo 1986): the next visit to a line is always as many visits
 * away as there are lines, and no prefetcher can follow. "random" draws each visit independently: the next one to a line may be
 * near or far. "sequential" is what prefetchers of lines and of translations like.
 *
 * How many. The hops of a random cycle are exchangeable: which lines a hop leads from and to says nothing about its place in
 * the cycle, so a part of the cycle has the whole one's mean. Of a cycle of more than PART lines a part is timed, after as many
 * hops as the largest cache has lines: before that the caches hold what placing the lines left there. The checksum is then of
 * the first PART visits of the timed region. */
#ifndef PLACEMENT_H
#define PLACEMENT_H
#include "arena.h"
#include "cpus.h"

#define FNV_BASIS 0xCBF29CE484222325ull /* what a checksum begins with (Fowler, Noll, Vo) */

#define GOLDEN 0x9E3779B97F4A7C15ull

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): its n-th number is scramble(seed + n GOLDEN), another one for each n, because
 * each step can be undone; and known without those before it. */
static inline uint64_t scramble(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* Its high half scaled to [0, below). */
static inline uint64_t next_random(uint64_t *state, uint64_t below) { return (scramble(*state += GOLDEN) >> 32) * below >> 32; }

/* One FNV-1a-like step over a line's number: the order counts, not only the set. */
static inline uint64_t mix(uint64_t checksum, uint64_t line) { return (checksum ^ line) * 0x100000001B3ull; }

/* Lines `stride` bytes apart, each on one of 2^bits places: packed ones on the only one. */
struct places { uint64_t stride; unsigned bits; };

static inline struct places places_in(int packed, uint64_t stride, uint64_t page)
{
    uint64_t room = stride > page ? page : stride & -stride; /* pages between are not there; of 3 pages' stride, one */
    return packed ? (struct places){LINE, 0} : (struct places){stride, (unsigned)__builtin_ctzll(room / LINE)};
}

/* In bytes from the arena's beginning. */
static inline uint64_t line_offset(const struct places *p, uint64_t line)
{
    uint64_t turned = 0;
    for (uint64_t digits = line; p->bits && digits; digits >>= p->bits)
        turned += digits;
    return line * p->stride + (turned & ((1ull << p->bits) - 1)) * LINE;
}

/* The numbers below n in the order of Fisher and Yates (`below` 1: any permutation), or of Sattolo (0: swap with one strictly
 * below, and one cycle comes out). */
static inline void shuffle(uint32_t *number, uint64_t n, uint64_t below, uint64_t *seed)
{
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t j = next_random(seed, i + below);
        uint32_t swap = number[i];
        number[i] = number[j];
        number[j] = swap;
    }
}

static inline uint32_t *room_for_visits(uint64_t n) { return room_for(n, sizeof(uint32_t), "visits"); }

/* The numbers below n as they stand, or in any order. */
static inline uint32_t *numbers_below(uint64_t n, int shuffled, uint64_t *seed)
{
    uint32_t *number = room_for_visits(n);
    for (uint64_t i = 0; i < n; i++)
        number[i] = (uint32_t)i;
    if (shuffled)
        shuffle(number, n, 1, seed);
    return number;
}

/* Which line comes after each, so that one cycle goes through all of them. */
static inline uint32_t *cycle_through(uint64_t lines, int shuffled, uint64_t seed)
{
    uint32_t *next = room_for_visits(lines);
    for (uint64_t i = 0; i < lines; i++)
        next[i] = (uint32_t)(shuffled ? i : (i + 1) % lines);
    if (shuffled)
        shuffle(next, lines, 0, &seed);
    return next;
}

/* The lines in the order in which that cycle visits them, from line 0 on; and so the proof that it is one. */
static inline uint32_t *visits_of(const uint32_t *next, uint64_t lines)
{
    uint32_t *visit = room_for_visits(lines);
    uint64_t visited = 0, line = 0;
    do
        visit[visited++] = (uint32_t)line;
    while ((line = next[line]) && visited < lines);
    if (visited != lines || line)
        unavailable("kernel-garbage", "the chase is not one cycle: back after %" PRIu64 " of %" PRIu64 " lines", visited, lines);
    return visit;
}

/* Of so many visits from the one at `from` on, of an order of n that is repeated. */
static inline uint64_t checksum_from(const uint32_t *visit, uint64_t n, uint64_t from, uint64_t visits)
{
    uint64_t checksum = FNV_BASIS;
    for (uint64_t i = 0; i < visits; i++)
        checksum = mix(checksum, visit[(from + i) % n]);
    return checksum;
}

/* The lines' bytes from the arena's beginning, in a shuffled order or as they stand; eight bytes each, as numpy's indices are.
 * checksum: of all lines in that order. */
static inline int64_t *offsets_of(struct places places, uint64_t lines, int shuffled, uint64_t seed, uint64_t *checksum)
{
    uint32_t *visit = numbers_below(lines, shuffled, &seed); /* any order will do, no chain here */
    int64_t *offset = room_for(lines, sizeof *offset, "indices");
    for (uint64_t i = 0; i < lines; i++)
        offset[i] = (int64_t)line_offset(&places, visit[i]);
    *checksum = checksum_from(visit, lines, 0, lines);
    free_room(visit);
    return offset;
}

/* ---- a part of a large cycle ----------------------------------------------------------------------------- */

#define PART (1ull << 17) /* visits: from so many lines on not all are timed, but so many at the least */
#define STEP 16           /* visits that are made in one go, as many as a loop unrolls */

/* Lines after whose visits the caches hold what they will go on holding: as many as the largest has, or as asked; or all lines. Of a
 * cache of hundreds of MiB, which takes ten seconds to visit at random, MOST_WARM do: placing the lines has filled it. */
#define MOST_WARM (1ull << 19) /* 32 MiB of lines */
static inline uint64_t lines_to_warm(const struct config *c)
{
    uint64_t cache = largest_cache_bytes(c->cpu) / LINE, most = cache < MOST_WARM ? cache : MOST_WARM;
    uint64_t asked = c->warm_hops == NOT_GIVEN ? most : c->warm_hops;
    return asked && asked < c->lines ? asked : c->lines; /* a whole cycle is as warm as it gets */
}

/* How many visits warm the caches before a part is timed; 0 where all lines are visited in every round. */
static inline uint64_t visits_to_warm(const struct config *c)
{
    return c->lines > PART && !c->alias && strcmp(c->order, "sequential") ? round_up(lines_to_warm(c), STEP) : 0;
}
#endif
