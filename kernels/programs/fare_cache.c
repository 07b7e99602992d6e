/* fare_cache: look-ups by a hash of the key in a table of records of one cache line each.
 *
 *     fare_cache BYTES LOOKUPS HOT_PERCENT
 *
 * HOT_PERCENT of the look-ups use one of few keys. The hash spreads the hot records over all pages: they fit the caches, and
 * the TLB as long as their pages do. Memory is from calloc. Keys are drawn beforehand in blocks, so that only look-ups are
 * timed. Prints a sum, equal for equal arguments, and the time of a look-up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { hot_keys = 1024, block = 4096 };

struct record { uint64_t key, fare, rest[6]; };

/* splitmix64 (Steele, Lea & Flood, OOPSLA 2014): its finaliser is the hash. */
static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    uint64_t bytes = strtoull(words[1], NULL, 10), lookups = strtoull(words[2], NULL, 10), hot = strtoull(words[3], NULL, 10);
    uint64_t slots = 1;
    while (2 * slots * sizeof(struct record) <= bytes)
        slots *= 2;
    uint64_t keys = slots / 2, sum = 0, state = 17;
    struct record *table = calloc(slots, sizeof *table);
    if (!table)
        return 3;
    for (uint64_t key = 1; key <= keys; key++) {
        uint64_t slot = mixed(key) & (slots - 1);
        while (table[slot].key)
            slot = (slot + 1) & (slots - 1);
        table[slot] = (struct record){.key = key, .fare = key * 3};
    }
    double spent_ns = 0;
    for (uint64_t done = 0; done < lookups; done += block) {
        uint64_t asked[block];
        for (int i = 0; i < block; i++) {
            uint64_t drawn = mixed(state += 0x9e3779b97f4a7c15);
            asked[i] = 1 + (drawn >> 32) % (drawn % 100 < hot ? hot_keys : keys);
        }
        double begin_ns = now_ns();
        for (int i = 0; i < block; i++) {
            uint64_t slot = mixed(asked[i]) & (slots - 1);
            while (table[slot].key != asked[i])
                slot = (slot + 1) & (slots - 1);
            sum += table[slot].fare;
        }
        spent_ns += now_ns() - begin_ns;
    }
    printf("sum: %" PRIu64 "\nns a look-up: %.3f\n", sum, spent_ns / (double)((lookups + block - 1) / block * block));
    return 0;
}
