/* other_cpus: a computer with $OTHER_CPUS CPUs. Loaded before libc (LD_PRELOAD), so that a kernel is run as it is: it is told that it may
 * use all of them, and threads that it puts on one of them run wherever they can. A mask that is too small is refused, as by Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static int cpus(void) { return atoi(getenv("OTHER_CPUS")); }

static int names_one(size_t bytes, const cpu_set_t *set)
{
    int one = -1;
    for (int cpu = 0; cpu < (int)bytes * 8; cpu++)
        if (CPU_ISSET_S(cpu, bytes, set))
            one = one < 0 ? cpu : cpus();
    return one >= 0 && one < cpus();
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if ((int)bytes * 8 < cpus())
        return errno = EINVAL, -1;
    memset(set, 0, bytes);
    for (int cpu = 0; cpu < cpus(); cpu++)
        CPU_SET_S(cpu, bytes, set);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid;
    return names_one(bytes, set) ? 0 : (errno = EINVAL, -1);
}

int pthread_attr_setaffinity_np(pthread_attr_t *on, size_t bytes, const cpu_set_t *set)
{
    (void)on;
    return names_one(bytes, set) ? 0 : EINVAL;
}
