/* cpus.h: the CPUs that this process may use. Pin before touching memory: a thread that moves finds cold caches and TLBs.
 * Masks have MOST_CPUS bits; cpu_set_t has only 1024. */
#ifndef CPUS_H
#define CPUS_H
#include "arguments.h"
#include <linux/mempolicy.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#ifndef __GLIBC__ /* musl's own fails always: it cannot do for all threads what POSIX asks */
#define sched_setscheduler(thread, policy, param) syscall(SYS_sched_setscheduler, thread, policy, param)
#endif

union cpu_mask { cpu_set_t set; unsigned long word[MOST_CPUS / 8 / sizeof(unsigned long)]; };
struct cpus { int count, number[MOST_CPUS]; };

static inline struct cpus allowed_cpus(void)
{
    union cpu_mask allowed = {.word = {0}};
    struct cpus all = {.count = 0};
    if (sched_getaffinity(0, sizeof allowed, &allowed.set))
        unavailable("kernel-failed", "sched_getaffinity: %s", strerror(errno));
    for (int cpu = 0; cpu < MOST_CPUS; cpu++)
        if (CPU_ISSET_S(cpu, sizeof allowed, &allowed.set))
            all.number[all.count++] = cpu;
    return all;
}

static inline union cpu_mask only_cpu(int cpu)
{
    union cpu_mask one = {.word = {0}};
    CPU_SET_S(cpu, sizeof one, &one.set);
    return one;
}

static struct cpus cpus_given; /* before pin() narrowed them to one */

/* Pin to `cpu`, else to the highest allowed CPU (interrupts favour the lowest); die with the parent. */
static inline int pin(int cpu)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR)
        exit(1); /* the parent died before that took effect */
    cpus_given = allowed_cpus();
    int at = cpus_given.count - 1;
    while (at > 0 && cpu >= 0 && cpus_given.number[at] != cpu)
        at--;
    union cpu_mask one = only_cpu(cpus_given.number[at]);
    if ((cpu >= 0 && cpus_given.number[at] != cpu) || sched_setaffinity(0, sizeof one, &one.set))
        unavailable("cpu-gone", "CPU %d is not one this process may use", cpu);
    return cpus_given.number[at];
}

static inline uint64_t largest_cache_bytes(int cpu)
{
    uint64_t largest = 0;
    char path[128];
    for (int index = 0, known = 1; known; index++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index);
        uint64_t kb = sysfs_number(path, 0); /* "32768K" */
        known = kb > 0;
        largest = kb << 10 > largest ? kb << 10 : largest;
    }
    return largest;
}

static inline void start_on(int cpu, pthread_t *thread, void *(*work)(void *), void *part)
{
    union cpu_mask one = only_cpu(cpu);
#ifdef __GLIBC__
    pthread_attr_t on;
    pthread_attr_init(&on);
    pthread_attr_setaffinity_np(&on, sizeof one, &one.set);
    int error = pthread_create(thread, &on, work, part);
    pthread_attr_destroy(&on);
#else /* musl has no such attribute: a thread inherits the CPUs of the one that starts it */
    union cpu_mask own;
    sched_getaffinity(0, sizeof own, &own.set);
    int error = sched_setaffinity(0, sizeof one, &one.set) ? errno : pthread_create(thread, NULL, work, part);
    sched_setaffinity(0, sizeof own, &own.set);
#endif
    if (error)
        unavailable("memory-short", "a thread on CPU %d could not be started: %s", cpu, strerror(error));
}

/* Prefer this CPU's node, page tables included, unless the process inherited another policy. */
static inline void stay_on_this_node(void)
{
    unsigned node = 0, own;
    int policy = MPOL_DEFAULT;
    syscall(SYS_get_mempolicy, &policy, NULL, 0ul, NULL, 0ul);
    if (policy == MPOL_DEFAULT && !syscall(SYS_getcpu, &own, &node, NULL) && node < 64) {
        unsigned long mask = 1ul << node;
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64ul);
    }
}

/* Linux stops real-time threads after 95 % of a second (sched_rt_runtime_us). So pause for a sixteenth of the time after
 * STRETCH_NS; placing lines counts as a pause. */
#define STRETCH_NS 500000000ull
static struct { int in; uint64_t since, held, out; } fifo; /* since: time of the last change; held, out: ns in and out before that */

static inline void set_fifo(int in)
{
    uint64_t now = now_ns();
    *(fifo.in ? &fifo.held : &fifo.out) += now - fifo.since;
    fifo.since = now;
    fifo.in = in;
    if (sched_setscheduler(0, in ? SCHED_FIFO : SCHED_OTHER, &(struct sched_param){.sched_priority = in}))
        unavailable("state-changed", "SCHED_FIFO: %s", strerror(errno));
}

static inline void leave_fifo(void)
{
    if (fifo.in)
        set_fifo(0);
}

static inline void enter_fifo(const struct config *c)
{
    if (!c->fifo)
        return;
    uint64_t out = fifo.out + now_ns() - fifo.since, owed = fifo.held / 16;
    if (out < owed && fifo.held > STRETCH_NS) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(owed - out)}, NULL);
        out = owed;
    }
    if (out >= owed)
        fifo.held = fifo.out = 0, fifo.since = now_ns();
    set_fifo(1);
}

static inline void renew_fifo(const struct config *c)
{
    if (!fifo.in || fifo.held + now_ns() - fifo.since < STRETCH_NS)
        return;
    leave_fifo();
    enter_fifo(c);
}
#endif
