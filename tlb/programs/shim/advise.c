/* advise: loaded before a program's own libraries (LD_PRELOAD), it asks for large pages for each anonymous mapping as it is made, before
 * the first touch. The program is not changed, and gets what madvise(MADV_HUGEPAGE) would give it; mremap keeps the advice.
 *
 * It stands in for mmap, by which allocators and runtimes get their memory. glibc's own malloc calls it by an inner name, for which nothing
 * can stand in: malloc asks by itself where GLIBC_TUNABLES says so, and levers.py says it beside this library. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All sizes. Reserved ones too, since the advice stays when they are
 * made writable. Not stacks, of which a program has many and touches little; nor what comes from a pool. A refusal is none of the
 * program's business, so errno stays as it was. */
static void advise(void *address, size_t length, int flags)
{
    int before = errno;
    if (address != MAP_FAILED && (flags & MAP_ANONYMOUS) && !(flags & (MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB)))
        madvise(address, length, MADV_HUGEPAGE);
    errno = before;
}

/* By the system call itself and not by dlsym, which may allocate before an allocator that calls this is ready. */
static void *mapped(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *mapping = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    advise(mapping, length, flags);
    return mapping;
}

/* Bytes of a transparent huge page: 2 MiB with base pages of 4 KiB, 32 MiB of 16, 512 MiB of 64. */
static size_t huge_page_bytes(void)
{
    static size_t known;
    char text[32] = "";
    if (!known) {
        int before = errno, fd = open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", O_RDONLY | O_CLOEXEC);
        size_t stated = fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? strtoul(text, NULL, 10) : 0;
        if (fd >= 0)
            close(fd);
        known = stated ? stated : 2 << 20;
        errno = before;
    }
    return known;
}

/* A piece smaller than a huge page is on none if it is touched before its neighbours are mapped. So pieces are cut, one after the other,
 * from a stretch that was mapped and advised before; each may be unmapped and protected by itself as any other. Whoever comes while
 * another cuts, and a child of a fork in between, gets a mapping of its own. MAP_FAILED where there is nothing to cut from. */
enum { least_stretch_bytes = 16 << 20 };

static void *piece(size_t length)
{
    static atomic_flag cutting = ATOMIC_FLAG_INIT;
    static char *next, *end;
    void *cut = MAP_FAILED;
    size_t page = (size_t)getpagesize(), bytes = (length + page - 1) / page * page, huge_bytes = huge_page_bytes();
    size_t stretch_bytes = huge_bytes > least_stretch_bytes ? huge_bytes : least_stretch_bytes;
    if (atomic_flag_test_and_set(&cutting))
        return cut;
    if ((size_t)(end - next) < bytes) {
        char *whole = mapped(NULL, stretch_bytes + huge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        next = end = NULL;
        if (whole != MAP_FAILED) {
            next = whole + -(uintptr_t)whole % huge_bytes;
            end = next + stretch_bytes;
        }
    }
    if (next) {
        cut = next;
        next += bytes;
    }
    atomic_flag_clear(&cutting);
    return cut;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *cut = MAP_FAILED;
    if (!address && length && length < huge_page_bytes() && protection == (PROT_READ | PROT_WRITE) && flags == (MAP_PRIVATE | MAP_ANONYMOUS))
        cut = piece(length);
    return cut != MAP_FAILED ? cut : mapped(address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
