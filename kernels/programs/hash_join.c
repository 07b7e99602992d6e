/* hash_join: the equi-join of two tables of ROWS rows by a hash table over the first.
 *
 *     hash_join ROWS
 *
 * JOIN=partitioned in the environment first splits both tables by a few bits of the hash, so that each part's table lies on few pages.
 * Prints the joined rows' sum, the same in both cases, and the time a row, splitting included. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { most_parts = 128 };

struct row { uint64_t key, value; };

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

/* The hash's lowest bits choose the part (part p begins at starts[p]), bits above 32 the slot, so that a part's rows do not
 * crowd. */
static void split(const struct row *from, struct row *to, uint64_t rows, uint64_t parts, uint64_t *starts)
{
    uint64_t next[most_parts] = {0};
    for (uint64_t i = 0; i < rows; i++)
        next[mixed(from[i].key) & (parts - 1)]++;
    for (uint64_t p = 0, sum = 0; p < parts; p++) {
        uint64_t in_part = next[p];
        starts[p] = next[p] = sum;
        sum += in_part;
    }
    starts[parts] = rows;
    for (uint64_t i = 0; i < rows; i++)
        to[next[mixed(from[i].key) & (parts - 1)]++] = from[i];
}

static uint64_t join(const struct row *left, uint64_t lefts, const struct row *right, uint64_t rights, struct row *table)
{
    uint64_t slots = 2, sum = 0;
    while (slots < 2 * lefts)
        slots *= 2;
    memset(table, 0, slots * sizeof *table);
    for (uint64_t i = 0; i < lefts; i++) {
        uint64_t slot = (mixed(left[i].key) >> 32) & (slots - 1);
        while (table[slot].key)
            slot = (slot + 1) & (slots - 1);
        table[slot] = left[i];
    }
    for (uint64_t i = 0; i < rights; i++) {
        uint64_t slot = (mixed(right[i].key) >> 32) & (slots - 1);
        while (table[slot].key && table[slot].key != right[i].key)
            slot = (slot + 1) & (slots - 1);
        if (table[slot].key)
            sum += table[slot].value ^ right[i].value;
    }
    return sum;
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    uint64_t rows = strtoull(words[1], NULL, 10), sum = 0, starts[2][most_parts + 1];
    const char *how = getenv("JOIN");
    uint64_t parts = how && !strcmp(how, "partitioned") ? most_parts : 1;
    struct row *tables[2], *sorted[2], *slots = malloc((4 * rows + 2) * sizeof *slots);
    for (int t = 0; t < 2; t++) {
        tables[t] = malloc(rows * sizeof **tables);
        sorted[t] = parts > 1 ? malloc(rows * sizeof **tables) : tables[t];
        if (!slots || !tables[t] || !sorted[t])
            return 3;
        for (uint64_t i = 0; i < rows; i++)
            tables[t][i] = (struct row){1 + mixed(t ? i * 0x9e3779b97f4a7c15 : i + 1) % (2 * rows), i};
    }
    for (uint64_t i = 0; i < rows; i++)  /* the first table's keys are unique: every second number, in a mixed order */
        tables[0][i].key = 1 + 2 * (i * 0x9e3779b1 % rows);
    memset(slots, 1, (4 * rows + 2) * sizeof *slots);  /* fault the pages in before the clock runs */
    double begin_ns = now_ns();
    for (int t = 0; t < 2; t++) {
        starts[t][0] = 0, starts[t][1] = rows;
        if (parts > 1)
            split(tables[t], sorted[t], rows, parts, starts[t]);
    }
    for (uint64_t p = 0; p < parts; p++)
        sum += join(sorted[0] + starts[0][p], starts[0][p + 1] - starts[0][p], sorted[1] + starts[1][p], starts[1][p + 1] - starts[1][p],
                    slots);
    printf("sum: %" PRIu64 "\nns a row: %.3f\n", sum, (now_ns() - begin_ns) / (double)rows);
    return 0;
}
