/* profiled_chase: a chase over one line a page, and a profile of it by a clock that needs no counters (setitimer, SIGPROF).
 *
 *     profiled_chase BYTES SECONDS
 *
 * Prints the number of ticks in the loop, and of those at the most frequent instruction: the load that misses or the one
 * after it, because a core finishes its oldest instruction before it takes the signal. Exit status 2: bad arguments; 3:
 * memory is short. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { most_ticks = 1 << 16, tick_us = 1000, line_bytes = 64, hops_a_look = 1 << 16 };

static uintptr_t ticks[most_ticks];
static volatile sig_atomic_t found;

static void tick(int number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    (void)number, (void)info;
    if (found < most_ticks) {
#if defined __x86_64__
        ticks[found++] = (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
        ticks[found++] = (uintptr_t)at->uc_mcontext.pc;
#else
#error "for x86-64 and arm64"
#endif
    }
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = strtoull(words[1], NULL, 10), lines = bytes / page;
    double seconds = strtod(words[2], NULL);
    char *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint32_t *order = malloc(lines * sizeof *order);
    if (lines < 2 || lines > UINT32_MAX)
        return 2;
    if (arena == MAP_FAILED || !order)
        return 3;
    madvise(arena, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < lines; i++)
        order[i] = (uint32_t)i;
    uint64_t state = 17;
    for (size_t i = lines - 1; i; i--) {  /* Sattolo (Inf. Process. Lett. 22, 1986): one cycle */
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t j = (size_t)(state % i);
        uint32_t held = order[i];
        order[i] = order[j], order[j] = held;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(arena + i * page + i % (page / line_bytes) * line_bytes) = arena + order[i] * page
            + order[i] % (page / line_bytes) * line_bytes;
    struct sigaction act = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every = {{0, tick_us}, {0, tick_us}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGPROF, &act, NULL);
    setitimer(ITIMER_PROF, &every, NULL);
    void *at = arena;
    for (double end_s = now_s() + seconds; now_s() < end_s;)
        for (int i = 0; i < hops_a_look; i++)
            at = *(void *volatile *)at;
    setitimer(ITIMER_PROF, &never, NULL);
    qsort(ticks, (size_t)found, sizeof *ticks, by_address);
    int most = 0;
    for (int i = 0, same = 0; i < found; i++) {
        same = i && ticks[i] == ticks[i - 1] ? same + 1 : 1;
        most = same > most ? same : most;
    }
    printf("{\"ticks\": %d, \"most\": %d, \"last\": %d}\n", (int)found, most, at != NULL);
    return 0;
}
