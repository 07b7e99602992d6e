/* An independent dependent chase.
 *
 *   independent_chase LINES                    one line in each 4 KiB page, visited in one random cycle
 *   independent_chase LINES SEED 4k|thp|2m     the same on these pages, a random line of each 4 KiB
 *   independent_chase LINES SEED - packed|spread
 *   independent_chase self                     one pointer to itself: the load-to-use latency
 *
 * Prints ns per access: the median of seven passes of at least 20 ms each. */
#include "common.h"

struct node { struct node *next; };

static struct node *walk(struct node *n, long hops)
{
    while (hops >= 8) {
        n = n->next->next->next->next->next->next->next->next;
        hops -= 8;
    }
    while (hops-- > 0)
        n = n->next;
    return n;
}

int main(int argc, char **argv)
{
    pin_to_the_last_cpu();
    srand48(argc > 2 ? atol(argv[2]) : time(NULL));
    long lines = argc > 1 && strcmp(argv[1], "self") ? atol(argv[1]) : 1;
    const char *pages = argc > 3 && strcmp(argv[3], "-") ? argv[3] : "";
    size_t apart = argc > 4 && !strcmp(argv[4], "packed") ? 64 : 4096, bytes = (size_t)lines * apart;
    size_t room = (bytes + (4u << 20) - 1) >> 21 << 21; /* whole pages of 2 MiB, and one to align with */
    int huge = !strcmp(pages, "2m") ? MAP_HUGETLB | 21 << 26 : 0;
    char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | huge, -1, 0);
    if (memory == MAP_FAILED)
        return perror("mmap"), 1;
    memory = (char *)(((size_t)memory + (2u << 20) - 1) >> 21 << 21);
    madvise(memory, bytes, !strcmp(pages, "thp") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 0xA5, bytes);
    struct node **order = malloc((size_t)lines * sizeof *order);
    for (long i = 0; i < lines; i++)
        order[i] = (struct node *)(memory + (size_t)i * apart + (apart == 64 ? 0 : *pages ? (size_t)(drand48() * 64) * 64 : (size_t)i % 64 * 64));
        /* every L1 set alike */
    for (long i = lines - 1; i > 0; i--) { /* shuffle the visits, then link each to the one after it */
        long j = (long)(drand48() * (double)(i + 1));
        struct node *swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (long i = 0; i < lines; i++)
        order[i]->next = order[(i + 1) % lines];
    struct node *n = order[0];
    free(order);
    n = walk(n, lines < 1000000 ? 1000000 : lines);
    double pass[PASSES];
    long hops = lines;
    for (double took = 0; took < 0.02; hops *= 2) {
        double begin = seconds();
        n = walk(n, hops);
        took = seconds() - begin;
        if (took >= 0.02)
            break;
    }
    for (int i = 0; i < PASSES; i++) {
        double begin = seconds();
        n = walk(n, hops);
        pass[i] = (seconds() - begin) / (double)hops * 1e9;
    }
    printf("%.6f %p\n", median(pass), (void *)n);
    return 0;
}
