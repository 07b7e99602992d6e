/* advise: loaded before a program's own libraries (LD_PRELOAD), it asks for large pages for each anonymous mapping as it is made, before
 * the first touch. The program is not changed, and gets what madvise(MADV_HUGEPAGE) would give it; mremap keeps the advice.
 *
 * It stands in for mmap, by which allocators and runtimes get their memory. glibc's own malloc calls it by an inner name, for which nothing
 * can stand in: malloc asks by itself where GLIBC_TUNABLES says so, and levers.py says it beside this library. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All sizes: small neighbours become one mapping where they were advised alike. Reserved ones too, since the advice stays when they are
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
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *mapping = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    advise(mapping, length, flags);
    return mapping;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
