/* other_machine: the huge pages of a computer that is not here. Loaded before libc (LD_PRELOAD), so that a kernel, in C or in
 * Python, is run as it is: it asks this libc, and the kernel of Linux faults its memory in, or refuses to.
 *
 * $OTHER_MACHINE/mm is read in the place of /sys/kernel/mm; what is not there is absent. What this computer has of its own
 * plays no part: a pool's pages are memory of this program, and no huge page is taken. Beside mm, each a file with a number:
 *
 *   given       pages that a pool really gives when they are touched. Those beyond it end in a real SIGBUS, as pages do that
 *               were promised and are gone, or are over a cgroup's limit
 *   refusal     the errno of every mapping from a pool
 *   unready     the errno of MADV_POPULATE_WRITE: EINVAL before Linux 5.14
 *   killed      the signal that ends the program when it asks for its memory
 *   percent     of the pages asked for that smaps shows on their size; of base pages, those that it shows on a larger one
 *   fallen      pages of 64 kB that fell back elsewhere meanwhile: Linux counts those of all programs together
 *   whole       how many times smaps is read before that is so */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS "/sys/kernel/mm"
#define THP "mm/transparent_hugepage"

static const char *place(const char *name, char *path)
{
    snprintf(path, 4096, "%s/%s", getenv("OTHER_MACHINE"), name);
    return path;
}

/* Where to look for a path of /sys; NULL for all others. */
static const char *elsewhere(const char *path, char *other)
{
    return strncmp(path, SYS, strlen(SYS)) ? NULL : place(path + strlen(SYS) - strlen("mm"), other);
}

static int real_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0); }

static long number(const char *name, long if_absent)
{
    char path[4096], text[32] = "";
    int fd = real_open(place(name, path), O_RDONLY);
    if (fd < 0)
        return if_absent;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atol(text) : if_absent;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* What was asked for, by address; kb is the size of its pages. A mapping at the place of an old one replaces it. */
enum kind { BASE, THP_PAGES, MTHP, POOL };
static struct range { uintptr_t from, to; enum kind kind; unsigned long kb; } ranges[16];

static struct range *range_of(uintptr_t from, uintptr_t to)
{
    for (struct range *r = ranges; r->to; r++)
        if (from >= r->from && to <= r->to)
            return r;
    return NULL;
}

static void note(void *from, size_t bytes, enum kind kind, unsigned long kb)
{
    struct range *r = ranges;
    while (r->to && r->from != (uintptr_t)from)
        r++;
    *r = (struct range){(uintptr_t)from, (uintptr_t)from + bytes, kind, kb};
}

static void *real_mmap(void *at, size_t bytes, int protection, int flags, int fd, long offset)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* A file shorter than its mapping: Linux answers a touch past its end with SIGBUS, MADV_POPULATE_WRITE with EFAULT. */
static void *from_pool(void *at, size_t bytes, int protection, int flags)
{
    unsigned long page = 1ul << (flags >> 26 & 63), needed = bytes / page;
    char name[128];
    snprintf(name, sizeof name, "mm/hugepages/hugepages-%lukB/free_hugepages", page >> 10);
    long left = number(name, -1);
    snprintf(name, sizeof name, "mm/hugepages/hugepages-%lukB/resv_hugepages", page >> 10);
    int enough = flags & MAP_NORESERVE || (long)needed <= left - number(name, 0);
    long refusal = left < 0 ? EINVAL : number("refusal", enough ? 0 : ENOMEM);
    if (refusal) {
        errno = (int)refusal;
        return MAP_FAILED;
    }
    unsigned long given = (unsigned long)number("given", (long)needed);
    int fd = (int)syscall(SYS_memfd_create, "pool", 0);
    if (fd < 0 || ftruncate(fd, (off_t)((given < needed ? given : needed) * page)))
        abort();
    void *got = real_mmap(at, bytes, protection, (flags & 0xffff & ~MAP_ANONYMOUS) | MAP_NORESERVE, fd, 0);
    close(fd);
    if (got != MAP_FAILED)
        note(got, bytes, POOL, page >> 10);
    return got;
}

/* Addresses that a kernel reserves begin at a whole GiB, with the next free ones right below, which the stack of its next
 * thread takes: the worst of the places that Linux may give, so that a mapping without a gap around it is joined with that stack
 * (both are VM_NOHUGEPAGE since Linux 6.7), and smaps states them as one. */
static void *reserved(size_t bytes, int flags)
{
    const uintptr_t gib = 1ul << 30;
    char *room = real_mmap(NULL, bytes + gib, PROT_NONE, flags, -1, 0);
    if (room == MAP_FAILED)
        return room;
    char *whole = (char *)(((uintptr_t)room + gib - 1) & ~(gib - 1));
    if (whole > room)
        syscall(SYS_munmap, room, whole - room);
    return whole;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!at && protection == PROT_NONE && flags & MAP_NORESERVE && bytes > 1ul << 30)
        return reserved(bytes, flags);
    return flags & MAP_HUGETLB ? from_pool(at, bytes, protection, flags) : real_mmap(at, bytes, protection, flags, fd, offset);
}

int madvise(void *at, size_t bytes, int advice)
{
    char path[4096];
    struct range *r = range_of((uintptr_t)at, (uintptr_t)at + bytes);
    long answer = 0;
    switch (advice) {
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
        note(at, bytes, advice == MADV_HUGEPAGE ? THP_PAGES : BASE,
             (unsigned long)number(THP "/hpage_pmd_size", 2 << 20) >> 10);
        syscall(SYS_madvise, at, bytes, MADV_NOHUGEPAGE); /* this computer is to give base pages */
        answer = syscall(SYS_faccessat, AT_FDCWD, place(THP, path), F_OK) ? EINVAL : 0;
        break;
    case MADV_DONTDUMP: /* which a kernel that wants pages of 64 kB says of every other MiB */
        if (r && r->kind == THP_PAGES)
            *r = (struct range){r->from, r->to, MTHP, 64};
        return (int)syscall(SYS_madvise, at, bytes, advice);
    case 23: /* MADV_POPULATE_WRITE */
        if (number("killed", 0))
            kill(getpid(), (int)number("killed", 0));
        answer = number("unready", 0);
        return answer ? (errno = (int)answer, -1) : (int)syscall(SYS_madvise, at, bytes, advice);
    default:
        return (int)syscall(SYS_madvise, at, bytes, advice);
    }
    return answer ? (errno = (int)answer, -1) : 0;
}

/* ---- what smaps and the counters say of it ----------------------------------------------------------------- */

static FILE *real_fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *) = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}

/* Of kb resident, in pages: a page is there as a whole once its first byte is. */
static unsigned long pages_of(const struct range *r, unsigned long kb) { return (kb + r->kb - 1) / r->kb; }
static unsigned long shown_of(unsigned long pages, long percent) { return (pages * (unsigned long)percent + 99) / 100; }

/* smaps as the other machine would state it; with `counter`, the 64 kB pages that were taken ('a') or fell back ('f'). */
static int retell(char counter)
{
    static int readings;
    char line[4096], name[64];
    unsigned long from, to, kb, rss = 0, all = 0, taken = 0;
    struct range *r = NULL;
    long percent = number("percent", -1);
    if (!counter && ++readings <= number("whole", 0))
        percent = -1;
    FILE *in = real_fopen("/proc/self/smaps", "r");
    int fd = (int)syscall(SYS_memfd_create, "told", 0);
    FILE *out = fdopen(dup(fd), "w");
    if (!in || !out)
        abort();
    while (fgets(line, sizeof line, in)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && !strstr(line, " kB")) {
            r = range_of(from, to);
        } else if (r && sscanf(line, "%63[^:]: %lu kB", name, &kb) == 2) {
            unsigned long now = kb, share = (unsigned long)(percent >= 0 ? percent : r->kind == BASE ? 0 : 100);
            if (!strcmp(name, "Rss"))
                rss = kb, now = r->kind == POOL ? 0 : r->kind == BASE ? kb : pages_of(r, kb) * r->kb;
            else if (!strcmp(name, "KernelPageSize"))
                now = r->kind == POOL ? r->kb : kb;
            else if (!strcmp(name, "AnonHugePages"))
                now = r->kind == THP_PAGES || r->kind == BASE ? shown_of(pages_of(r, rss), (long)share) * r->kb : 0;
            else if (!strcmp(name, "Private_Hugetlb"))
                now = r->kind == POOL ? shown_of(pages_of(r, rss), (long)share) * r->kb : 0;
            if (!strcmp(name, "Rss") && r->kind == MTHP)
                all += pages_of(r, kb), taken = shown_of(all, (long)share);
            if (now != kb)
                snprintf(line, sizeof line, "%s: %lu kB\n", name, now);
        }
        if (!counter)
            fputs(line, out);
    }
    fclose(in);
    if (counter)
        fprintf(out, "%lu\n", counter == 'a' ? taken : all - taken + (all ? (unsigned long)number("fallen", 0) : 0));
    fclose(out);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* ---- files ------------------------------------------------------------------------------------------------- */

/* A descriptor for what the other machine has at a path, or -1; *ours is 0 where it is this computer's affair. */
static int told(const char *path, int flags, int *ours)
{
    char other[4096];
    const char *name = strrchr(path, '/');
    if ((*ours = !strcmp(path, "/proc/self/smaps")))
        return retell(0);
    if (!elsewhere(path, other))
        return -1;
    *ours = 1;
    int fd = real_open(other, flags);
    if (fd < 0 || strncmp(name, "/anon_fault_", 12))
        return fd;
    close(fd);
    return retell(name[12]);
}

static int open_either(const char *path, int flags, int mode)
{
    int ours, fd = told(path, flags, &ours);
    return ours ? fd : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static FILE *fopen_either(const char *path, const char *mode)
{
    int ours, fd = told(path, O_RDONLY, &ours);
    return !ours ? real_fopen(path, mode) : fd < 0 ? NULL : fdopen(fd, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
        va_end(more); \
        return open_either(path, flags, mode); \
    }
#define STAT(name, kind) \
    int name(const char *path, struct kind *found) \
    { \
        char other[4096]; \
        const char *there = elsewhere(path, other); \
        return fstatat(AT_FDCWD, there ? there : path, (struct stat *)found, 0); /* on 64 bits the two are one */ \
    }
#define XSTAT(name, kind) \
    int name(int version, const char *path, struct kind *found) \
    { \
        (void)version; \
        char other[4096]; \
        const char *there = elsewhere(path, other); \
        return fstatat(AT_FDCWD, there ? there : path, (struct stat *)found, 0); \
    }
OPEN(open)
OPEN(open64)
STAT(stat, stat)
STAT(stat64, stat64)
XSTAT(__xstat, stat) /* by what programs know stat() that were built for a glibc before 2.33 */
XSTAT(__xstat64, stat64)
FILE *fopen(const char *path, const char *mode) { return fopen_either(path, mode); }
FILE *fopen64(const char *path, const char *mode) { return fopen_either(path, mode); }

int access(const char *path, int mode)
{
    char other[4096];
    const char *there = elsewhere(path, other);
    return (int)syscall(SYS_faccessat, AT_FDCWD, there ? there : path, mode);
}
