/* rooms.h: mappings and files of one point, released at its end. */
#ifndef ROOMS_H
#define ROOMS_H
#include "errors.h"
#include <sys/mman.h>
#include <unistd.h>

static struct kept { char *at; uint64_t bytes; int fd; } kept[64]; /* NULL: a file */
static int keeps;

static inline void keep(void *at, uint64_t bytes, int fd)
{
    if (keeps == sizeof kept / sizeof *kept)
        unavailable("kernel-failed", "more than %d mappings and files to keep", keeps);
    kept[keeps++] = (struct kept){at, bytes, fd};
}

static inline void give_back_to(int first)
{
    while (keeps > first)
        if (kept[--keeps].at)
            munmap(kept[keeps].at, kept[keeps].bytes);
        else
            close(kept[keeps].fd);
}

static inline void *map_memory(uint64_t bytes, int flags, int fd, const char *what)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        unavailable("memory-short", "no room for %" PRIu64 " bytes of %s: %s", bytes, what, strerror(errno));
    return at;
}

/* Room for lists beside the arena: on base pages and new each time, so that all points are alike. */
static inline void *room_for(uint64_t n, uint64_t each, const char *what)
{
    uint64_t bytes;
    void *at = __builtin_mul_overflow(n, each, &bytes) ? MAP_FAILED
               : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        unavailable("memory-short", "no room for %" PRIu64 " %s", n, what);
    madvise(at, bytes, MADV_NOHUGEPAGE);
    keep(at, bytes, -1);
    return at;
}

static inline void free_room(const void *at)
{
    for (int i = keeps - 1; i >= 0; i--)
        if (kept[i].at == at) {
            munmap(kept[i].at, kept[i].bytes);
            memmove(&kept[i], &kept[i + 1], sizeof *kept * (size_t)(--keeps - i));
            return;
        }
}

static inline int file_in_memory(const char *name, uint64_t bytes, unsigned flags)
{
    int fd = memfd_create(name, MFD_CLOEXEC | flags);
    if (fd >= 0)
        keep(NULL, 0, fd);
    return fd < 0 || ftruncate(fd, (off_t)bytes) ? -1 : fd;
}
#endif
