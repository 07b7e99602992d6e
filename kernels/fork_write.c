/* fork_write: the cost of a fork and of the parent's writes after it, which copy pages; and of sparse memory. ns a page.
 *
 * touch   write a word of each base page of fresh memory
 * write   then fork, and time another write to each page
 *
 * --used N uses only the first N base pages of every 2 MiB (allocators' arenas of 100 KiB: 25). */
#include "placement.h"
#include "record.h"
#include <sys/wait.h>

#define MEASURES 2 /* 1 read smaps just before the fork */

struct used { uint64_t lines, in_row, room; }; /* pages; in_row of them side by side in each room */

/* [timed: writes] */
TIMED void write_each(char *base, const struct used *u, uint64_t page, uint64_t word)
{
    for (uint64_t left = u->lines; left; base += u->room)
        for (uint64_t i = 0; i < u->in_row && left; i++, left--)
            *(volatile uint64_t *)(base + i * page) = word++;
}
/* [end] */

static uint64_t check_each(char *base, const struct used *u, uint64_t page, uint64_t word)
{
    uint64_t checksum = FNV_BASIS;
    for (uint64_t left = u->lines; left; base += u->room)
        for (uint64_t i = 0; i < u->in_row && left; i++, left--) {
            must_be(*(volatile uint64_t *)(base + i * page), word++);
            checksum = mix(checksum, *(volatile uint64_t *)(base + i * page));
        }
    return checksum;
}

static uint64_t private_bytes(const struct arena *a)
{
    char line[512];
    unsigned long long from, to, kb, sum = 0;
    int inside = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && !strstr(line, " kB"))
            inside = from < (uint64_t)a->base + a->bytes && to > (uint64_t)a->base;
        else if (inside && (sscanf(line, "Private_Clean: %llu kB", &kb) == 1 || sscanf(line, "Private_Dirty: %llu kB", &kb) == 1))
            sum += kb;
    }
    if (f) fclose(f);
    return sum << 10;
}

static uint64_t fork_sharer(pid_t *child)
{
    pid_t parent = getpid();
    uint64_t begin = now_ns();
    *child = fork();
    uint64_t ns = now_ns() - begin;
    if (!*child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    if (*child < 0)
        unavailable("memory-short", "a process of %s could not be started: %s", "shared memory", strerror(errno));
    return ns;
}

static struct arena reserve_used(const struct config *c, const struct used *u)
{
    uint64_t page = base_page(), bytes = u->in_row < u->lines ? (u->lines + u->in_row - 1) / u->in_row * u->room : u->lines * page;
    struct arena a = reserve_bytes(c, bytes);
    a.working_set = u->lines * page;
    return a;
}

int main(int argc, char **argv)
{
    static const struct kernel kernel = {.name = "fork_write", .orders = {"sequential"}, .layouts = {"spread"},
        .modes = {"write", "touch"},
        .own = {{.name = "used", .value = 0, .least = 0, .most = 1 << 20}}};
    struct config c = parse(&kernel, argc, argv);
    if (c.stride_pages != 1 || (c.pages->source != FROM_BASE && c.pages->source != FROM_THP))
        bad_argument("fork_write takes --pages 4k or thp and no --stride-pages.");
    uint64_t page = base_page(), room = sysfs_number(THP "hpage_pmd_size", 2 << 20);
    struct used u = {.lines = c.lines, .in_row = c.own[0].value ? c.own[0].value : c.lines, .room = room};
    if (c.own[0].value * page > room)
        bad_argument("--used takes as many pages as a large page has room for, %" PRIu64 ", at the most.", room / page);
    c.cpu = pin(c.cpu);
    struct arena a = reserve_used(&c, &u);
    int write = c.mode == kernel.modes[0];

    struct region r = {.batches = 0};
    double forks[MOST_BATCHES], touches[MOST_BATCHES];
    uint64_t checksum = 0, copied = 0, resident = 0, tables = 0;
    for (int first = 1; first || r.batches < MIN_BATCHES || (r.elapsed_ns < c.region_ns && r.batches < MOST_BATCHES); first = 0) {
        pid_t child = 0;
        lay_arena(&c, &a);
        a.resident = c.pages->source == FROM_BASE ? c.lines * page : a.bytes;
        if (first) {
            sample_clock(&r);
            start_counting(&c, &r);
        }
        if (!write && !first)
            gate(&c, "enable\n");
        uint64_t begin = now_ns();
        write_each(a.base, &u, page, 1);
        uint64_t ns = now_ns() - begin;
        if (!write && !first)
            gate(&c, "disable\n");
        double touch_ns = (double)ns / (double)c.lines, fork_ns = 0;
        tables = page_table_bytes();
        if (write) {
            fork_ns = (double)fork_sharer(&child);
            if (!first)
                gate(&c, "enable\n");
            begin = now_ns();
            write_each(a.base, &u, page, 2);
            ns = now_ns() - begin;
            if (!first)
                gate(&c, "disable\n");
            copied = private_bytes(&a);
        }
        checksum = check_each(a.base, &u, page, write ? 2 : 1);
        int gone = child && waitpid(child, NULL, WNOHANG);
        if (!gone)
            resident = verify_backing_in(&c, &a, child); /* a child still has the pages that were forked */
        if (gone || (child && (kill(child, SIGKILL) || waitpid(child, NULL, 0) != child)))
            unavailable("kernel-failed", "the process that shares the memory ended by itself");
        if (first)
            continue; /* a hypervisor may have had to find the memory first */
        forks[r.batches] = fork_ns;
        touches[r.batches] = touch_ns;
        add_batch(&r, ns, c.lines);
    }
    getrusage(RUSAGE_SELF, &r.after);
    sample_clock(&r);
    r.table_bytes = tables;
    also("touch_ns_per_page", median(touches, r.batches));
    also("resident_bytes", (double)resident);
    if (write) {
        also("fork_ns", median(forks, r.batches));
        also("copied_bytes", (double)copied);
    }
    r.checksum = checksum;
    return report(&c, &a, &r);
}
