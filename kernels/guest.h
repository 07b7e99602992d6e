/* guest.h: the guest's page tables, built by the host, and its program. Entries: Intel SDM volume 3A, 4.5; AMD's manual,
 * volume 2, 5.3. */
#ifndef GUEST_H
#define GUEST_H
#include <stdint.h>
#include <string.h>

#define TABLE 4096ull
#define LARGE_LEAF 0x80ull

/* Present, writable, user (CPL 3), accessed and dirty, so that no walk sets a bit. Leaves above the lowest level add
 * LARGE_LEAF. */
#define ENTRY 0x67ull
#define ENTRY_ADDRESS 0x000FFFFFFFFFF000ull

struct tables {
    char *memory;
    uint64_t physical; /* its guest-physical address */
    uint64_t room, used;
    int levels;
};

/* Bytes per entry; leaves are of level 1 (4 KiB), 2 (2 MiB) or 3 (1 GiB). */
static inline uint64_t reach(int level) { return 1ull << (3 + 9 * level); }

/* Most tables that `bytes` need, wherever they begin. */
static inline uint64_t tables_for(uint64_t bytes, int leaf, int levels)
{
    uint64_t n = 1;
    for (int level = leaf; level < levels; level++)
        n += (bytes - 1) / reach(level + 1) + 2;
    return n;
}

static inline void start_tables(struct tables *t)
{
    t->used = 1;
    memset(t->memory, 0, TABLE);
}

/* Map aligned whole pages by leaves of one level; return 0 without room for the tables. Nothing of the range may have leaves
 * of another level. */
static inline int map_range(struct tables *t, int leaf, uint64_t virtual, uint64_t physical, uint64_t bytes)
{
    uint64_t page = reach(leaf);
    for (uint64_t at = 0; at < bytes; at += page) {
        uint64_t *table = (uint64_t *)t->memory;
        for (int level = t->levels; level > leaf; level--) {
            uint64_t *entry = &table[(virtual + at) / reach(level) % 512];
            if (!*entry) {
                if (t->used == t->room)
                    return 0;
                memset(t->memory + t->used * TABLE, 0, TABLE);
                *entry = (t->physical + t->used++ * TABLE) | ENTRY;
            }
            table = (uint64_t *)(t->memory + ((*entry & ENTRY_ADDRESS) - t->physical));
        }
        table[(virtual + at) / page % 512] = (physical + at) | ENTRY | (leaf > 1 ? LARGE_LEAF : 0);
    }
    return 1;
}

/* Shared by host and guest. rbx holds its address; the program uses these offsets: */
struct talk {
    void **start;               /* 0: the chase's next address */
    uint64_t blocks, singles;   /* 8, 16: blocks of 16 hops, and single hops but one */
    uint64_t begin, end;        /* 24, 32: the TSC before the first hop and after the last */
    void **last, **next;        /* 40, 48: the last hop's address and its result */
    /* A task state segment whose map (offset at byte 102) allows ports up to 63. IOPL 3 is enough with hardware
     * virtualisation; KVM without it runs user code under the host's IOPL. */
    struct { uint16_t unused[51], map_offset; uint8_t map[9]; } task;
};
#define DONE_PORT 16

#if defined __x86_64__
extern const char guest_code[], guest_code_end[];
/* [timed: guest] follow() of chase.h, with the last hop by itself. */
__asm__(".pushsection .text\n"
        ".balign 64\n"
        "guest_code:\n"
        "    mov 0(%rbx), %rdi\n"                              /* the first line: it holds the next one's address */
        "    mov 8(%rbx), %rsi\n"                              /* so many blocks of 16 loads */
        "    mov 16(%rbx), %rcx\n"                             /* and so many single loads */
        "    lfence; rdtsc; lfence\n"                          /* the clock, with no load in flight */
        "    mov %eax, 24(%rbx); mov %edx, 28(%rbx)\n"
        "    test %rsi, %rsi; jz 2f\n"
        ".balign 32\n"
        "1:  .rept 16; mov (%rdi), %rdi; .endr\n"              /* the measured loads */
        "    dec %rsi; jnz 1b\n"
        "2:  jrcxz 4f\n"
        "3:  mov (%rdi), %rdi\n"                               /* those that fill no block */
        "    dec %rcx; jnz 3b\n"
        "4:  mov %rdi, 40(%rbx)\n"
        "    mov (%rdi), %rdi\n"                                /* the last one, for its result */
        "    lfence; rdtsc\n"                                  /* the clock again */
        "    mov %eax, 32(%rbx); mov %edx, 36(%rbx)\n"
        "    mov %rdi, 48(%rbx)\n"
        "    out %al, $16\n"                                   /* back to the program that started the guest */
        "    jmp guest_code\n"
        "guest_code_end:\n"
        ".popsection");
/* [end] */
#endif
#endif
