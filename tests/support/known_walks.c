/* Programs with known page walks, for tests of `tlb where`. Mode, pages, passes:
 * gather: independent reads of `gathered`, twice a pass; chase: those, and a dependent cycle over `chased`; surgical: those, and
 * a cycle of indices over `second`. forked: the reads of gather alone, by a child, of a mapping that was trimmed and of which its parent touched every second page. stream: reads one array in order. sparse: reads one page in 16. small: a list of nodes of 64 bytes, followed. Each visits
 * one line of a page. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
}

static uint32_t *shuffled(uint32_t n)
{
    uint32_t *order = malloc(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t k = (uint32_t)draw(i), kept = order[i];
        order[i] = order[k], order[k] = kept;
    }
    return order;
}

__attribute__((noinline)) char *allocate_chased(uint64_t bytes) { return malloc(bytes); }
__attribute__((noinline)) char *allocate_second(uint64_t bytes) { return malloc(bytes); }
__attribute__((noinline)) char *allocate_gathered(uint64_t bytes) { return malloc(bytes); }

__attribute__((noinline)) char *allocate_trimmed(uint64_t bytes)
{
    char *all = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(all, PAGE);
    return all + PAGE;
}

__attribute__((noinline)) void *follow(void *p, uint64_t hops)
{
    for (; hops; hops--)
        p = *(void **)p; /* CHASED */
    return p;
}

__attribute__((noinline)) uint64_t gather(const char *array, const uint32_t *order, uint32_t n, uint64_t passes)
{
    uint64_t sum = 0;
    for (; passes; passes--)
        for (uint32_t i = 0; i < n; i++)
            sum += (uint64_t)array[(uint64_t)order[i] * PAGE]; /* GATHERED */
    return sum;
}

__attribute__((noinline)) uint64_t hop(const char *array, uint32_t place, uint64_t hops)
{
    for (; hops; hops--)
        place = *(const uint32_t *)(array + (uint64_t)place * PAGE);
    return place;
}

static uint64_t hop_in_a_cycle(char *array, const uint32_t *order, uint32_t n, uint64_t passes)
{
    for (uint32_t i = 0; i < n; i++)
        *(uint32_t *)(array + (uint64_t)order[i] * PAGE) = order[(i + 1) % n];
    return hop(array, order[0], n * passes);
}

static char *cycle(char *array, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        *(void **)(array + (uint64_t)order[i] * PAGE) = array + (uint64_t)order[(i + 1) % n] * PAGE;
    return array + (uint64_t)order[0] * PAGE;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint32_t pages = (uint32_t)atoi(argv[2]);
    uint64_t passes = (uint64_t)atoi(argv[3]), bytes = (uint64_t)pages * PAGE, sum = 0;
    uint32_t *order = shuffled(pages);
    int is_surgical = !strcmp(argv[1], "surgical"), is_chase = is_surgical || !strcmp(argv[1], "chase");
    if (is_chase || !strcmp(argv[1], "gather")) {
        char *gathered = allocate_gathered(bytes);
        memset(gathered, 1, bytes);
        if (is_chase) {
            char *chased = allocate_chased(bytes);
            sum += follow(cycle(chased, order, pages), pages * passes) != NULL;
            if (!is_surgical)
                free(chased);
        }
        if (is_surgical)
            sum += hop_in_a_cycle(allocate_second(bytes), order, pages, passes);
        sum += gather(gathered, order, pages, 2 * passes);
    } else if (!strcmp(argv[1], "forked")) {
        char *trimmed = allocate_trimmed(bytes);
        for (uint64_t i = 0; i < bytes; i += 2 * PAGE)
            trimmed[i] = 1;
        if (fork())
            return wait(NULL) < 0;
        sum = gather(trimmed, order, pages, 2 * passes);
    } else if (!strcmp(argv[1], "stream")) {
        char *array = malloc(bytes);
        memset(array, 1, bytes);
        for (uint64_t k = 0; k < passes; k++)
            for (uint64_t i = 0; i < bytes; i += 64)
                sum += (uint64_t)array[i];
    } else if (!strcmp(argv[1], "sparse")) {
        char *array = allocate_gathered(bytes);
        for (uint64_t i = 0; i < bytes; i += 16 * PAGE)
            sum += (uint64_t)array[i];
    } else {
        void **nodes = malloc(pages * sizeof *nodes), *first = NULL;
        for (uint32_t i = 0; i < pages; i++)
            nodes[i] = malloc(PAGE - 16);
        for (uint32_t i = 0; i < pages; i++)
            *(void **)nodes[order[i]] = nodes[order[(i + 1) % pages]];
        first = nodes[order[0]];
        free(nodes);
        sum = follow(first, pages * passes) != NULL;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
