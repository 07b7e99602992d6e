/* An independent program like ebizzy: threads copy a drawn chunk, look a number up in the copy, and unmap it; KEPT 1: keep
 * it.
 *
 *   independent_search THREADS CHUNKS BYTES KEPT
 *
 * Runs for half a second. Prints the records a second of all threads. */
#include "common.h"
#include <pthread.h>

static long chunks, bytes, kept;
static long **chunk;
static volatile int go;

static void *fresh(void)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? exit((perror("mmap"), 1)), NULL : p;
}

static int by_number(const void *a, const void *b)
{
    return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b);
}

static void *searching(void *given)
{
    unsigned state = (unsigned)(size_t)given;
    long records = 0, words = bytes / (long)sizeof(long), *own = kept ? fresh() : NULL;
    while (!go)
        sched_yield();
    for (; go == 1; records++) {
        long *copy = kept ? own : fresh(), key = rand_r(&state) % words;
        memcpy(copy, chunk[rand_r(&state) % chunks], (size_t)bytes);
        if (!bsearch(&key, copy, (size_t)words, sizeof key, by_number))
            exit((fputs("a key is not there\n", stderr), 1));
        if (!kept)
            munmap(copy, (size_t)bytes);
    }
    return (void *)records;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 1, records = 0;
    chunks = argc > 2 ? atol(argv[2]) : 7;
    bytes = argc > 3 ? atol(argv[3]) : 512 << 10;
    kept = argc > 4 && atol(argv[4]);
    pthread_t thread[threads];
    struct timespec begin, end, half = {0, 500000000};
    chunk = malloc(sizeof *chunk * (size_t)chunks);
    for (long i = 0; i < chunks; i++) {
        chunk[i] = fresh();
        for (long k = 0; k < bytes / (long)sizeof(long); k++)
            chunk[i][k] = k;
    }
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, searching, (void *)(size_t)(i + 1)))
            return perror("pthread_create"), 1;
    nanosleep(&half, NULL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    go = 1;
    nanosleep(&half, NULL);
    go = 2;
    for (long i = 0; i < threads; i++) {
        void *found;
        pthread_join(thread[i], &found);
        records += (long)found;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.3f\n", (double)records / ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)));
    return 0;
}
