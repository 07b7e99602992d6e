/* sharded: threads that read a line of one random page after another of a large array.
 *
 *     sharded BYTES THREADS READS
 *
 * With SHARDED=1 in the environment each thread reads its own part of the pages, else any. One line a page fits the data
 * caches best. Prints the reads and the wall time of one, in all threads together. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { line_bytes = 64 };

struct part {
    pthread_t thread;
    const unsigned char *array;
    uint64_t first, pages, page_bytes, reads, seed, sum;
    pthread_barrier_t *begin;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void *reads(void *given)
{
    struct part *part = given;
    uint64_t state = part->seed, sum = 0, lines = part->page_bytes / line_bytes;
    pthread_barrier_wait(part->begin);
    for (uint64_t i = 0; i < part->reads; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;  /* xorshift64 (Marsaglia, J. Stat. Softw. 8, 2003) */
        uint64_t page = part->first + (state >> 20) % part->pages + sum - i;  /* sum is i: the next read waits for this one */
        sum += part->array[page * part->page_bytes + page % lines * line_bytes];
    }
    part->sum = sum;
    return NULL;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), pages = strtoull(words[1], NULL, 10) / page_bytes;
    uint64_t threads = strtoull(words[2], NULL, 10), each = strtoull(words[3], NULL, 10), sum = 0;
    unsigned char *array = NULL;
    struct part *parts = calloc(threads ? threads : 1, sizeof *parts);
    pthread_barrier_t begin;
    if (!threads || threads > pages)
        return 2;
    if (!parts || posix_memalign((void **)&array, page_bytes, pages * page_bytes) || pthread_barrier_init(&begin, NULL, threads + 1))
        return 3;
    for (uint64_t i = 0; i < pages * page_bytes; i += line_bytes)
        array[i] = 1;
    int is_sharded = getenv("SHARDED") != NULL;
    for (uint64_t t = 0; t < threads; t++) {
        uint64_t own = pages / threads;
        parts[t] = (struct part){.array = array, .first = is_sharded ? t * own : 0, .pages = is_sharded ? own : own * threads,
                                 .page_bytes = page_bytes, .reads = each, .seed = 0x9e3779b97f4a7c15 * (t + 1), .begin = &begin};
        if (pthread_create(&parts[t].thread, NULL, reads, &parts[t]))
            return 3;
    }
    pthread_barrier_wait(&begin);
    double begin_ns = now_ns();
    for (uint64_t t = 0; t < threads; t++) {
        pthread_join(parts[t].thread, NULL);
        sum += parts[t].sum;
    }
    printf("reads: %" PRIu64 "\nns a read: %.3f\n", sum, (now_ns() - begin_ns) / (double)(threads * each));
    return 0;
}
