/* guest.h: what is inside the guest: its page tables, which the host builds, and its program.
 *
 * The tables come from a function of its arguments alone, which writes their memory and nothing else, so that a software walker
 * can be put on it. Entries: Intel SDM volume 3A, 4.5 (4-level and 5-level paging); AMD's manual, volume 2, 5.3, has the same
 * bits. */
#ifndef GUEST_H
#define GUEST_H
#include <stdint.h>
#include <string.h>

/* ---- its page tables ------------------------------------------------------------------------------------- */

#define TABLE 4096ull /* bytes: 512 entries of 8, at every level */
#define LARGE_LEAF 0x80ull

/* Present, writable, user; accessed and dirty too, as memory that a program wrote to has them: no walk has to set a bit. A leaf
 * above the lowest level has LARGE_LEAF. User at every level: the guest's only program runs at CPL 3. */
#define ENTRY 0x67ull
#define ENTRY_ADDRESS 0x000FFFFFFFFFF000ull

struct tables {
    char *memory;      /* of the host; the first table is the root */
    uint64_t physical; /* the guest's address of the same byte */
    uint64_t room, used; /* tables */
    int levels;
};

/* What an entry of a level maps, in bytes; a leaf, an entry that maps a page, is of level 1 (4 KiB), 2 (2 MiB) or 3 (1 GiB). */
static inline uint64_t reach(int level) { return 1ull << (3 + 9 * level); }

/* The tables that so many bytes take at the most, wherever they begin. */
static inline uint64_t tables_for(uint64_t bytes, int leaf, int levels)
{
    uint64_t n = 1;
    for (int level = leaf; level < levels; level++)
        n += (bytes - 1) / reach(level + 1) + 2;
    return n;
}

/* An empty root. */
static inline void start_tables(struct tables *t)
{
    t->used = 1;
    memset(t->memory, 0, TABLE);
}

/* Map `bytes` from `virtual` on to `physical` on by leaves of this level, both aligned to their pages: whole pages, so up to
 * one page less a byte beyond the end; nothing of it may be mapped by leaves of another level. 0 where there is no room for the
 * tables. */
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

/* ---- its program ----------------------------------------------------------------------------------------- */

/* Where the host and the guest meet. The program knows the offsets; rbx has the address. */
struct talk {
    void **start;               /* 0: where the chase stands */
    uint64_t blocks, singles;   /* 8, 16: hops of 16, and the rest but one */
    uint64_t begin, end;        /* 24, 32: the TSC before the first hop and after the last */
    void **last, **next;        /* 40, 48: where the last hop was made, and where it led */
    /* A task state segment whose map (its offset is at byte 102) allows every port up to 63 at any privilege. IOPL 3 is enough
     * where hardware runs guests; a KVM without it runs user code under its own host's IOPL, and the guest's is lost. */
    struct { uint16_t unused[51], map_offset; uint8_t map[9]; } task;
};
#define DONE_PORT 16

#if defined __x86_64__
extern const char guest_code[], guest_code_end[];
/* [timed: guest] follow() of chase.h, with the last hop by itself. */
__asm__(".pushsection .text\n"
        ".balign 64\n"
        "guest_code:\n"
        "    mov 0(%rbx), %rdi\n"
        "    mov 8(%rbx), %rsi\n"
        "    mov 16(%rbx), %rcx\n"
        "    lfence; rdtsc; lfence\n"
        "    mov %eax, 24(%rbx); mov %edx, 28(%rbx)\n"
        "    test %rsi, %rsi; jz 2f\n"
        ".balign 32\n"
        "1:  .rept 16; mov (%rdi), %rdi; .endr\n"
        "    dec %rsi; jnz 1b\n"
        "2:  jrcxz 4f\n"
        "3:  mov (%rdi), %rdi\n"
        "    dec %rcx; jnz 3b\n"
        "4:  mov %rdi, 40(%rbx)\n"
        "    mov (%rdi), %rdi\n"
        "    lfence; rdtsc\n"
        "    mov %eax, 32(%rbx); mov %edx, 36(%rbx)\n"
        "    mov %rdi, 48(%rbx)\n"
        "    out %al, $16\n"
        "    jmp guest_code\n"
        "guest_code_end:\n"
        ".popsection");
/* [end] */
#endif
#endif
