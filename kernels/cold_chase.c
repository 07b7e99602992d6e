/* cold_chase: the first rounds of a new process, in ns a hop, where only the TLB is cold.
 *
 * A process is forked again and again. Its memory is mapped twice: it fills both page tables (MADV_POPULATE_READ), reads each
 * line by one mapping and chases by the other, which no TLB or page-structure cache has seen. */
#include "chase.h"
#include "record.h"
#include <sys/wait.h>

#define MEASURES 1

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#define PASSES 64
#define OCTAVES 7
#define EXECS 5
#define LIVES 4 /* processes in a batch */

static struct told { volatile uint64_t began_ns, faults, pass_ns[OCTAVES], whole; } *told;

static struct arena map_twice(const struct config *c, char **again)
{
    struct arena a = reserve(c);
    int fd = memfd_create("cold", MFD_CLOEXEC);
    *again = fd < 0 || ftruncate(fd, (off_t)a.bytes) ? MAP_FAILED : mmap(NULL, a.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*again == MAP_FAILED || mmap(a.base, a.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        unavailable("memory-short", "memfd of %" PRIu64 " bytes: %s", a.bytes, strerror(errno));
    close(fd);
    madvise(*again, a.bytes, MADV_NOHUGEPAGE);
    madvise(a.base, a.bytes, MADV_NOHUGEPAGE);
    a.resident = a.physical = a.bytes;
    fault_in(&a);
    return a;
}

/* [timed: round] */
static uint64_t time_round(struct chase *chase, uint64_t due)
{
    uint64_t begin = now_ns(), got = follow_rounds(chase, 1), ns = now_ns() - begin;
    must_be(got, due);
    return ns;
}
/* [end] */

struct newborn { const struct chase *chase; char *base, *again; uint64_t bytes, due; };

static void live(const struct newborn *n)
{
    told->began_ns = now_ns();
    struct chase chase = *n->chase, idle = {.lines = 1, .round = 1};
    void *line = &line;
    idle.at = (void **)&line;
    follow_rounds(&idle, 1); /* fault in the pages of code and stack */
    struct rusage before, after;
    if (madvise(n->base, n->bytes, MADV_POPULATE_READ) || madvise(n->again, n->bytes, MADV_POPULATE_READ))
        _exit(1);
    for (uint64_t i = 0; i < chase.lines; i++)
        (void)*(volatile char *)(n->again + line_offset(&chase.places, i));
    getrusage(RUSAGE_SELF, &before);
    for (int pass = 1, octave = 0; pass <= PASSES; pass++) {
        uint64_t ns = time_round(&chase, n->due);
        if (pass == 1 << octave)
            told->pass_ns[octave++] = ns;
    }
    getrusage(RUSAGE_SELF, &after);
    told->faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
    told->whole = 1;
}

struct sums { uint64_t lives, spawn_ns, faults, pass_ns[OCTAVES]; };

static uint64_t time_life(const struct newborn *newborn, struct sums *s)
{
    pid_t parent = getpid();
    uint64_t begin = now_ns();
    int status;
    told->whole = 0;
    pid_t process = fork();
    if (!process) {
        told->began_ns = now_ns();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            live(newborn);
        _exit(0);
    }
    if (process < 0)
        unavailable("memory-short", "a process could not be started: %s", strerror(errno));
    if (waitpid(process, &status, 0) != process || WIFSIGNALED(status) || !told->whole)
        unavailable(WIFEXITED(status) && WEXITSTATUS(status) == 1 ? "linux-lacks" : "kernel-failed", "a new process that populates its memory (Linux 5.14) ended with status %d",
                    status);
    s->lives++;
    s->spawn_ns += told->began_ns - begin;
    s->faults += told->faults;
    for (int i = 0; i < OCTAVES; i++)
        s->pass_ns[i] += told->pass_ns[i];
    return told->pass_ns[0];
}

/* 0 if /proc may not be executed from. */
static double exec_ns(void)
{
    double took[EXECS];
    for (int i = 0, status; i < EXECS; i++) {
        uint64_t begin = now_ns();
        pid_t process = fork();
        if (!process) {
            execl("/proc/self/exe", "", NULL);
            _exit(1);
        }
        if (process < 0 || waitpid(process, &status, 0) != process || status)
            return 0;
        took[i] = (double)(now_ns() - begin);
    }
    return median(took, EXECS);
}

int main(int argc, char **argv)
{
    if (argc == 1 && !**argv)
        return 0; /* ends a process of exec_ns() */
    static const struct kernel kernel = {.name = "cold_chase", .orders = {"cycle"}, .layouts = {"spread", "packed"}};
    struct config c = parse(&kernel, argc, argv);
    if (c.pages->source != FROM_BASE || c.stride_pages != 1)
        bad_argument("cold_chase takes --pages 4k and no --stride-pages.");
    c.cpu = pin(c.cpu);
    c.control_fd = -1;
    told = map_memory(sizeof *told, MAP_SHARED | MAP_ANONYMOUS, -1, "results");
    char *again, name[32];
    struct arena a = map_twice(&c, &again);
    verify_backing(&c, &a);
    struct chase chase = place_chase(a.base, c.lines, places_in(c.packed, a.stride, a.page), 1, c.seed);
    struct newborn newborn = {&chase, a.base, again, a.bytes, due_after_rounds(&chase, 1)};
    struct region r = {.batches = 0};
    struct sums sums = {0};
    sample_clock(&r);
    time_life(&newborn, &sums);
    sums = (struct sums){0};
    open_region(&c, &r);
    for (uint64_t begin = now_ns(); r.batches < MIN_BATCHES || (now_ns() - begin < c.region_ns && r.batches < MOST_BATCHES);) {
        uint64_t ns = 0;
        for (int i = 0; i < LIVES; i++)
            ns += time_life(&newborn, &sums);
        add_batch(&r, ns, LIVES * c.lines);
    }
    close_region(&c, &r);
    sample_clock(&r);
    verify_backing(&c, &a);
    also("spawn_ns", (double)sums.spawn_ns / (double)sums.lives);
    double exec = exec_ns();
    if (exec > 0)
        also("exec_ns", exec);
    also("faults_in_passes", (double)sums.faults);
    for (int i = 0; i < OCTAVES; i++) {
        snprintf(name, sizeof name, "pass_%d_ns", 1 << i);
        also(name, (double)sums.pass_ns[i] / (double)sums.lives / (double)c.lines);
    }
    r.checksum = checksum_from(chase.visit, c.lines, 0, c.lines);
    return report(&c, &a, &r);
}
