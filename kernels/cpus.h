/* cpus.h: the CPUs that this process may use: one to measure on, and threads that stay on one each.
 *
 * A thread that is moved finds another core's cold caches and TLB, so what measures is pinned before it touches memory. A
 * computer may have more CPUs than a cpu_set_t has bits (1024): masks here have MOST_CPUS. */
#ifndef CPUS_H
#define CPUS_H
#include "arguments.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

union cpu_mask { cpu_set_t set; unsigned long word[MOST_CPUS / 8 / sizeof(unsigned long)]; };
struct cpus { int count, number[MOST_CPUS]; }; /* ascending */

/* Those that this process was given: to be asked before pin() narrows them to one. */
static inline struct cpus allowed_cpus(void)
{
    union cpu_mask allowed = {.word = {0}};
    struct cpus all = {.count = 0};
    if (sched_getaffinity(0, sizeof allowed, &allowed.set))
        unavailable("kernel-crashed", "sched_getaffinity: %s", strerror(errno));
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

/* Pin to one allowed CPU: the one asked for, else the highest allowed (interrupts tend to favour the lowest); and die with
 * the parent, so that a runner killed with -9 leaves no chase behind it. */
static inline int pin(int cpu)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR)
        exit(1); /* the parent died before it could be asked for: nobody is left to read the record */
    struct cpus allowed = allowed_cpus();
    int at = allowed.count - 1;
    while (at > 0 && cpu >= 0 && allowed.number[at] != cpu)
        at--;
    union cpu_mask one = only_cpu(allowed.number[at]);
    if ((cpu >= 0 && allowed.number[at] != cpu) || sched_setaffinity(0, sizeof one, &one.set))
        bad_argument("CPU %d is not one this process may use.", cpu);
    return allowed.number[at];
}

/* What sysfs states of a CPU's largest cache, in bytes, shared ones included; 0 where it states none. */
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

/* A thread on this CPU alone. */
static inline void start_on(int cpu, pthread_t *thread, void *(*work)(void *), void *part)
{
    union cpu_mask one = only_cpu(cpu);
    pthread_attr_t on;
    pthread_attr_init(&on);
    pthread_attr_setaffinity_np(&on, sizeof one, &one.set);
    int error = pthread_create(thread, &on, work, part);
    if (error)
        unavailable("memory-short", "a thread on CPU %d could not be started: %s", cpu, strerror(error));
    pthread_attr_destroy(&on);
}
#endif
