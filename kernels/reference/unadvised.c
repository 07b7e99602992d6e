/* A program with a known answer that asks for no page size: `tlb try` is judged by it.
 *
 *   unadvised chase MIB SEED   chases a random line of each page of MIB MiB of malloc, in one random cycle: large pages help
 *   unadvised sum MILLIONS     so many million dependent multiplications on one number: no pages help
 *
 * Prints ns per step. */
#include "common.h"
#include <unistd.h>

enum { line_bytes = 64 };
static const double chased_s = 0.15; /* the region of the chapter's rows */

static void **walk(void **at, long steps)
{
    while (steps--)
        at = *at;
    return at;
}

static int chase(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = bytes / page;
    char *memory = malloc(bytes + page);
    void ***order = malloc(count * sizeof *order);
    if (!count || !memory || !order)
        return 3;
    memory += -(uintptr_t)memory % page;
    memset(memory, 1, bytes);
    for (size_t i = 0; i < count; i++)
        order[i] = (void **)(memory + i * page + (size_t)(drand48() * (double)(page / line_bytes)) * line_bytes);
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = (size_t)(drand48() * (double)(i + 1));
        void **swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (size_t i = 0; i < count; i++)
        *order[i] = order[(i + 1) % count];
    void **at = order[0];
    free(order);
    at = walk(at, (long)count);
    double begin = seconds(), took;
    long steps = 0;
    do {
        at = walk(at, (long)count);
        steps += (long)count;
        took = seconds() - begin;
    } while (took < chased_s);
    printf("%.6f ns %d\n", took / (double)steps * 1e9, at == NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    srand48(argc > 3 ? atol(argv[3]) : (long)getpid());
    if (!strcmp(argv[1], "chase"))
        return chase(strtoull(argv[2], NULL, 10) << 20);
    long steps = atol(argv[2]) * 1000000;
    uint64_t x = (uint64_t)argc;
    double begin = seconds();
    for (long i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u; /* a multiplier mod 2^64 of Knuth's */
    printf("%.6f ns %d\n", (seconds() - begin) / (double)steps * 1e9, (int)(x & 1));
    return 0;
}
