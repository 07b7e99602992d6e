/* placement.h: where lines lie and in which order they are visited, equal for equal seeds in C and numba
 * (kernels/chase_numba.py).
 *
 * Where. If each spread line were its page's first, all would share a 64th of the first-level cache's sets, and cache
 * conflicts would look like TLB misses. With 2^b lines to a page, line i lies on line (d0 + d1 + ...) mod 2^b of its page,
 * d0, d1, ... the digits of i to the base 2^b. So every aligned run of as many lines as a cache has sets (2^m) puts one on
 * each:
 *   - m <= b: the run varies only the low m bits of d0, and the set is the place mod 2^m.
 *   - m > b, contiguous memory: address bits from 6 + b up are i's low m - b bits. Fix those; the b varying bits of the 2^b lines left
 *     are the top of one digit and the bottom of the next, so their sum takes each value once.
 *
 * Order. "cycle": one random cyclic permutation (Sattolo 1986), so that a line is visited again after all others. "random":
 * each visit drawn. Hops of a random cycle are exchangeable, so of more than PART lines a part is timed, after as many hops
 * as the largest cache has lines. */
#ifndef PLACEMENT_H
#define PLACEMENT_H
#include "arena.h"
#include "cpus.h"

#define FNV_BASIS 0xCBF29CE484222325ull

#define GOLDEN 0x9E3779B97F4A7C15ull

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): the n-th number is scramble(seed + n GOLDEN), distinct for each n. */
static inline uint64_t scramble(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static inline uint64_t next_random(uint64_t *state, uint64_t below) { return (scramble(*state += GOLDEN) >> 32) * below >> 32; }

/* One step like FNV-1a over a line's number, so that the order counts. */
static inline uint64_t mix(uint64_t checksum, uint64_t line) { return (checksum ^ line) * 0x100000001B3ull; }

/* Lines `stride` bytes apart, each on one of 2^bits places of its page. */
struct places { uint64_t stride; unsigned bits; };

static inline struct places places_in(int packed, uint64_t stride, uint64_t page)
{
    uint64_t room = stride > page ? page : stride & -stride; /* a stride of 3 pages leaves one */
    return packed ? (struct places){LINE, 0} : (struct places){stride, (unsigned)__builtin_ctzll(room / LINE)};
}

static inline uint64_t line_offset(const struct places *p, uint64_t line)
{
    uint64_t turned = 0;
    for (uint64_t digits = line; p->bits && digits; digits >>= p->bits)
        turned += digits;
    return line * p->stride + (turned & ((1ull << p->bits) - 1)) * LINE;
}

/* Shuffle as Fisher and Yates (`below` 1: any permutation) or Sattolo (0: swap with one strictly below, which makes one
 * cycle). */
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

static inline uint32_t *numbers_below(uint64_t n, int shuffled, uint64_t *seed)
{
    uint32_t *number = room_for_visits(n);
    for (uint64_t i = 0; i < n; i++)
        number[i] = (uint32_t)i;
    if (shuffled)
        shuffle(number, n, 1, seed);
    return number;
}

static inline uint32_t *cycle_through(uint64_t lines, int shuffled, uint64_t seed)
{
    uint32_t *next = room_for_visits(lines);
    for (uint64_t i = 0; i < lines; i++)
        next[i] = (uint32_t)(shuffled ? i : (i + 1) % lines);
    if (shuffled)
        shuffle(next, lines, 0, &seed);
    return next;
}

/* The lines in visiting order, from line 0 on, which proves that it is one cycle. */
static inline uint32_t *visits_of(const uint32_t *next, uint64_t lines)
{
    uint32_t *visit = room_for_visits(lines);
    uint64_t visited = 0, line = 0;
    do
        visit[visited++] = (uint32_t)line;
    while ((line = next[line]) && visited < lines);
    if (visited != lines || line)
        unavailable("kernel-failed", "the chase is not one cycle: back after %" PRIu64 " of %" PRIu64 " lines", visited, lines);
    return visit;
}

static inline uint64_t checksum_from(const uint32_t *visit, uint64_t n, uint64_t from, uint64_t visits)
{
    uint64_t checksum = FNV_BASIS;
    for (uint64_t i = 0; i < visits; i++)
        checksum = mix(checksum, visit[(from + i) % n]);
    return checksum;
}

/* Byte offsets of the lines, 8 bytes each as numpy's indices are; the checksum is of the lines. */
static inline int64_t *offsets_of(struct places places, uint64_t lines, int shuffled, uint64_t seed, uint64_t *checksum)
{
    uint32_t *visit = numbers_below(lines, shuffled, &seed);
    int64_t *offset = room_for(lines, sizeof *offset, "indices");
    for (uint64_t i = 0; i < lines; i++)
        offset[i] = (int64_t)line_offset(&places, visit[i]);
    *checksum = checksum_from(visit, lines, 0, lines);
    free_room(visit);
    return offset;
}

#define PART (1ull << 17) /* visits of a longer cycle to time at least */
#define STEP 16           /* visits per call, as many as a loop unrolls */

/* Visits that fill the largest cache, or as many as given. Placing has filled a cache of hundreds of MiB, which would take
 * ten seconds to visit at random: there MOST_WARM do. */
#define MOST_WARM (1ull << 19) /* 32 MiB of lines */
static inline uint64_t lines_to_warm(const struct config *c)
{
    uint64_t cache = largest_cache_bytes(c->cpu) / LINE, most = cache < MOST_WARM ? cache : MOST_WARM;
    uint64_t asked = c->warm_hops == NOT_GIVEN ? most : c->warm_hops;
    return asked && asked < c->lines ? asked : c->lines;
}

/* 0: every round visits all lines. */
static inline uint64_t visits_to_warm(const struct config *c)
{
    return c->lines > PART && !c->alias && strcmp(c->order, "sequential") ? round_up(lines_to_warm(c), STEP) : 0;
}
#endif
