/* rows.h: the two tables of a join. R has rows of a unique random key and the row's number, from 1; S as many, each with the
 * key of a random row of R. The answer is the number of pairs and the sum of the products of their row numbers. */
#ifndef ROWS_H
#define ROWS_H
#include "placement.h"

#define ROWS_A_LINE (LINE / sizeof(struct row))
#define MOST_BITS 14
#define MOST_SPOTS 64

struct row { uint64_t key, number; };
struct rows { struct row *at; uint64_t n; };
struct answer { uint64_t pairs, sum; };

struct side {
    struct rows rows, parts;
    uint32_t ends[1 << MOST_BITS];
    uint64_t spots, wanted[MOST_SPOTS]; /* places in the partitions, and the rows that belong there */
};

/* ---- the hash, multiplicative (Knuth): its top bits depend on the whole key */

static inline uint64_t radix(uint64_t key, unsigned skip, unsigned bits) { return key * GOLDEN << skip >> (64 - bits); }

/* Proportional to the hash below its topmost `skip` bits, which a partition's rows share: a product, no division. */
static inline uint64_t slot_of(uint64_t key, unsigned skip, uint64_t slots) { return (key * GOLDEN << skip >> 32) * slots >> 32; }
static inline uint64_t after(uint64_t slot, uint64_t slots) { return slot + 1 < slots ? slot + 1 : 0; }

static inline uint64_t splitmix(uint64_t seed, uint64_t i) { return scramble(seed + i * GOLDEN); }

static inline uint64_t partner(uint64_t seed, uint64_t number, uint64_t n)
{
    return 1 + ((splitmix(~seed, number) >> 32) * n >> 32);
}

/* Return the expected answer; *checksum covers all keys in order. */
static inline struct answer fill(struct rows r, struct rows s, uint64_t seed, uint64_t *checksum)
{
    struct answer due = {s.n, 0};
    for (uint64_t i = 1; i <= r.n; i++) {
        r.at[i - 1] = (struct row){splitmix(seed, i), i};
        *checksum = mix(*checksum, r.at[i - 1].key);
    }
    for (uint64_t i = 1; i <= s.n; i++) {
        uint64_t of_r = partner(seed, i, r.n);
        s.at[i - 1] = (struct row){splitmix(seed, of_r), i};
        *checksum = mix(*checksum, s.at[i - 1].key);
        due.sum += of_r * i;
    }
    return due;
}

/* Whether these are the rows of R (or S if foreign), each once, in its partition and in the old order. */
static inline int is_partitioned(const struct side *of, uint64_t seed, unsigned bits, int foreign)
{
    uint64_t n = of->parts.n, i = 0;
    for (uint32_t p = 0; p < 1u << bits; p++)
        for (uint64_t last = 0; i < of->ends[p]; last = of->parts.at[i++].number) {
            struct row row = i < n ? of->parts.at[i] : (struct row){0, 0};
            if (radix(row.key, 0, bits) != p || row.number <= last || row.number > n
                || row.key != splitmix(seed, foreign ? partner(seed, row.number, n) : row.number))
                return 0;
        }
    return i == n;
}

static inline struct row *spot(const struct side *of, uint64_t i) { return of->parts.at + (i + 1) * of->parts.n / of->spots - 1; }

/* Check the partitions, and remember some rows to check after every round. */
static inline void keep_spots(struct side *of, uint64_t seed, unsigned bits, int foreign)
{
    if (!is_partitioned(of, seed, bits, foreign))
        unavailable("kernel-failed", "the partitions do not hold what they should");
    of->spots = of->parts.n / 1024 < MOST_SPOTS ? of->parts.n / 1024 : MOST_SPOTS;
    for (uint64_t i = 0; i < of->spots; i++)
        of->wanted[i] = spot(of, i)->number;
}

/* So that what the last round left does not count. */
static inline void wipe_spots(struct side *of)
{
    for (uint64_t i = 0; i < of->spots; i++)
        *spot(of, i) = (struct row){0, 0};
}

static inline uint64_t wrong_spots(const struct side *of)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < of->spots; i++)
        wrong += spot(of, i)->number != of->wanted[i];
    return wrong;
}

#define ARRAYS 6ull
#define LEAST (1ull << 10)
#define MOST (1ull << 28)
#define LINES(tuples) (((tuples) + ROWS_A_LINE - 1) / ROWS_A_LINE * ARRAYS)

static inline uint64_t tuples_of(const struct config *c) { return c->own[0].given ? c->own[0].value : c->lines / ARRAYS * ROWS_A_LINE; }

static inline void check_join(struct config *c)
{
    const struct own *own = c->own;
    uint64_t tuples = tuples_of(c);
    if (tuples < LEAST || tuples > MOST)
        bad_argument("--lines takes a whole number from %llu to %llu, not %" PRIu64 ".", LINES(LEAST), LINES(MOST), c->lines);
    if (own[0].given && c->lines != LINES(tuples))
        bad_argument("--tuples %" PRIu64 " takes --lines %llu, those of %llu arrays of 16 bytes a tuple.", tuples, LINES(tuples), ARRAYS);
    if (!strcmp(c->mode, "naive") && (own[1].given || own[2].given))
        bad_argument("--mode naive takes no --bits and no --passes.");
    if (own[2].value == 2 && own[1].value < 2)
        bad_argument("--passes 2 takes --bits 2 or more, one for each pass.");
}
#endif
