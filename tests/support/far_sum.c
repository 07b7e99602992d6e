/* far_sum: a program with a known answer that large pages change and nothing else does.
 *
 *   far_sum malloc|mmap|pieces|blocks|thread MIB PASSES [MS]
 *
 * It gets MIB MiB: as one block of malloc's or the kernel's, as pieces of 256 KiB of the kernel's, each touched before the next, or as
 * blocks of 1000 bytes, of the main thread's heap or another's; writes the low byte of a line's number at its beginning; and reads all lines PASSES times in an order that leaves the page at each step. Then it
 * holds what it has for MS ms, to be looked at. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { line_bytes = 64, block_bytes = 1000, piece_bytes = 256 << 10 };

static unsigned char **lines;
static size_t count;

static void *blocks(void *unused)
{
    const size_t each = block_bytes / line_bytes;
    for (size_t i = 0; i < count; i++)
        lines[i] = i % each ? lines[i - 1] + line_bytes : malloc(block_bytes);
    return unused;
}

static void pieces(void)
{
    const size_t each = piece_bytes / line_bytes;
    for (size_t i = 0; i < count; i++) {
        lines[i] = i % each ? lines[i - 1] + line_bytes
                            : mmap(NULL, piece_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *lines[i] = 1; /* before the next piece is mapped */
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    count = bytes / line_bytes;
    unsigned char *whole = NULL;
    pthread_t other;
    if (!strcmp(argv[1], "pieces") || !strcmp(argv[1], "blocks") || !strcmp(argv[1], "thread")) {
        lines = malloc(count * sizeof *lines);
        if (!strcmp(argv[1], "pieces"))
            pieces();
        else if (!strcmp(argv[1], "blocks"))
            blocks(NULL);
        else if (pthread_create(&other, NULL, blocks, NULL) || pthread_join(other, NULL))
            return 3;
    } else {
        whole = !strcmp(argv[1], "malloc") ? malloc(bytes)
                                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!whole || whole == MAP_FAILED)
            return 3;
    }
    for (size_t i = 0; i < count; i++)
        *(lines ? lines[i] : whole + i * line_bytes) = (unsigned char)i;
    uint64_t sum = 0;
    for (uint64_t pass = strtoull(argv[3], NULL, 10), at = 1; pass; pass--)
        for (size_t i = 0; i < count; i++) {
            at = (at * 1664525 + 1013904223) % count; /* all of a power of two once (Hull & Dobell 1962) */
            sum += *(lines ? lines[at] : whole + at * line_bytes);
        }
    printf("sum=%llu\n", (unsigned long long)sum);
    usleep(argc > 4 ? 1000 * (useconds_t)atoi(argv[4]) : 0);
    return 0;
}
