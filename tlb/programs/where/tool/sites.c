/* sites: a library to preload. It names large allocations by the stack that asked for them, and
 * asks for huge pages for some.
 *
 * A site is a digest of up to eight return addresses, each as module and offset, so it is the same
 * in every run whatever the address layout; frames inside libc and the loader are left out. Small
 * objects share a heap: whatever makes it grow is the site HEAP. TLB_SITES=FILE appends a line for
 * each site when it is first seen; TLB_ONLY=SITE,SITE or `all` are those to advise. */
#define _GNU_SOURCE
#include "requests.h"
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else /* without Valgrind's header nothing simulates */
#define VALGRIND_DO_CLIENT_REQUEST_STMT(r, a, b, c, d, e) ((void)(a), (void)(b), (void)(c))
#endif

#define HEAP 1ull
#define FRAMES 8
#define MOST 256
#define MIB (1ul << 20)
#define LEAST MIB         /* of an allocation that is a site of its own: half a huge page */
#define MOST_PAGE 65536ul /* bytes of a base page, at most */
#define ARENA (64 * MIB)  /* HEAP_MAX_SIZE of glibc on 64 bits, and its alignment */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static __thread int inside;
static int is_ready, log_fd = -1, seen_count;
static uint64_t seen[MOST];
static const char *advised;
static char program[1024];

static void set_up(void)
{
    const char *log = getenv("TLB_SITES");
    void *first[2];
    is_ready = inside = 1;
    advised = getenv("TLB_ONLY");
    log_fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        *program = 0;
    backtrace(first, 2); /* which loads libgcc_s, and so allocates */
    inside = 0;
}

static void advise(const char *id, uintptr_t from, uintptr_t to)
{
    from = (from + MOST_PAGE - 1) & -MOST_PAGE, to &= -MOST_PAGE;
    if (to > from && advised && (!strcmp(advised, "all") || strstr(advised, id)))
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

static void log_site(uint64_t site, const char *id, const char *how, size_t n, const char *stack)
{
    int k = 0;
    while (k < seen_count && seen[k] != site)
        k++;
    if (k < seen_count || k == MOST || log_fd < 0)
        return;
    seen[seen_count++] = site;
    dprintf(log_fd, "%s\t%s\t%zu\t%s\n", id, how, n, stack);
}

/* The site of whoever called the allocator. stack: "path+0xoffset;...", from the inside out. */
static uint64_t site_of_caller(char *stack, size_t room)
{
    void *frames[32];
    size_t used = 0;
    uint64_t site = 14695981039346656037ull; /* FNV-1a */
    int count = backtrace(frames, 32), kept = 0;
    for (int i = 1; i < count && kept < FRAMES && used < room; i++) {
        struct dl_find_object found;
        uintptr_t at = (uintptr_t)frames[i] - 1; /* inside the call, not after it */
        const char *path = program;
        if (!_dl_find_object((void *)at, &found)) {
            path = *found.dlfo_link_map->l_name ? found.dlfo_link_map->l_name : program;
            at -= found.dlfo_link_map->l_addr;
        }
        const char *module = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        if (!strncmp(module, "libc.so", 7) || !strncmp(module, "ld-linux", 8) ||
            !strncmp(module, "sites-", 6))
            continue;
        for (const char *c = module; *c; c++)
            site = (site ^ (unsigned char)*c) * 1099511628211ull;
        site = (site ^ at) * 1099511628211ull, kept++;
        const char *format = used ? ";%s+0x%lx" : "%s+0x%lx";
        used += (size_t)snprintf(stack + used, room - used, format, path, at);
    }
    return site;
}

/* Tell the simulation, and advise. A small object has made its heap grow into the MiB around it:
 * that of brk up to its end, a thread's arena of 64 MiB. */
static void *note(const char *how, void *result, size_t bytes)
{
    static __thread uintptr_t grown[MOST]; /* MiB that a heap is known to have */
    uintptr_t from = (uintptr_t)result, to = from + bytes, mib = from / MIB;
    int is_heap = bytes < LEAST, error = errno;
    char id[17], stack[3500];
    if (!is_ready)
        set_up();
    if (inside || !result || (is_heap && grown[mib % MOST] == mib))
        return result;
    inside = 1, *stack = 0;
    uint64_t site = is_heap ? HEAP : site_of_caller(stack, sizeof stack);
    if (is_heap) {
        uintptr_t end = (uintptr_t)sbrk(0), size = from < end ? MIB : ARENA;
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_REGION, site, from, 0, 0, 0);
        grown[mib % MOST] = mib;
        from &= -size, to = from < end ? end : from + ARENA;
    } else
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_RANGE, site, from, bytes, 0, 0);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)site);
    advise(id, from, to);
    log_site(site, id, how, bytes, stack);
    inside = 0, errno = error;
    return result;
}

void *malloc(size_t n) { return note("malloc", __libc_malloc(n), n); }
void *calloc(size_t a, size_t b) { return note("calloc", __libc_calloc(a, b), a * b); }

/* A large block that was freed has no name any more: the heap has it, if it was not unmapped. */
static void end_name(void *q, size_t bytes)
{
    if (bytes >= LEAST)
        VALGRIND_DO_CLIENT_REQUEST_STMT(FREE_RANGE, HEAP, q, bytes, 0, 0);
}

void free(void *q)
{
    size_t bytes = malloc_usable_size(q);
    __libc_free(q);
    end_name(q, bytes);
}

void *realloc(void *q, size_t n)
{
    size_t bytes = malloc_usable_size(q);
    void *p = __libc_realloc(q, n);
    if (p || !n)
        end_name(q, bytes);
    return note("realloc", p, n);
}

void *memalign(size_t a, size_t n) { return note("memalign", __libc_memalign(a, n), n); }
void *aligned_alloc(size_t, size_t) __attribute__((alias("memalign")));

int posix_memalign(void **result, size_t a, size_t n)
{
    *result = memalign(a, n);
    return *result ? 0 : ENOMEM;
}

void *mmap(void *a, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, a, n, protection, flags, fd, offset);
    int is_plain = (flags & MAP_ANONYMOUS) && !(flags & (MAP_STACK | MAP_HUGETLB)) && n >= LEAST;
    return p != MAP_FAILED && is_plain ? note("mmap", p, n) : p;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
