/* chase.h: one cycle through lines that each hold the address of the next. Each load's address comes from the load before it,
 * so ns per access is a latency. The order predicts where any number of hops ends, which exposes left-out accesses. */
#ifndef CHASE_H
#define CHASE_H
#include "placement.h"
#include "region.h"

struct chase {
    char *base;
    struct places places;
    uint64_t lines, hops;
    uint64_t round;       /* hops per call: all lines, or as many as the loop unrolls */
    uint32_t *visit;
    void **at;
};

/* [timed: cycle, sequential] */
__attribute__((unused)) TIMED void **follow(void **p, uint64_t hops)
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

static inline void **line_at(const struct chase *c, uint64_t line) { return (void **)(c->base + line_offset(&c->places, line)); }

static inline void **after(const struct chase *c, uint64_t hops) { return line_at(c, c->visit[(c->hops + hops) % c->lines]); }

/* Reading each link in ascending address order checks the links and is the touch that ends placing. */
static inline struct chase place_chase(char *base, uint64_t lines, struct places places, int shuffled, uint64_t seed)
{
    struct chase c = {.base = base, .places = places, .lines = lines, .round = lines};
    uint32_t *next = cycle_through(lines, shuffled, seed);
    for (uint64_t i = 0; i < lines; i++)
        *line_at(&c, i) = line_at(&c, next[i]);
    c.visit = visits_of(next, lines);
    for (uint64_t i = 0; i < lines; i++)
        must_be((uint64_t)*(void *volatile *)line_at(&c, i), (uint64_t)line_at(&c, next[i]));
    free_room(next);
    c.at = line_at(&c, 0);
    return c;
}

/* The last hop by itself, so that an empty loop returns something else. */
static inline uint64_t follow_rounds(void *state, uint64_t rounds)
{
    struct chase *c = state;
    void **last = follow(c->at, rounds * c->round - 1);
    c->at = *last;
    c->hops += rounds * c->round;
    return (uint64_t)last;
}

static inline uint64_t due_after_rounds(const void *state, uint64_t rounds)
{
    const struct chase *c = state;
    return (uint64_t)after(c, rounds * c->round - 1);
}

static inline struct work work_of(struct chase *c, const struct config *config)
{
    uint64_t warm = visits_to_warm(config);
    c->round = warm ? STEP : c->lines;
    return (struct work){.state = c, .run = follow_rounds, .due = due_after_rounds, .accesses = c->round, .warm = warm / STEP,
                         .least = warm ? PART / STEP : 0};
}

static inline uint64_t checksum_of(const struct chase *c, const struct work *w)
{
    return w->warm ? checksum_from(c->visit, c->lines, rounds_before(w) * STEP, PART) : checksum_from(c->visit, c->lines, 0, c->lines);
}

static inline struct region measure_cycle(const struct config *c, const struct arena *a, int shuffled)
{
    struct chase chase = place_chase(a->base, c->lines, places_in(c->packed, a->stride, a->page), shuffled, c->seed);
    struct work work = work_of(&chase, c);
    struct region r = measure(c, &work);
    r.checksum = checksum_of(&chase, &work);
    return r;
}
#endif
