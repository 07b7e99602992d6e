/* An independent loop over a file's pages, for `make bench`, like lmbench's lat_pagefault.
 *
 *   independent_fault BYTES    touch every page of a mapped file in a drawn order and unmap it; less unmapping and mapping alone
 *
 * Prints ns a page: the median of seven times of at least 50 ms each, beside as many of the empty loop. */
#include "common.h"
#include <unistd.h>

static long pages, size, *offset;
static char *where;
static int file;
static long total;

static void map_again(void)
{
    if (where)
        munmap(where, (size_t)size);
    where = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, file, 0);
    if (where == MAP_FAILED || msync(where, (size_t)size, MS_INVALIDATE))
        exit((perror("mmap"), 1));
    madvise(where, (size_t)size, MADV_NOHUGEPAGE);
}

static double turns(long n, int touched)
{
    double begin = seconds();
    while (n--) {
        for (long i = 0; touched && i < pages; i++)
            total += *(volatile char *)(where + offset[i]);
        map_again();
    }
    return seconds() - begin;
}

int main(int argc, char **argv)
{
    char name[512];
    long page = sysconf(_SC_PAGESIZE), n = 1;
    double ns[PASSES];
    snprintf(name, sizeof name, "%s/independent-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    size = argc > 1 ? atol(argv[1]) : 12l << 20;
    pages = size / page;
    pin_to_the_last_cpu();
    file = mkstemp(name);
    char *content = malloc((size_t)size);
    offset = malloc(sizeof *offset * (size_t)pages);
    if (file < 0 || unlink(name) || !content || !offset)
        return perror(name), 1;
    memset(content, 1, (size_t)size);
    for (long i = 0; i < pages; i++) /* a file system may keep what is written at once in one piece */
        if (write(file, content, (size_t)page) != page)
            return perror(name), 1;
    fsync(file);
    for (long i = 0; i < pages; i++)
        offset[i] = i * page;
    srand48(getpid());
    for (long i = pages - 1; i > 0; i--) {
        long j = (long)(drand48() * (double)(i + 1)), swap = offset[i];
        offset[i] = offset[j];
        offset[j] = swap;
    }
    map_again();
    while (turns(n, 1) < 0.05)
        n *= 2;
    for (int i = 0; i < PASSES; i++)
        ns[i] = (turns(n, 1) - turns(n, 0)) / (double)(n * pages) * 1e9;
    printf("%.6f 0x%lx\n", median(ns), total);
    return 0;
}
