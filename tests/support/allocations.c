/* Allocates 64 MiB in one of the ways that `tlb where` knows, touches all of it, and prints how much lies on huge pages:
 * allocations KIND [advised]. With the second word it does what `tlb where` says to change in the source. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 64 << 20, SMALL = 1000, BLOCK = 1 << 20 };

static size_t read_number(const char *path, const char *format)
{
    char line[256];
    size_t value = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, format, &value) == 1)
            break;
    if (file)
        fclose(file);
    return value;
}

static void *many(void *size)
{
    size_t n = *(size_t *)size;
    for (size_t i = 0; i < BYTES / n; i++)
        memset(malloc(n), 1, n);
    return NULL;
}

static char *allocated(const char *kind, int is_advised)
{
    char *p = NULL;
    size_t huge = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "%zu");
    int is_mapped = !strcmp(kind, "mmap");
    if (is_mapped)
        p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (is_advised)
        p = aligned_alloc(huge, (BYTES + huge - 1) / huge * huge);
    else if (!strcmp(kind, "malloc"))
        p = malloc(BYTES);
    else if (!strcmp(kind, "calloc"))
        p = calloc(1, BYTES);
    else if (!strcmp(kind, "realloc"))
        p = realloc(malloc(BYTES / 2), BYTES);
    else if (!strcmp(kind, "aligned_alloc"))
        p = aligned_alloc(64, BYTES);
    else if (posix_memalign((void **)&p, 64, BYTES))
        p = NULL;
    if (is_advised && madvise(p, BYTES, MADV_HUGEPAGE))
        perror("madvise");
    return p;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    size_t small = SMALL, block = BLOCK;
    pthread_t thread;
    if (!strcmp(kind, "small"))
        many(&small);
    else if (!strcmp(kind, "blocks"))
        many(&block);
    else if (!strcmp(kind, "thread"))
        pthread_create(&thread, NULL, many, &small), pthread_join(thread, NULL);
    else
        memset(allocated(kind, argc > 2), 1, BYTES);
    printf("huge=%zu\n", read_number("/proc/self/smaps_rollup", "AnonHugePages: %zu kB"));
    return 0;
}
