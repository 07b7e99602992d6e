/* big_array: one large array in C, as everybody allocates it or on huge pages; random reads of single bytes, timed.
 *
 *   big_array plain|huge|pool BYTES
 *
 * Prints one JSON line and then waits for stdin, so that /proc/PID/smaps can be asked what the array got. Exit 2: bad
 * arguments; exit 3: the kernel refuses huge pages. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

enum { BATCHES = 9, ACCESSES = 1 << 20 };

static unsigned char *advised(size_t bytes)
{
    /* [recipe] */
    unsigned char *array = aligned_alloc(2 << 20, bytes); /* bytes: a multiple of 2 MiB */
    if (array && madvise(array, bytes, MADV_HUGEPAGE) != 0) /* before the first write */
        exit(3);
    /* [end] */
    return array;
}

static unsigned char *from_pool(size_t bytes)
{
    /* [pool] */
    void *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);
    if (array == MAP_FAILED) /* 2^21: the size, or it is whatever the kernel has as its default */
        exit(3);
    /* [end] */
    return array;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0, x = 88172645463325252u, sum = 0, batch_ns[BATCHES];
    if (bytes == 0 || (strcmp(argv[1], "plain") != 0 && strcmp(argv[1], "huge") != 0 && strcmp(argv[1], "pool") != 0))
        return 2;
    unsigned char *array = argv[1][0] == 'h' ? advised(bytes) : argv[1][1] == 'o' ? from_pool(bytes) : malloc(bytes);
    if (!array)
        return 1;
    memset(array, 1, bytes);
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t begin = now_ns();
        for (int i = 0; i < ACCESSES; i++) { /* Marsaglia's xorshift64: high bits choose the page, low ones the byte in it */
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            sum += array[((x >> 32) * (bytes >> 12) >> 32) << 12 | (x & 4095)];
        }
        batch_ns[batch] = now_ns() - begin;
    }
    printf("{\"language\": \"c\", \"variant\": \"%s\", \"array_bytes\": %" PRIu64 ", \"address\": %" PRIuPTR
           ", \"accesses\": %d, \"sum\": %" PRIu64 ", \"batch_ns\": [", argv[1], bytes, (uintptr_t)array, ACCESSES, sum);
    for (int batch = 0; batch < BATCHES; batch++)
        printf("%s%" PRIu64, batch ? ", " : "", batch_ns[batch]);
    puts("]}");
    fflush(stdout);
    getchar();
    return 0;
}
