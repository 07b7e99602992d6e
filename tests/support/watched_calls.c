/* watched_calls: loaded before a kernel (LD_PRELOAD), it is its clock and writes down how it asks for memory.
 *
 * Each reading of a clock is 1 ms after the last one, whatever the processor did. So how long the warm-up is, how many batches there are and
 * how many rounds each has follow from the kernel's arithmetic alone. At the end the process writes to the file descriptor that WATCHED_FD
 * names: one line for each call of mmap, madvise and mprotect, with bytes and flags but no addresses; for each reading of smaps, its own or a child's, and each munmap
 * of the largest piece of memory or a part of it, how many of its lines of 64 bytes hold anything; for each piece of memory that it could
 * still write to, how many of its lines do, and a digest of which; and how often the clock was read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static unsigned long long readings;
static char text[1 << 16];
static size_t used;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, values);
    va_end(values);
    if (used >= sizeof text)
        abort();
}

enum { MOST = 256 };
static struct piece { const char *at; size_t bytes; } piece[MOST];
static int pieces;

static void forget(const void *at)
{
    for (int i = 0; i < pieces; i++)
        if (piece[i].at == at)
            piece[i--] = piece[--pieces];
}

static unsigned long long lines_written(const struct piece *p, unsigned long long *digest)
{
    static const char nothing[64];
    unsigned long long lines = 0;
    *digest = 0xCBF29CE484222325; /* FNV-1a, of the lines' numbers */
    for (size_t i = 0; i + 64 <= p->bytes; i += 64)
        if (memcmp(p->at + i, nothing, 64))
            lines++, *digest = (*digest ^ i / 64) * 0x100000001B3;
    return lines;
}

static void tell_lines(const struct piece *p)
{
    unsigned long long digest, lines = lines_written(p, &digest);
    note("lines %llu of %zu %016llx\n", lines, p->bytes / 64, digest);
}

static struct piece largest(void)
{
    struct piece most = {NULL, 0};
    for (int i = 0; i < pieces; i++)
        most = piece[i].bytes > most.bytes ? piece[i] : most;
    return most;
}

/* What was written before smaps was read, and after it, tells where the proof stands among placing, warming up and timing. */
static void note_written(const char *event, const char *at, size_t bytes)
{
    unsigned long long digest, lines = lines_written(&(struct piece){at, bytes}, &digest);
    note("%s %zu lines %llu\n", event, bytes, lines);
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    struct piece most = largest();
    if (strstr(path, "/smaps"))
        note_written(strstr(path, "/self/") ? "smaps" : "smaps of a child", most.at, most.bytes);
    return next(path, mode);
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    (void)which;
    unsigned long long ms = ++readings;
    *t = (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    return 0;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *(*next)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    note("mmap %zu %x %x%s\n", bytes, (unsigned)protection, (unsigned)flags, fd < 0 ? "" : " file");
    void *mapped = next(at, bytes, protection, flags, fd, offset);
    if (protection & PROT_WRITE && pieces < MOST)
        forget(mapped), piece[pieces++] = (struct piece){mapped, bytes};
    return mapped;
}

int munmap(void *at, size_t bytes)
{
    int (*next)(void *, size_t) = dlsym(RTLD_NEXT, "munmap");
    struct piece most = largest();
    if (bytes <= most.bytes && most.at <= (char *)at && (char *)at < most.at + most.bytes)
        note_written("munmap", at, bytes);
    forget(at);
    return next(at, bytes);
}

int madvise(void *at, size_t bytes, int advice)
{
    int (*next)(void *, size_t, int) = dlsym(RTLD_NEXT, "madvise");
    note("madvise %zu %d\n", bytes, advice);
    return next(at, bytes, advice);
}

int mprotect(void *at, size_t bytes, int protection)
{
    int (*next)(void *, size_t, int) = dlsym(RTLD_NEXT, "mprotect");
    note("mprotect %zu %x\n", bytes, (unsigned)protection);
    return next(at, bytes, protection);
}

__attribute__((destructor)) static void tell(void)
{
    for (int i = 0; i < pieces; i++)
        tell_lines(piece + i);
    note("clock %llu\n", readings);
    const char *fd = getenv("WATCHED_FD");
    if (!fd || write(atoi(fd), text, used) != (ssize_t)used)
        abort();
}
