/* beside.h: threads or processes that run on other CPUs while a kernel measures, and what their CPUs saw of its TLB flushes.
 *
 * Each repeats its turn until the kernel ends, and counts its turns in memory that both see: one that did not begin, or died, or
 * stands still gives no number ("neighbour-gone"). Processes die with their parent. */
#ifndef BESIDE_H
#define BESIDE_H
#include "cpus.h"
#include "region.h"
#include <sys/wait.h>

#define PATIENCE_NS 5000000000ull /* a thread that a busy computer has not let run for so long is as good as gone */

struct other {
    void (*turn)(void *of); /* NULL: it only runs */
    void *of;
    int cpu, apart;         /* apart: a process of its own, with other page tables */
    pthread_t thread;
    pid_t process;
    volatile uint64_t *turns;
};

static void *take_turns(void *given)
{
    struct other *o = given;
    for (;;) {
        if (o->turn)
            o->turn(o->of);
        ++*o->turns;
    }
    return NULL;
}

/* All of them, each counting on a page of its own, and each has had a turn. */
static inline void start_beside(struct other *other, uint64_t n)
{
    char *shared = n ? mmap(NULL, n * base_page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : NULL;
    if (shared == MAP_FAILED)
        unavailable("memory-short", "no room for %" PRIu64 " counts: %s", n, strerror(errno));
    for (uint64_t i = 0; i < n; i++) {
        struct other *o = &other[i];
        o->turns = (volatile uint64_t *)(shared + i * base_page());
        if (!o->apart) {
            start_on(o->cpu, &o->thread, take_turns, o);
            continue;
        }
        union cpu_mask one = only_cpu(o->cpu);
        pid_t parent = getpid();
        o->process = fork();
        if (!o->process) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent || sched_setaffinity(0, sizeof one, &one.set))
                _exit(1);
            take_turns(o);
        }
        if (o->process < 0)
            unavailable("memory-short", "a process on CPU %d could not be started: %s", o->cpu, strerror(errno));
    }
}

/* So many bytes, joined to large pages, are whole ones; 2 MiB, which a grid asks for, are less than one where base pages are larger. */
static inline void must_make_large_pages(const struct config *c, uint64_t bytes)
{
    uint64_t large = sysfs_number(THP "hpage_pmd_size", 0), common = 2 << 20;
    if (!large || (bytes % large && bytes % common == 0))
        unavailable("page-size-unsupported", "a large page has %" PRIu64 " bytes here", large);
    if (bytes % large)
        bad_argument("%s takes --lines that make whole large pages here, of %" PRIu64 " bytes each.", c->kernel, large);
}

/* perf counts the threads and children of a kernel with it, and none of theirs is an access: what runs beside others is not counted. */
static inline void count_nothing(struct config *c) { c->control_fd = -1; }

/* Each of them has had another turn since `since` was noted; notes again. */
static inline void await_turns(const struct other *other, uint64_t n, uint64_t *since)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t begin = now_ns();
        while (*other[i].turns == since[i]) {
            if (now_ns() - begin > PATIENCE_NS || (other[i].apart && waitpid(other[i].process, NULL, WNOHANG)))
                unavailable("neighbour-gone", "of %" PRIu64 " on other CPUs that on CPU %d", n, other[i].cpu);
            sched_yield();
        }
        since[i] = *other[i].turns;
    }
}

static inline void stop_beside(const struct other *other, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (other[i].apart && !kill(other[i].process, SIGKILL))
            waitpid(other[i].process, NULL, 0);
}

/* Flushes of the TLB that other CPUs asked of those of `other`, since boot: the line TLB of /proc/interrupts, which has a
 * column a CPU that is online. UINT64_MAX where there is no such line: arm64 broadcasts in hardware, and counts nothing. */
static inline uint64_t flushes_at(const struct other *other, uint64_t n)
{
    FILE *f = fopen("/proc/interrupts", "r");
    char *line = NULL, *word, *rest;
    size_t room = 0;
    static int column[MOST_CPUS];
    int columns = 0;
    uint64_t seen = UINT64_MAX;
    if (f && getline(&line, &room, f) > 0)
        for (word = strtok_r(line, " \n", &rest); word && columns < MOST_CPUS; word = strtok_r(NULL, " \n", &rest))
            column[columns++] = atoi(word + 3); /* CPU12 */
    while (f && seen == UINT64_MAX && getline(&line, &room, f) > 0) {
        word = strtok_r(line, " \n", &rest);
        if (!word || strcmp(word, "TLB:"))
            continue;
        seen = 0;
        for (int i = 0; i < columns && (word = strtok_r(NULL, " \n", &rest)); i++)
            for (uint64_t k = 0; k < n; k++)
                seen += other[k].cpu == column[i] ? strtoull(word, NULL, 10) : 0;
    }
    if (f) fclose(f);
    free(line);
    return seen;
}
#endif
