/* probe_chase: what page_chase maps and in which order it visits, told by its own functions and by the kernel.
 *
 *   probe_chase visits [page_chase's arguments]    the visits of one round, in units of a line
 *   probe_chase memory [page_chase's arguments]    the arena once the chase is placed, as JSON */
#define main kernel_main
#include "../../kernels/page_chase.c"
#undef main

/* The page frame of an address; 0 where the kernel does not tell (only root may ask). */
static uint64_t frame_of(int pagemap, const char *at, uint64_t page)
{
    uint64_t entry = 0;
    if (pagemap < 0 || pread(pagemap, &entry, sizeof entry, (off_t)((uint64_t)at / page * sizeof entry)) != sizeof entry)
        return 0;
    return entry & ((1ull << 55) - 1);
}

static int ascending_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t distinct(uint64_t *numbers, uint64_t n)
{
    uint64_t found = n > 0;
    qsort(numbers, n, sizeof *numbers, ascending_numbers);
    for (uint64_t i = 1; i < n; i++)
        found += numbers[i] != numbers[i - 1];
    return found;
}

static void tell_memory(const struct config *c, const struct arena *a)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = a->bytes / page, resident = 0, at_lines = 0, mappings = 0, aliased = 0, unknown = 0;
    unsigned long long from, to, offset;
    char line[512];
    unsigned char *in_memory = malloc(all);
    uint64_t *frame = malloc(c->lines * sizeof *frame);
    if (!in_memory || !frame || mincore(a->base, a->bytes, in_memory))
        exit(1);
    for (uint64_t i = 0; i < all; i++)
        resident += in_memory[i] & 1;
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    for (uint64_t i = 0; i < c->lines; i++) {
        const char *at = a->base + offset_of(c, a, i);
        at_lines += in_memory[(uint64_t)(at - a->base) / page] & 1;
        frame[i] = frame_of(pagemap, at, page);
        unknown += !frame[i];
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%llx-%llx %*s %llx", &from, &to, &offset) == 3 && from < (uint64_t)a->base + a->bytes && to > (uint64_t)a->base) {
            mappings++;
            aliased += !offset && strstr(line, "memfd:alias");
        }
    printf("{\"bytes\": %" PRIu64 ", \"physical\": %" PRIu64 ", \"resident_pages\": %" PRIu64 ", \"resident_lines\": %" PRIu64
           ", \"mappings\": %" PRIu64 ", \"aliased\": %" PRIu64 ", \"unknown_frames\": %" PRIu64 ", \"frames\": %" PRIu64 "}\n",
           a->bytes, a->physical, resident, at_lines, mappings, aliased, unknown, distinct(frame, c->lines));
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    struct config c = parse(&page_chase, argc - 1, argv + 1);
    struct arena a = c.alias ? map_alias(&c) : map_arena(&c);
    uint64_t checksum;
    if (!c.alias && strcmp(c.order, "random"))
        place_chase(a.base, c.lines, places_in(c.packed, a.stride, a.page), !strcmp(c.order, "cycle"), c.seed);
    else {
        struct draws d = place_visits(&c, &a, 0, &checksum);
        for (uint64_t i = 0; argv[1][0] == 'v' && i < d.draws; i++)
            printf("%" PRIu32 "\n", d.draw[i]);
    }
    if (argv[1][0] == 'm')
        tell_memory(&c, &a);
    return fflush(stdout) ? 1 : 0;
}
