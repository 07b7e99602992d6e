/* chase.h: one random cycle through lines of memory and the loop that follows it, for every kernel whose chase is this one: equal
 * seeds give equal orders in all of them. */
#ifndef CHASE_H
#define CHASE_H
#include "harness.h"

/* [timed: cycle, sequential] */
__attribute__((noinline, unused)) static void **follow(void **p, uint64_t hops)
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

/* Link the lines into one cycle; return the checksum of one walk of it, which also proves that it is one, and the line
 * that links back to the first. */
static uint64_t place_cycle(char *base, uint64_t lines, int packed, uint64_t stride, int shuffled, uint64_t seed, void **last)
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
        *last = p;
        p = *(char **)p;
    } while (++visited < lines && p != base + line_offset(0, packed, stride));
    if (visited != lines || p != base + line_offset(0, packed, stride))
        unavailable("kernel-garbage", "the chase is not one cycle: back after %" PRIu64 " of %" PRIu64 " lines", visited, lines);
    return checksum;
}
#endif
