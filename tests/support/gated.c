/* A program of a second under Valgrind, for tests of baselines: tests/support/edits.py changes its text as a patch would, to
 * what costs page walks or touches pages and to what does not. Its arrays are larger than what 3,072 entries of a TLB map. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS (1u << 18)
#define VISITS 100000u
#define SLOTS (1u << 21)
#define ROWS 4096
#define COLUMNS 1024
#define SUMMED 32
#define NODES 300000u
#define ROUNDS 4
#define ROUND_BYTES (1u << 21)
#define SPARSE (1u << 24)
#define BUCKETS 64
#define HISTORY (1u << 19)

/* So that each has a name in the report. */
#define NAMED static __attribute__((noinline))

struct record {
    uint64_t key, amount;
    uint8_t rest[48];
};

struct slot {
    uint32_t key, value;
};

struct node {
    struct node *next;
    uint64_t value[7];
};

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

NAMED uint64_t visit_records(void)
{
    struct record *records = malloc(RECORDS * sizeof *records);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < RECORDS; i++)
        records[i].key = i, records[i].amount = i % 7;
    for (uint32_t k = 0; k < VISITS; k++)
        sum += records[draw(RECORDS)].amount;
    free(records);
    return sum;
}

NAMED uint64_t look_up(void)
{
    struct slot *slots = calloc(SLOTS, sizeof *slots);
    uint64_t found = 0;
    for (uint32_t k = 0; k < VISITS; k++) {
        uint32_t at = draw(SLOTS);
        slots[at].value++;
        found += slots[at].value;
    }
    free(slots);
    return found;
}

NAMED double sum_matrix(void)
{
    float(*matrix)[COLUMNS] = malloc(sizeof(float[ROWS][COLUMNS]));
    double sum = 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < SUMMED; column++)
            matrix[row][column] = (float)(row + column);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < SUMMED; column++)
            sum += (double)matrix[row][column];
    free(matrix);
    return sum;
}

NAMED uint64_t follow_list(void)
{
    struct node *nodes = malloc(NODES * sizeof *nodes), *at = nodes;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i].next = &nodes[i + 1 < NODES ? i + 1 : 0], nodes[i].value[0] = i;
    for (uint32_t k = 0; k < NODES; k++)
        sum += at->value[0], at = at->next;
    free(nodes);
    return sum;
}

NAMED uint64_t fill_rounds(void)
{
    uint64_t sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t *buffer = malloc(ROUND_BYTES);
        memset(buffer, round, ROUND_BYTES);
        sum += buffer[draw(ROUND_BYTES)];
        free(buffer);
    }
    return sum;
}

NAMED uint64_t count_sparsely(void)
{
    uint8_t *counts = calloc(SPARSE, 1);
    uint64_t sum = 0;
    for (uint32_t k = 0; k < 200; k++)
        sum += ++counts[draw(SPARSE)];
    free(counts);
    return sum;
}

NAMED uint64_t distribute(void)
{
    uint32_t *out = malloc(VISITS * 64 * sizeof *out), next[BUCKETS];
    for (uint32_t b = 0; b < BUCKETS; b++)
        next[b] = b * (VISITS * 64 / BUCKETS);
    for (uint32_t k = 0; k < VISITS; k++)
        out[next[draw(BUCKETS)]++] = k;
    uint64_t sum = out[0];
    free(out);
    return sum;
}

NAMED uint64_t keep_history(void)
{
    uint32_t *ring = malloc(HISTORY * sizeof *ring);
    uint64_t sum = 0;
    for (uint32_t k = 0; k < 2 * HISTORY; k++)
        ring[k % HISTORY] = k;
    for (uint32_t k = 0; k < VISITS; k++)
        sum += ring[draw(HISTORY)];
    free(ring);
    return sum;
}

int main(void)
{
    uint64_t sum = visit_records() + look_up() + (uint64_t)sum_matrix() + follow_list();
    sum += fill_rounds() + count_sparsely() + distribute() + keep_history();
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
