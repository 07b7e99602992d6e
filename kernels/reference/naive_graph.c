/* The graph of a walk as one writes it first, for `make bench`: one thread, memset, then four random edges a vertex by
 * xorshift and a division.
 *
 *   naive_graph VERTICES [HOPS [4k|thp]]
 *
 * Prints the seconds until the graph is ready and ns per hop: the median of seven walks of HOPS. */
#include "common.h"

struct vertex { uint32_t edge[4], rest[12]; };

static uint64_t xorshift(uint64_t *x) /* Marsaglia, 2003 */
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

int main(int argc, char **argv)
{
    uint64_t vertices = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20, hops = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t random = 88172645463325252ull;
    size_t bytes = vertices * sizeof(struct vertex);
    double begin = seconds(), ready, pass[PASSES];
    char *room = mmap(NULL, bytes + (2u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return perror("mmap"), 1;
    struct vertex *vertex = (struct vertex *)(((size_t)room + (2u << 20) - 1) >> 21 << 21);
    madvise(vertex, bytes, argc > 3 && !strcmp(argv[3], "thp") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(vertex, 0, bytes);
    for (uint64_t v = 0; v < vertices; v++)
        for (int k = 0; k < 4; k++)
            vertex[v].edge[k] = (uint32_t)(xorshift(&random) % vertices);
    ready = seconds() - begin;
    uint32_t at = 0;
    for (int i = -1; hops && i < PASSES; i++) { /* the first warms up */
        begin = seconds();
        for (uint64_t h = hops; h; h--)
            at = vertex[at].edge[xorshift(&random) & 3];
        pass[i < 0 ? 0 : i] = (seconds() - begin) / (double)hops * 1e9;
    }
    printf("%.6f", ready);
    if (hops)
        printf(" %.4f", median(pass));
    printf(" %u\n", at + vertex[vertices / 2].edge[1]);
    return 0;
}
