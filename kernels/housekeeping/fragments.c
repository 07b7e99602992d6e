/* fragments: fragmented memory, without a free large page, and first touches in it, each by the clock.
 *
 *   fragments ROOM FILL LEAVE      bytes: of a large page, to fragment (0: none), to leave available to others
 *
 * FILL bytes are written on base pages and every other page is freed; other free memory is taken as large pages. The pages
 * that stay are movable: compaction makes large pages again, at the cost that is measured. Commands on stdin, each with a
 * line in reply:
 *
 *   plug              take the large pages that there are again; their number
 *   touch thp N       first touches of all base pages in the room of N large pages, advised; kept if memory is fragmented, or the next
 *                     round would get them
 *   touch 4k N        the same on base pages, then freed
 *
 * Ends with its parent, and is the OOM killer's first choice. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (64ull << 20) /* between two looks at the memory left */
#define MISSES 16           /* rooms in a row without a large page: none are left */

static uint64_t room, leave, page;

static void fail(const char *code, const char *what)
{
    printf("{\"reason\": \"%s\", \"detail\": \"%s\"}\n", code, what);
    exit(3);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static int may_take(uint64_t bytes)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f) fclose(f);
    return kib << 10 >= leave + bytes;
}

static char *space(uint64_t bytes, int advice)
{
    char *at = mmap(NULL, bytes + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        fail("memory-short", strerror(errno));
    at += (room - (uint64_t)at % room) % room;
    if (madvise(at, bytes, advice))
        fail("thp-never", strerror(errno));
    return at;
}

static void fill(uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes; done += CHUNK) {
        if (!may_take(CHUNK))
            fail("memory-whole", "what others need was reached while it was filled");
        char *at = space(CHUNK, MADV_NOHUGEPAGE);
        for (uint64_t i = 0; i < CHUNK; i += page)
            *(volatile char *)(at + i) = 1;
        for (uint64_t i = 0; i < CHUNK; i += 2 * page)
            madvise(at + i, page, MADV_DONTNEED);
    }
}

/* Whether a room touched at its beginning has a large page: then its last base page is resident too. */
static int is_large(char *at)
{
    unsigned char there = 0;
    return !mincore(at + room - page, page, &there) && (there & 1);
}

/* Return the number taken. */
static uint64_t plug(void)
{
    static char *at, *end; /* rooms not used yet */
    uint64_t taken = 0;
    for (int misses = 0; misses < MISSES; at += room) {
        if (at == end && !may_take(CHUNK))
            fail("memory-whole", "what others need was reached, and there are large pages yet");
        if (at == end) {
            at = space(CHUNK, MADV_HUGEPAGE);
            end = at + CHUNK;
        }
        *(volatile char *)at = 1;
        int large = is_large(at);
        taken += (uint64_t)large;
        misses = large ? 0 : misses + 1;
    }
    return taken;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* [timed: touch] */
static uint32_t touch(char *at)
{
    uint64_t begin = now_ns();
    *(volatile char *)at = 1;
    uint64_t ns = now_ns() - begin;
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}
/* [end] */

/* Print each room's first touch, and quantiles of all base pages'. */
static void touches(uint64_t n, int large, int keep)
{
    uint64_t pages = room / page, huge = 0, sum = 0, count = 0;
    uint32_t *ns = malloc(n * pages * sizeof *ns);
    if (!ns || !may_take(n * room))
        fail("memory-whole", "what others need was reached before all was measured");
    memset(ns, 0, n * pages * sizeof *ns); /* else its own faults are timed */
    char *base = space(n * room, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    printf("{\"first_ns\": [");
    for (uint64_t i = 0; i < n; i++) {
        char *at = base + i * room;
        uint32_t first = ns[count++] = touch(at);
        huge += (uint64_t)is_large(at);
        for (uint64_t k = 1; k < pages; k++)
            ns[count++] = touch(at + k * page);
        printf("%s%" PRIu32, i ? ", " : "", first);
    }
    for (uint64_t i = 0; i < count; i++)
        sum += ns[i];
    qsort(ns, count, sizeof *ns, by_size);
    printf("], \"large\": %" PRIu64 ", \"room_ns\": %.0f, \"p50_ns\": %" PRIu32 ", \"p99_ns\": %" PRIu32 ", \"p999_ns\": %" PRIu32
           ", \"longest_ns\": %" PRIu32 "}\n", huge, (double)sum / (double)n, ns[count / 2], ns[count * 99 / 100], ns[count * 999 / 1000],
           ns[count - 1]);
    if (!keep)
        munmap(base, n * room);
    free(ns);
}

int main(int argc, char **argv)
{
    char line[64], pages[8];
    unsigned long long n;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    FILE *score = fopen("/proc/self/oom_score_adj", "w");
    if (score) {
        fputs("1000", score);
        fclose(score);
    }
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (argc != 4 || (room = strtoull(argv[1], NULL, 10)) < 2 * page || room > CHUNK)
        fail("bad-parameter", "fragments ROOM FILL LEAVE");
    leave = strtoull(argv[3], NULL, 10);
    uint64_t bytes = strtoull(argv[2], NULL, 10);
    fill(bytes);
    printf("{\"large\": %" PRIu64 "}\n", bytes ? plug() : 0);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "plug\n"))
            printf("{\"large\": %" PRIu64 "}\n", plug());
        else if (sscanf(line, "touch %7s %llu", pages, &n) == 2 && n && n <= 4096)
            touches(n, !strcmp(pages, "thp"), bytes && !strcmp(pages, "thp"));
        else
            fail("bad-parameter", "plug, touch thp N, touch 4k N");
    }
    return 0;
}
