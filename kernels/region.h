/* region.h: the timed region, which holds the accesses and nothing else. measure()
 *
 *   1. warms up, at least 5 ms (a core leaves its idle state) or as the kernel says
 *   2. reads the core's clock, which displaces lines from the first caches
 *   3. warms up again
 *   4. opens perf's gate (perf stat --delay=-1 --control fd:...), times batches of equal work, closes it
 *   5. reads the core's clock again */
#ifndef REGION_H
#define REGION_H
#include "backing.h"
#include <sys/resource.h>

#define MIN_BATCHES 5              /* fewer make a poor median */
#define MOST_BATCHES 16
#define CLOCK_SAMPLES 16           /* half before the region, half after */

struct region {
    double batch[MOST_BATCHES], ghz[CLOCK_SAMPLES];
    uint64_t accesses, elapsed_ns, cpu_ns, prepare_ns, warm_ns, table_bytes, checksum;
    int batches, migrations, cpu, clocks, fifo;
    struct rusage before, after;
    void (*more)(const void *of); /* prints a kernel's own fields, each after a comma, or NULL */
    const void *of;
};

/* A clock may step: by 40 ns on arm64 with a timer of 25 MHz, by 100 under Hyper-V, by 1,000 on others. Fewer than LEAST_STEPS
 * are no time. */
#define LEAST_STEPS 10
#define COARSEST_NS 1000

/* What the clock steps by; 0 if by less than a reading takes, so that no two are equal. */
static inline uint64_t clock_step_ns(void)
{
    static uint64_t step = UINT64_MAX;
    int repeats = 0, is_known = step != UINT64_MAX;
    for (int i = 0; i < 64 && !is_known; i++) {
        uint64_t begin = now_ns(), end;
        while ((end = now_ns()) == begin)
            repeats = 1;
        step = end - begin < step ? end - begin : step;
    }
    step = is_known || repeats ? step : 0;
    return step;
}

static inline int is_resolved(double ns) { return ns >= LEAST_STEPS * COARSEST_NS || ns >= LEAST_STEPS * (double)clock_step_ns(); }

__attribute__((noreturn)) static inline void clock_is_coarse(double ns)
{
    unavailable("linux-lacks", "%.0f ns by a clock that steps by %" PRIu64 "; measure more lines, or choose a finer clocksource", ns, clock_step_ns());
}

/* Core clock in GHz from dependent register additions, one cycle each on every known core (not of a constant, which Golden
 * Cove folds at rename). It needs no counter. */
static inline double core_ghz(void)
{
    enum { STEPS = 200000, UNROLL = 16 };
    uint64_t a = 1, b = 3, begin = now_ns();
    for (int i = 0; i < STEPS / UNROLL; i++)
#if defined __x86_64__
#define ADD "add %1, %0\n\t"
        __asm__ volatile(ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD : "+r"(a) : "r"(b));
#elif defined __aarch64__
#define ADD "add %0, %0, %1\n\t"
        __asm__ volatile(ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD : "+r"(a) : "r"(b));
#else
#error "kernels measure x86-64 and arm64"
#endif
    return (double)STEPS / (double)(now_ns() - begin);
}

static inline void sample_clock(struct region *r)
{
    for (int i = 0; i < CLOCK_SAMPLES / 2; i++)
        r->ghz[r->clocks++] = core_ghz();
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(const double *values, int n)
{
    double copy[MOST_BATCHES];
    memcpy(copy, values, sizeof *copy * (size_t)n);
    qsort(copy, (size_t)n, sizeof *copy, ascending);
    return n % 2 ? copy[n / 2] : (copy[n / 2 - 1] + copy[n / 2]) / 2;
}

static char also_text[1024]; /* a kernel's own results: "name": value, ... */
static inline void also(const char *name, double value)
{
    size_t used = strlen(also_text);
    snprintf(also_text + used, sizeof also_text - used, "%s\"%s\": %.12g", used ? ", " : "", name, value);
}

/* Tell perf to start or stop counting and await "ack\n" and a NUL. */
static inline void gate(const struct config *c, const char *command)
{
    char ack[5];
    if (c->control_fd < 0)
        return;
    if (write(c->control_fd, command, strlen(command)) != (ssize_t)strlen(command))
        unavailable("perf-failed", "perf's control pipe: %s", strerror(errno));
    for (size_t got = 0; got < sizeof ack;) {
        struct pollfd ready = {.fd = c->ack_fd, .events = POLLIN};
        if (poll(&ready, 1, 5000) != 1) /* perf silently ignores unknown commands */
            unavailable("perf-failed", "perf did not acknowledge in 5 s");
        ssize_t n = read(c->ack_fd, ack + got, sizeof ack - got);
        if (n <= 0)
            unavailable("perf-failed", "perf closed its acknowledgement pipe");
        got += (size_t)n;
    }
}

static inline void must_be(uint64_t got, uint64_t expected)
{
    if (got != expected)
        unavailable("kernel-failed", "the accesses ended in %" PRIx64 " where %" PRIx64 " was due: not all were made", got, expected);
}

static inline uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t warm_ns; /* of this point's accesses before its region: warm-up and what follows the clock's reading */

static inline void start_counting(const struct config *c, struct region *r)
{
    r->warm_ns = warm_ns;
    r->prepare_ns = now_ns() - c->started_ns;
    r->cpu = sched_getcpu();
    r->fifo = fifo.in;
    getrusage(RUSAGE_SELF, &r->before);
}

static inline void open_region(const struct config *c, struct region *r)
{
    start_counting(c, r);
    gate(c, "enable\n");
    getrusage(RUSAGE_SELF, &r->before);
    r->cpu_ns -= cpu_ns();
}

static inline void add_batch(struct region *r, uint64_t ns, uint64_t accesses)
{
    if (!is_resolved((double)ns))
        clock_is_coarse((double)ns);
    r->batch[r->batches++] = (double)ns / (double)accesses;
    r->elapsed_ns += ns;
    r->accesses += accesses;
    r->migrations += sched_getcpu() != r->cpu;
}

static inline void close_region(const struct config *c, struct region *r)
{
    r->cpu_ns += cpu_ns();
    getrusage(RUSAGE_SELF, &r->after);
    gate(c, "disable\n");
    r->table_bytes = page_table_bytes();
}

/* run() makes rounds of accesses from the current place and returns a value that depends on each access; due() predicts it. */
struct work {
    void *state;
    uint64_t (*run)(void *state, uint64_t rounds), (*due)(const void *state, uint64_t rounds);
    uint64_t accesses;
    uint64_t warm, least; /* rounds to warm up (0: 5 ms), and to time at least */
};
#define SETTLE 256        /* rounds that replace what reading clocks displaced, if `warm` is set */

static inline uint64_t run_checked(const struct work *w, uint64_t rounds)
{
    uint64_t due = w->due(w->state, rounds), t0 = now_ns(), got = w->run(w->state, rounds), ns = now_ns() - t0;
    warm_ns += ns;
    must_be(got, due);
    return ns;
}

static inline uint64_t rounds_before(const struct work *w) { return w->warm + SETTLE; }

static inline void settle(const struct work *w) { run_checked(w, w->warm ? SETTLE : 1); }

/* Return ns a round: of the fastest piece, so that no interruption counts; of all if none is long enough for the clock. */
#define LEAST_PIECE_NS (20 * COARSEST_NS)
static inline double warm_up(const struct config *c, const struct work *w)
{
    uint64_t took = 0, rounds = 0, piece = w->warm ? (w->warm + 7) / 8 : 1;
    double fastest = 1e18;
    while (w->warm ? rounds < w->warm : took < 5000000) {
        piece = w->warm && w->warm - rounds < piece ? w->warm - rounds : piece;
        uint64_t ns = run_checked(w, piece);
        if (ns >= LEAST_PIECE_NS && (double)ns / (double)piece < fastest)
            fastest = (double)ns / (double)piece;
        took += ns;
        rounds += piece;
        piece = w->warm ? piece : rounds;
        renew_fifo(c);
    }
    if (w->warm)
        also("warm_hops", (double)(w->warm * w->accesses));
    return fastest < 1e18 ? fastest : (double)took / (double)rounds;
}

struct batches { int n; uint64_t rounds; };

static inline struct batches plan_batches(const struct config *c, const struct work *w, double round_ns, double least_ns)
{
    if (!(round_ns > 0))
        clock_is_coarse(round_ns);
    double region = (double)c->region_ns < MIN_BATCHES * least_ns ? MIN_BATCHES * least_ns : (double)c->region_ns;
    double rounds = region / round_ns < (double)w->least ? (double)w->least : region / round_ns;
    double most = round_ns < least_ns ? rounds * round_ns / least_ns : rounds;
    int n = most < MIN_BATCHES ? MIN_BATCHES : most > MOST_BATCHES ? MOST_BATCHES : (int)most;
    uint64_t each = (uint64_t)(rounds / n + 0.5), needed = (w->least + (uint64_t)n - 1) / (uint64_t)n;
    each = each < needed ? needed : each;
    return (struct batches){n, each ? each : 1};
}

static inline struct region measure(const struct config *c, const struct work *w)
{
    struct region r = {.batches = 0};
    enter_fifo(c);
    struct batches plan = plan_batches(c, w, warm_up(c, w), 0);
    leave_fifo();
    sample_clock(&r);
    enter_fifo(c);
    settle(w);
    open_region(c, &r);
    while (r.batches < plan.n) {
        renew_fifo(c);
        add_batch(&r, run_checked(w, plan.rounds), plan.rounds * w->accesses);
    }
    close_region(c, &r);
    leave_fifo();
    sample_clock(&r);
    return r;
}
#endif
