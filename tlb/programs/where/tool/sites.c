/* sites: a library to preload. It names large allocations by the stack that asked for them, and
 * asks for huge pages for some.
 *
 * It passes each call on to the allocator that the program would have without it, whichever that is,
 * so a block is freed by the allocator that gave it.
 *
 * A site is a digest of up to eight return addresses, each as module and offset, so it is the same
 * in every run whatever the address layout; frames inside libc and the loader are left out. Small
 * objects share a heap: whatever makes it grow is a site of its own for each kind of allocator.
 * Site 0 is a large request that was refused. TLB_SITES=FILE appends a line for each site when it is
 * first seen; TLB_ONLY=SITE,SITE or `all` are those to advise. */
#define _GNU_SOURCE
#include "requests.h"
#include <dlfcn.h>
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

#define FRAMES 8
#define MOST 256
#define MIB (1ul << 20)
#define LEAST MIB         /* of an allocation that is a site of its own: half a huge page */
#define MOST_PAGE 65536ul /* bytes of a base page, at most */
#define ARENA (64 * MIB)  /* HEAP_MAX_SIZE of glibc on 64 bits, and its alignment */
#define LARGEST (1ul << 30) /* a request that a simulation may refuse where Linux does not */

/* Kinds of allocators, and what only the library of each has. */
enum { GLIBC, JEMALLOC, MIMALLOC, TCMALLOC, OTHER };
static const char *const kinds[] = {"glibc", "jemalloc", "mimalloc", "tcmalloc", "other"};
static const char *const symbols[] = {"gnu_get_libc_version", "mallocx", "mi_malloc", "tc_malloc"};
#define HEAP(kind) ((unsigned long long)(kind) + 1)

/* The allocator's own functions, and the file that they are in. */
static struct {
    void *(*malloc)(size_t), *(*calloc)(size_t, size_t), *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*memalign)(size_t, size_t), *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    const struct link_map *file;
    unsigned kind;
} next;
static __thread int inside;
static int is_ready, log_fd = -1, seen_count;
static uint64_t seen[MOST];
static const char *advised;
static char program[1024];
static uintptr_t huge_bytes; /* of a transparent huge page; 0 without any */

static const struct link_map *file_of(const void *address)
{
    struct dl_find_object found;
    return !address || _dl_find_object((void *)address, &found) ? NULL : found.dlfo_link_map;
}

/* By the loader's order of search. None of these lookups fails, so none allocates: the first call
 * may come from an allocator that is not ready. */
static void find_next(void)
{
    next.calloc = dlsym(RTLD_NEXT, "calloc"), next.realloc = dlsym(RTLD_NEXT, "realloc");
    next.memalign = dlsym(RTLD_NEXT, "memalign");
    next.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    next.malloc = dlsym(RTLD_NEXT, "malloc"), next.free = dlsym(RTLD_NEXT, "free");
    next.file = file_of((void *)next.malloc);
    advised = getenv("TLB_ONLY");
}

static uintptr_t read_number(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtoul(text, NULL, 10) : 0;
}

/* Not from mmap: an allocator that calls it may hold its locks, and this allocates. */
__attribute__((constructor)) static void set_up(void)
{
    const char *log = getenv("TLB_SITES");
    void *first[2];
    if (is_ready)
        return;
    inside = 1;
    if (!next.file)
        find_next();
    while (next.kind < OTHER && file_of(dlsym(RTLD_DEFAULT, symbols[next.kind])) != next.file)
        next.kind++;
    log_fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        *program = 0;
    huge_bytes = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    backtrace(first, 2); /* which loads libgcc_s, and so allocates */
    is_ready = 1, inside = 0;
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
    dprintf(log_fd, "%s\t%s\t%zu\t%s\t%s\n", id, how, n, kinds[next.kind], stack);
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
 * that of brk up to its end, a thread's arena of glibc's. What maps the others is seen in mmap. */
static void *note(const char *how, void *result, size_t bytes)
{
    static __thread uintptr_t grown[MOST]; /* MiB that a heap is known to have */
    uintptr_t from = (uintptr_t)result, to = from + bytes, mib = from / MIB;
    int is_heap = bytes < LEAST, error = errno;
    char id[17], stack[3500];
    if (inside || (is_heap && (!result || grown[mib % MOST] == mib)))
        return result;
    set_up();
    inside = 1, *stack = 0;
    uint64_t site = is_heap ? HEAP(next.kind) : result ? site_of_caller(stack, sizeof stack) : 0;
    if (is_heap) {
        uintptr_t end = (uintptr_t)sbrk(0), size = from < end ? MIB : ARENA;
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_REGION, site, from, 0, 0, 0);
        grown[mib % MOST] = mib;
        from &= -size, to = from < end ? end : next.kind == GLIBC ? from + ARENA : from;
    } else if (result) {
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_RANGE, site, from, bytes, 0, 0);
        /* It may hold no whole huge page. The allocator writes a header behind it, so the page of
         * the next one is touched before that is named. */
        if (bytes < 2 * huge_bytes && strcmp(how, "mmap"))
            from &= -huge_bytes, to = (to + 2 * huge_bytes - 1) & -huge_bytes;
    }
    snprintf(id, sizeof id, "%016llx", (unsigned long long)site);
    if (result)
        advise(id, from, to);
    if (result || bytes >= LARGEST)
        log_site(site, id, how, bytes, stack);
    inside = 0, errno = error;
    return result;
}

/* An allocator has mapped memory for its heap. It may hold locks, so nothing here allocates. Of which
 * kind it is may not be known yet; a process has one. */
static void note_heap(void *result, size_t bytes)
{
    uintptr_t from = (uintptr_t)result;
    int error = errno;
    char id[17];
    for (unsigned k = is_ready ? next.kind : 0; k <= (is_ready ? next.kind : OTHER); k++) {
        snprintf(id, sizeof id, "%016llx", HEAP(k));
        advise(id, from, from + bytes);
    }
    if (is_ready)
        VALGRIND_DO_CLIENT_REQUEST_STMT(NAME_RANGE, HEAP(next.kind), from, bytes, 0, 0);
    errno = error;
}

/* The allocator's own function of this name. */
#define NEXT(function) (next.file ? (void)0 : find_next(), next.function)

/* A large block that was freed has no name any more: the heap has it, if it was not unmapped. */
static void end_name(void *q, size_t bytes)
{
    if (bytes >= LEAST)
        VALGRIND_DO_CLIENT_REQUEST_STMT(FREE_RANGE, HEAP(next.kind), q, bytes, 0, 0);
}

void free(void *q)
{
    size_t bytes = malloc_usable_size(q);
    NEXT(free)(q);
    end_name(q, bytes);
}

void *malloc(size_t n) { return note("malloc", NEXT(malloc)(n), n); }
void *calloc(size_t a, size_t b) { return note("calloc", NEXT(calloc)(a, b), a * b); }
void *memalign(size_t a, size_t n) { return note("memalign", NEXT(memalign)(a, n), n); }

void *realloc(void *q, size_t n)
{
    size_t bytes = malloc_usable_size(q);
    void *p = NEXT(realloc)(q, n);
    if (p || !n)
        end_name(q, bytes);
    return note("realloc", p, n);
}

void *aligned_alloc(size_t a, size_t n)
{
    return note("aligned_alloc", NEXT(aligned_alloc)(a, n), n);
}

int posix_memalign(void **result, size_t a, size_t n)
{
    int error = NEXT(posix_memalign)(result, a, n);
    if (!error)
        note("posix_memalign", *result, n);
    return error;
}

void *mmap(void *a, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, a, n, protection, flags, fd, offset);
    int is_plain = (flags & MAP_ANONYMOUS) && !(flags & (MAP_STACK | MAP_HUGETLB)) && n >= LEAST;
    if (!is_plain)
        return p;
    if (!next.file)
        find_next();
    if (next.file == file_of(__builtin_return_address(0))) {
        if (p != MAP_FAILED)
            note_heap(p, n);
    } else if (is_ready)
        note("mmap", p == MAP_FAILED ? NULL : p, n);
    return p;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
