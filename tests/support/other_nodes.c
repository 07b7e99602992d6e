/* other_nodes: the NUMA nodes of a computer that is not here. Loaded before libc (LD_PRELOAD), so that a kernel is run as it is.
 *
 * $OTHER_NODES/node is read in the place of /sys/devices/system/node. Policies are set and pages looked up on this computer, with a
 * node of its own in the place of the one named, so that Linux judges every argument; what was asked for is written to
 * $OTHER_NODES/log, a line a call:
 *
 *   mbind NODE BYTES RESIDENT       a mapping's policy, and how many of the mapping's pages were there already
 *   set_mempolicy NODE RESIDENT     the thread's policy, -1 for the default one, and how many of the bound mapping's pages were there
 *   move_pages PAGES                a look at where so many pages lie
 *
 * Beside it, each a file with a number:
 *
 *   allowed     a mask of the nodes on which the program may have memory (a cpuset's); all where there is none
 *   refusal     the errno of the call that the file `refused` names
 *   strays      pages that lie on another node than they were bound to
 *   true_looks  how many looks at pages find none of these, before they are there */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS "/sys/devices/system/node/"

static long (*real)(long, ...);
static char *bound;
static unsigned long bound_bytes;
static int bound_node = -1;

static FILE *open_real(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *) = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}

static FILE *beside(const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("OTHER_NODES"), name);
    return open_real(path, mode);
}

static unsigned long number(const char *name, unsigned long if_absent)
{
    FILE *f = beside(name, "r");
    if (!f || fscanf(f, "%lu", &if_absent) < 0)
        return if_absent;
    fclose(f);
    return if_absent;
}

FILE *fopen(const char *path, const char *mode)
{
    char name[4096];
    if (strncmp(path, SYS, strlen(SYS)))
        return open_real(path, mode);
    snprintf(name, sizeof name, "node/%s", path + strlen(SYS));
    return beside(name, mode);
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static void note(const char *format, ...)
{
    va_list args;
    FILE *f = beside("log", "a");
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

static int refused(const char *call)
{
    char name[32] = "";
    FILE *f = beside("refused", "r");
    if (f && fscanf(f, "%31s", name) == 1 && !strcmp(name, call))
        errno = (int)number("refusal", EPERM);
    else
        name[0] = 0;
    if (f) fclose(f);
    return name[0] && !strcmp(name, call);
}

static int only_node(const unsigned long *mask, unsigned long bits)
{
    int node = -1;
    for (unsigned long i = 0; mask && i < bits; i++)
        if (mask[i / 64] >> i % 64 & 1) {
            if (node >= 0)
                abort(); /* it names one node, or none */
            node = (int)i;
        }
    return node;
}

static unsigned long resident(void)
{
    unsigned long n = 0, pages = bound_bytes / 4096;
    unsigned char *there = malloc(pages);
    if (!bound || mincore(bound, bound_bytes, there))
        pages = 0;
    for (unsigned long i = 0; i < pages; i++)
        n += there[i] & 1;
    free(there);
    return n;
}

/* A node of this computer on which we may have memory, as a mask. Where it has none, or a filter forbids the calls, nothing here is
 * judged by Linux. */
static int ours(unsigned long *mask)
{
    memset(mask, 0, 128);
    if (real(SYS_get_mempolicy, NULL, mask, 1024ul, NULL, 4ul))
        return 0;
    for (int i = 0, found = 0; i < 16; i++) {
        mask[i] = found ? 0 : mask[i] & -mask[i];
        found |= mask[i] != 0;
    }
    return 1;
}

static long judged(long answer)
{
    return answer && (errno == EPERM || errno == ENOSYS) ? 0 : answer;
}

static long look(unsigned long pages, void **at, int *lies_on)
{
    static unsigned long looks;
    note("move_pages %lu\n", pages);
    if (judged(real(SYS_move_pages, 0ul, pages, at, NULL, lies_on, 0ul)))
        return -1;
    int home = bound_node < 0 ? 0 : bound_node; /* of a program that binds nothing, node 0 */
    unsigned long strays = looks++ < number("true_looks", 0) ? 0 : number("strays", 0);
    for (unsigned long i = 0; i < pages; i++)
        if (lies_on[i] >= 0) /* else it is not there at all, and that stays */
            lies_on[i] = i < strays ? home ^ 1 : home;
    return 0;
}

long syscall(long call, ...)
{
    unsigned long a[6], mask[16];
    va_list args;
    va_start(args, call);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, unsigned long);
    va_end(args);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    switch (call) {
    case SYS_get_mempolicy:
        if (refused("get_mempolicy"))
            return -1;
        memset((void *)a[1], 0, a[2] / 8);
        *(unsigned long *)a[1] = number("allowed", ~0ul);
        return 0;
    case SYS_mbind:
        bound = (char *)a[0], bound_bytes = a[1], bound_node = only_node((unsigned long *)a[3], a[4]);
        note("mbind %d %lu %lu\n", bound_node, bound_bytes, resident());
        return refused("mbind") ? -1 : ours(mask) ? judged(real(call, a[0], a[1], a[2], mask, a[4], a[5])) : 0;
    case SYS_set_mempolicy: {
        int node = only_node((unsigned long *)a[1], a[2]);
        note("set_mempolicy %d %lu\n", node, resident());
        return refused("set_mempolicy") ? -1 : node < 0 || ours(mask) ? judged(real(call, a[0], node < 0 ? NULL : mask, a[2])) : 0;
    }
    case SYS_move_pages:
        if (a[0] || a[3])
            abort(); /* another process, or moving */
        return refused("move_pages") ? -1 : look(a[1], (void **)a[2], (int *)a[4]);
    default:
        return real(call, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
}
