/* beside.h: threads or processes on other CPUs while a kernel measures, and their TLB flushes. Each counts its turns in
 * shared memory; if one does not start, dies or hangs, the reason is "kernel-failed". */
#ifndef BESIDE_H
#define BESIDE_H
#include "cpus.h"
#include "region.h"
#include <sys/wait.h>

#define PATIENCE_NS 5000000000ull /* longer than a busy machine delays a thread */

struct other {
    void (*turn)(void *of);
    void *of;
    int cpu, apart;         /* apart: a process, with its own page tables */
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

static inline void start_beside(struct other *other, uint64_t n)
{
    char *shared = n ? map_memory(n * base_page(), MAP_SHARED | MAP_ANONYMOUS, -1, "counters") : NULL;
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

/* `bytes` must be whole large pages; a grid's 2 MiB are less than one where base pages are larger. */
static inline void must_make_large_pages(const struct config *c, uint64_t bytes)
{
    uint64_t large = sysfs_number(THP "hpage_pmd_size", 0), common = 2 << 20;
    if (!large || (bytes % large && bytes % common == 0))
        unavailable("page-size-unsupported", "a large page has %" PRIu64 " bytes here", large);
    if (bytes % large)
        bad_argument("%s takes --lines that make whole large pages here, of %" PRIu64 " bytes each.", c->kernel, large);
}

/* khugepaged joins pages too. It is woken by a process's first advice for large pages, or by its first fault on memory that
 * may have them, but not while they are off for the process. */
static int were_off;
static inline void turn_large_pages_off(void)
{
    were_off = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

static inline void let_collapse(const struct arena *a)
{
    if (madvise(a->base, a->bytes, MADV_HUGEPAGE)) /* the advice for base pages forbids collapsing too */
        unavailable("thp-never", "madvise: %s", strerror(errno));
    prctl(PR_SET_THP_DISABLE, were_off, 0, 0, 0);
}

/* Why MADV_COLLAPSE failed. EAGAIN: somebody else held one of the pages, for a moment. */
static inline const char *no_collapse(int error)
{
    return error == EINVAL ? "linux-lacks" : error == EAGAIN ? "backing-partial" : "memory-short";
}

/* perf would also count the threads and children. */
static inline void count_nothing(struct config *c) { c->control_fd = -1; }

static inline void await_turns(const struct other *other, uint64_t n, uint64_t *since)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t begin = now_ns();
        while (*other[i].turns == since[i]) {
            if (now_ns() - begin > PATIENCE_NS || (other[i].apart && waitpid(other[i].process, NULL, WNOHANG)))
                unavailable("kernel-failed", "of %" PRIu64 " on other CPUs that on CPU %d", n, other[i].cpu);
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

/* TLB flushes on these CPUs since boot, by the line TLB of /proc/interrupts. UINT64_MAX without that line: arm64 broadcasts
 * flushes in hardware. */
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
