/* Are the huge pages of this virtual machine whole, or does its host splinter them?
 *
 *     cc -O2 splintered_pages.c -o splintered_pages && ./splintered_pages
 *
 * Loads 1,024 cache lines in a random cycle, each load waiting for the one before: one line a base
 * page, and the same number side by side. The second takes as long without translation, so the
 * difference is what translation adds. 1,024 base pages are more than the first level of a TLB
 * holds and fewer than the second, so on base pages each load pays for a hit in the second level.
 * On huge pages that the host leaves whole it pays nothing, since a few entries cover all lines.
 * If it pays as much as on base pages, an entry covers no more than a base page.
 *
 * Needs transparent huge pages (/sys/kernel/mm/transparent_hugepage/enabled: madvise or always).
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 1024, LINE = 64, HOPS = 1 << 16, RUNS = 16, MAPPINGS = 9 };

static long number_in(const char *file, const char *format)
{
    long number = 0;
    char line[256];
    FILE *in = fopen(file, "r");
    while (in && fgets(line, sizeof line, in) && sscanf(line, format, &number) != 1) {
    }
    if (in)
        fclose(in);
    return number;
}

/* Where line n lies. Its place in a base page moves on from page to page, so that the lines do not
 * compete for one set of the cache. */
static void **line_at(char *memory, size_t step, size_t n)
{
    return (void **)(memory + n * step + (step > LINE ? n * LINE % step : 0));
}

/* ns a load of lines that are `step` bytes apart: the fastest of some runs, as others may use the
 * processor too. */
static double load_ns(char *memory, size_t step)
{
    size_t next[LINES], at;
    double fastest = 1e9;
    for (at = 0; at < LINES; at++)
        next[at] = at;
    for (at = LINES - 1; at > 0; at--) { /* Sattolo: one cycle through all lines */
        size_t other = (size_t)rand() % at, kept = next[at];
        next[at] = next[other];
        next[other] = kept;
    }
    for (at = 0; at < LINES; at++)
        *line_at(memory, step, at) = line_at(memory, step, next[at]);
    void *volatile *line = line_at(memory, step, 0);
    for (int run = 0; run < RUNS; run++) { /* the first also fills the caches */
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (long hop = 0; hop < HOPS; hop++)
            line = *line;
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        fastest = ns / HOPS < fastest ? ns / HOPS : fastest;
    }
    return fastest;
}

/* What translation adds to a load in a fresh mapping, ns. Exits with 3 if it is not of the kind. */
static double translation_ns(size_t base, size_t huge, int is_huge)
{
    size_t size = (LINES * base / huge + 2) * huge;
    char *mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED || madvise(mapping, size, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) {
        perror("Memory, or advice about its pages, was refused");
        exit(3);
    }
    char *memory = (char *)(((uintptr_t)mapping + huge - 1) / huge * huge);
    long before = number_in("/proc/self/smaps_rollup", "AnonHugePages: %ld");
    double added = load_ns(memory, base) - load_ns(memory, LINE);
    long got = number_in("/proc/self/smaps_rollup", "AnonHugePages: %ld") - before;
    if ((got * 1024 >= (long)(LINES * base)) != is_huge) {
        fprintf(stderr, "Linux granted %ld kB of huge pages. Set transparent_hugepage/enabled to madvise.\n", got);
        exit(3);
    }
    munmap(mapping, size);
    return added;
}

static int ascending(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(void)
{
    size_t base = (size_t)sysconf(_SC_PAGESIZE);
    long huge = number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "%ld");
    double added[2][MAPPINGS];
    if (!huge) {
        fputs("This Linux has no transparent huge pages, so there is nothing to compare.\n", stderr);
        return 3;
    }
    for (int mapping = 0; mapping < MAPPINGS; mapping++)
        for (int is_huge = 0; is_huge < 2; is_huge++)
            added[is_huge][mapping] = translation_ns(base, (size_t)huge, is_huge);
    for (int is_huge = 0; is_huge < 2; is_huge++) {
        qsort(added[is_huge], MAPPINGS, sizeof(double), ascending);
        printf("translation on %s pages: %.2f ns a load (%.2f to %.2f in %d mappings)\n",
               is_huge ? "huge" : "base", added[is_huge][MAPPINGS / 2], added[is_huge][0],
               added[is_huge][MAPPINGS - 1], MAPPINGS);
    }
    /* The second and the last but one of nine enclose the median in 96% of cases. */
    double half = added[0][1] / 2;
    const char *verdict = "cannot tell: the mappings differ too much";
    if (half < 0.1)
        verdict = "cannot tell: translation costs next to nothing on base pages";
    else if (added[1][MAPPINGS - 2] < half)
        verdict = "whole: an entry covers many base pages";
    else if (added[1][1] > half)
        verdict = "splintered: an entry covers no more than a base page";
    puts(verdict);
    return 0;
}
