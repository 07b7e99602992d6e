/* sites: a library to preload. It names large allocations by the stack that asked for them, and asks for huge pages for some.
 *
 * A site is a digest of up to eight return addresses, each as module and offset, so it is the same in every run whatever the
 * address layout; frames inside libc and the loader are left out. Small objects share a heap: whatever makes it grow is the site
 * HEAP. TLB_SITES=FILE appends a line for each site when it is first seen; TLB_ONLY=SITE,SITE or `all` are those to advise;
 * TLB_LEAST=BYTES is from which size an allocation counts. */
#define _GNU_SOURCE
#include "requests.h"
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
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
#define VALGRIND_DO_CLIENT_REQUEST_STMT(request, a, b, c, d, e) ((void)(a), (void)(b), (void)(c))
#endif

#define HEAP 1ull
#define ALL ~0ull
#define FRAMES 8
#define MOST 256
#define KNOWN 256
#define MIB (1ul << 20)
#define ARENA (64 * MIB) /* HEAP_MAX_SIZE of glibc on 64 bits, and its alignment */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static __thread int inside;
static int is_ready, log_fd = -1, advised_count, seen_count;
static size_t least = 1 << 20;
static uint64_t advised[MOST], seen[MOST];
static char program[1024];

static void set_up(void)
{
    char *text = getenv("TLB_LEAST");
    is_ready = inside = 1;
    least = text ? strtoull(text, NULL, 0) : least;
    if ((text = getenv("TLB_SITES")))
        log_fd = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if ((text = getenv("TLB_ONLY")))
        while (*text && advised_count < MOST) {
            advised[advised_count++] = strncmp(text, "all", 3) ? strtoull(text, NULL, 16) : ALL;
            text += strcspn(text, ",");
            text += *text == ',';
        }
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        *program = 0;
    void *first[2];
    backtrace(first, 2); /* which loads libgcc_s, and so allocates */
    inside = 0;
}

static int is_advised(uint64_t site)
{
    for (int k = 0; k < advised_count; k++)
        if (advised[k] == site || advised[k] == ALL)
            return 1;
    return 0;
}

static void advise(uint64_t site, uintptr_t from, uintptr_t to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    from = (from + page - 1) & -page, to &= -page;
    if (to > from && is_advised(site))
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

static int is_of_libc(const char *module)
{
    return !strncmp(module, "libc.so", 7) || !strncmp(module, "libc-", 5) || !strncmp(module, "ld-linux", 8) || !strncmp(module, "sites-", 6);
}

static void log_site(uint64_t site, const char *how, const char *stack)
{
    for (int k = 0; k < seen_count; k++)
        if (seen[k] == site)
            return;
    if (seen_count < MOST)
        seen[seen_count++] = site;
    char line[4096];
    int n = snprintf(line, sizeof line, "%016llx\t%s\t%s\n", (unsigned long long)site, how, stack);
    if (log_fd >= 0 && write(log_fd, line, (size_t)n < sizeof line ? (size_t)n : sizeof line) < 0)
        log_fd = -1;
}

/* The site of whoever called the allocator. stack: "path+0xoffset;...", from the inside out. */
static uint64_t site_of_caller(char *stack, size_t room)
{
    void *frames[32];
    int count = backtrace(frames, 32), kept = 0, used = 0;
    uint64_t site = 14695981039346656037ull; /* FNV-1a */
    for (int i = 1; i < count && kept < FRAMES; i++) {
        struct dl_find_object found;
        uintptr_t at = (uintptr_t)frames[i] - 1; /* inside the call, not after it */
        const char *path = program, *module;
        if (!_dl_find_object((void *)at, &found)) {
            path = *found.dlfo_link_map->l_name ? found.dlfo_link_map->l_name : program;
            at -= found.dlfo_link_map->l_addr;
        }
        module = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        if (is_of_libc(module))
            continue;
        for (const char *c = module; *c; c++)
            site = (site ^ (unsigned char)*c) * 1099511628211ull;
        site = (site ^ at) * 1099511628211ull, kept++;
        used += snprintf(stack + used, room - (size_t)used, "%s%s+0x%lx", used ? ";" : "", path, at);
        if ((size_t)used >= room)
            break;
    }
    return site;
}

/* Tell the simulation, and advise. A heap has grown into the MiB of `p`: that of brk up to its end, a thread's arena of 64 MiB. */
static void name(const char *how, uintptr_t p, size_t bytes, int is_heap)
{
    int error = errno;
    char stack[3500] = "";
    inside = 1;
    uint64_t site = site_of_caller(stack, sizeof stack);
    if (is_heap) {
        uintptr_t end = (uintptr_t)sbrk(0), arena = p & -ARENA;
        site = HEAP;
        advise(site, p < end ? p & -MIB : arena, p < end ? end : arena + ARENA);
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_REGION, site, p, 0, 0, 0);
    } else {
        advise(site, p, p + bytes);
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_RANGE, site, p, bytes, 0, 0);
    }
    log_site(site, how, stack);
    inside = 0, errno = error;
}

static inline void *note(const char *how, void *result, size_t bytes)
{
    static __thread uintptr_t grown[KNOWN]; /* MiB that a heap is known to have */
    uintptr_t p = (uintptr_t)result, mib = p / MIB;
    if (__builtin_expect(!is_ready, 0))
        set_up();
    if (inside || !p)
        return result;
    if (bytes >= least)
        name(how, p, bytes, 0);
    else if (__builtin_expect(grown[mib % KNOWN] != mib, 0)) {
        grown[mib % KNOWN] = mib;
        name(how, p, bytes, 1);
    }
    return result;
}

void *malloc(size_t n) { return note("malloc", __libc_malloc(n), n); }
void *calloc(size_t a, size_t b) { return note("calloc", __libc_calloc(a, b), a * b); }
void *realloc(void *q, size_t n) { return note("realloc", __libc_realloc(q, n), n); }
void *memalign(size_t a, size_t n) { return note("memalign", __libc_memalign(a, n), n); }
void *aligned_alloc(size_t a, size_t n) { return note("aligned_alloc", __libc_memalign(a, n), n); }

int posix_memalign(void **result, size_t a, size_t n)
{
    void *p = note("posix_memalign", __libc_memalign(a, n), n);
    *result = p ? p : *result;
    return p ? 0 : ENOMEM;
}

void *mmap(void *a, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, a, n, protection, flags, fd, offset);
    int is_plain = (flags & MAP_ANONYMOUS) && !(flags & (MAP_STACK | MAP_HUGETLB)) && n >= least;
    if (p != MAP_FAILED && is_plain)
        note("mmap", p, n);
    return p;
}

void *mmap64(void *a, size_t n, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
