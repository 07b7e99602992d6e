/* switch_chase: what a context switch leaves of the TLB: one round of a chase after each switch, in ns a hop.
 *
 * alone    as many system calls without a switch: the control
 * thread   to another thread on this CPU and back: the same page tables
 * process  to another process on this CPU and back: other page tables, twice
 *
 * With --hops N of a longer cycle, past the TLB's reach, the first walks show whether the switch flushed the page-structure
 * caches. perf counts nothing: it would count partner and switches. */
#include "chase.h"
#include "record.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MEASURES 1

#define LEAST 4
#define PATIENCE_S 5 /* longer than a busy machine delays it */

struct meeting { volatile uint32_t whose; }; /* turn: 0 ours, 1 the partner's */
static struct meeting *meeting;
enum mode { ALONE, THREAD, PROCESS };

static void wake(void) { syscall(SYS_futex, &meeting->whose, FUTEX_WAKE, 1, NULL, NULL, 0); }
static int wait_while(uint32_t whose, int for_ever)
{
    struct timespec patience = {.tv_sec = PATIENCE_S};
    while (meeting->whose == whose)
        if (syscall(SYS_futex, &meeting->whose, FUTEX_WAIT, whose, for_ever ? NULL : &patience, NULL, 0) && errno == ETIMEDOUT)
            return -1;
    return 0;
}
static void *answer(void *unused)
{
    for (;;) {
        wait_while(0, 1);
        meeting->whose = 0;
        wake();
    }
    return unused;
}

static void switch_over(enum mode mode)
{
    if (mode == ALONE) {
        wake(), wake();
        syscall(SYS_futex, &meeting->whose, FUTEX_WAIT, 1, NULL, NULL, 0); /* does not wait, as it is our turn */
        syscall(SYS_futex, &meeting->whose, FUTEX_WAIT, 1, NULL, NULL, 0);
        return;
    }
    meeting->whose = 1;
    wake();
    if (wait_while(1, 0))
        unavailable("kernel-failed", "no answer of the other process in %d s", PATIENCE_S);
}
static pid_t start_process(void *(*work)(void *), void *of)
{
    pid_t parent = getpid(), process = fork();
    if (process < 0)
        unavailable("memory-short", "a process could not be started: %s", strerror(errno));
    if (process)
        return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        work(of);
    _exit(0);
}

/* [timed: round] The clock's own cost is in every mode alike. */
static uint64_t time_round(struct chase *chase, uint64_t due)
{
    uint64_t begin = now_ns(), got = follow_rounds(chase, 1), ns = now_ns() - begin;
    must_be(got, due);
    return ns;
}
/* [end] */

struct sums { uint64_t rounds, switch_ns; };

static uint64_t switch_and_chase(enum mode mode, struct chase *chase, struct sums *s)
{
    uint64_t due = due_after_rounds(chase, 1), begin = now_ns();
    switch_over(mode);
    s->switch_ns += now_ns() - begin;
    s->rounds++;
    return time_round(chase, due);
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "switch_chase", .orders = {"cycle"}, .layouts = {"spread", "packed"},
        .modes = {"alone", "thread", "process"},
        .own = {{.name = "hops", .value = 0, .least = 0, .most = 1 << 20}}};
    struct config c = parse(&kernel, argc, argv);
    enum mode mode = ALONE;
    while (strcmp(kernel.modes[mode], c.mode))
        mode++;
    c.cpu = pin(c.cpu);
    c.control_fd = -1;
    meeting = map_memory(sizeof *meeting, MAP_SHARED | MAP_ANONYMOUS, -1, "turns");
    pthread_t thread;
    pid_t partner = mode == PROCESS ? start_process(answer, NULL) : 0; /* before there is an arena to inherit */
    struct arena a = map_arena(&c);
    verify_backing(&c, &a);
    struct chase chase = place_chase(a.base, c.lines, places_in(c.packed, a.stride, a.page), 1, c.seed);
    chase.round = c.own[0].value ? c.own[0].value : c.lines;
    if (mode == THREAD)
        start_on(c.cpu, &thread, answer, NULL);

    struct region r = {.batches = 0};
    struct sums sums = {0};
    sample_clock(&r);
    for (uint64_t begin = now_ns(); sums.rounds < LEAST || now_ns() - begin < 5000000;)
        switch_and_chase(mode, &chase, &sums);
    sums = (struct sums){0};
    open_region(&c, &r);
    while (r.batches < MOST_BATCHES) {
        uint64_t begin = now_ns(), ns = 0, rounds = 0;
        for (; rounds < LEAST || now_ns() - begin < c.region_ns / MOST_BATCHES; rounds++)
            ns += switch_and_chase(mode, &chase, &sums);
        add_batch(&r, ns, rounds * chase.round);
    }
    close_region(&c, &r);
    sample_clock(&r);
    verify_backing(&c, &a);
    if (partner && !kill(partner, SIGKILL))
        waitpid(partner, NULL, 0);
    also("switch_ns", (double)sums.switch_ns / (double)sums.rounds);
    r.checksum = checksum_from(chase.visit, c.lines, 0, c.lines);
    return report(&c, &a, &r);
}
