/* arguments.h: a kernel's arguments, and the two ways in which it says that there will be no number.
 *
 * Every kernel keeps one contract, so that anything can run it by hand:
 *
 *   arguments   parse_arguments()   exit 2 and one sentence for a bad one
 *   memory      arena.h             the page size asked for, both ways, before the first touch; proved from smaps
 *   order       placement.h         where lines stand and in which order they are visited
 *   region      region.h            warm up, open perf's gate, time batches, close it, print one record
 *
 * What the machine lacks ends in exit 3 and {"reason": ..., "detail": ...} on stderr; codes: experiments/words/reasons.py. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H
#include "pages.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#define LINE 64ull      /* bytes a cache line, on every x86-64 and almost every arm64 server core */
#define NOT_GIVEN UINT64_MAX
#define MOST_CPUS 8192  /* Linux's own limit on x86-64 (MAXSMP) */

/* A number that one kernel alone takes: --name VALUE. An array of them ends with a name of NULL. The record holds those that
 * were given. */
struct own {
    const char *name;
    uint64_t value, least, most;
    int given;
};

struct config {
    const char *kernel, *layout, *order, *mode;
    const struct page_size *pages;
    struct own *own;
    uint64_t lines, stride_pages, seed, region_ns, started_ns;
    uint64_t warm_hops;            /* before a part of a large cycle is timed; NOT_GIVEN: as many as the largest cache has lines */
    int packed, alias;             /* of the layouts; else spread */
    int cpu, control_fd, ack_fd;   /* perf's gate; -1 when nothing counts */
};

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- errors ---------------------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 1, 2))) static void bad_argument(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(2);
}

/* Text as JSON has it between quotes: a group of /dev/kvm may be called CORP\kvm. */
static inline void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
}

__attribute__((noreturn, format(printf, 2, 3))) static void unavailable(const char *reason, const char *format, ...)
{
    char detail[256];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    fprintf(stderr, "{\"reason\": \"%s\", \"detail\": \"", reason);
    print_escaped(stderr, detail);
    fputs("\"}\n", stderr);
    exit(3);
}

/* ---- parsing --------------------------------------------------------------------------------------------- */

static inline uint64_t natural(const char *name, const char *text, uint64_t least, uint64_t most)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || !*text || text[strspn(text, "0123456789")] || value < least || value > most)
        bad_argument("--%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'.", name, least, most, text);
    return value;
}

static inline const char *one_of(const char *name, const char *text, const char *const *allowed)
{
    for (const char *const *a = allowed; *a; a++)
        if (!strcmp(text, *a))
            return *a;
    fprintf(stderr, "--%s takes", name);
    for (const char *const *a = allowed; *a; a++)
        fprintf(stderr, "%s %s", a == allowed ? "" : ",", *a);
    bad_argument("; not '%s'.", text);
}

static inline const struct page_size *page_size_called(const char *text)
{
    const char *names[PAGE_SIZES + 1] = {NULL};
    for (int i = 0; i < PAGE_SIZES; i++)
        names[i] = page_sizes[i].name;
    const char *name = one_of("pages", text, names);
    const struct page_size *p = page_sizes;
    while (p->name != name)
        p++;
    return p;
}

/* orders, layouts, modes: what may be chosen, the first is the default. modes and own: NULL where a kernel has none. */
static inline struct config parse_more(int argc, char **argv, const char *kernel, const char *const *orders,
                                       const char *const *layouts, const char *const *modes, struct own *own)
{
    enum { SHARED = 10, OWN = 256, MOST_OWN = 6 }; /* OWN: past every character, so that it is no shared option's letter */
    static struct option options[SHARED + 1 + MOST_OWN + 1] = {
        {"pages", 1, 0, 'p'}, {"layout", 1, 0, 'l'}, {"order", 1, 0, 'o'},     {"lines", 1, 0, 'n'}, {"seed", 1, 0, 's'},
        {"cpu", 1, 0, 'c'},   {"region-ms", 1, 0, 'r'}, {"perf-fds", 1, 0, 'f'}, {"stride-pages", 1, 0, 'd'},
        {"warm-hops", 1, 0, 'w'}};
    static struct own none[1];
    struct config c = {.kernel = kernel, .layout = layouts[0], .order = orders[0], .mode = modes ? modes[0] : "",
                       .pages = page_sizes, .own = own ? own : none, .lines = 4096, .stride_pages = 1, .seed = 1,
                       .region_ns = 60000000ull, .warm_hops = NOT_GIVEN, .started_ns = now_ns(), .cpu = -1, .control_fd = -1,
                       .ack_fd = -1};
    int option, end, known = SHARED;
    if (modes)
        options[known++] = (struct option){"mode", 1, 0, 'm'};
    for (int i = 0; c.own[i].name && i < MOST_OWN; i++)
        options[known++] = (struct option){c.own[i].name, 1, 0, OWN + i};
    opterr = 0; /* one sentence, ours */
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'p': c.pages = page_size_called(optarg); break;
        case 'l': c.layout = one_of("layout", optarg, layouts); break;
        case 'o': c.order = one_of("order", optarg, orders); break;
        case 'm': c.mode = one_of("mode", optarg, modes); break;
        case 'n': c.lines = natural("lines", optarg, 1, 1ull << 32); break; /* next_random() draws 32 bits */
        case 'd': c.stride_pages = natural("stride-pages", optarg, 1, 1 << 20); break;
        case 's': c.seed = natural("seed", optarg, 0, INT64_MAX); break;
        case 'c': c.cpu = (int)natural("cpu", optarg, 0, MOST_CPUS - 1); break;
        case 'r': c.region_ns = natural("region-ms", optarg, 1, 60000) * 1000000ull; break;
        case 'w': c.warm_hops = natural("warm-hops", optarg, 1, 1ull << 32); break;
        case 'f':
            if (sscanf(optarg, "%d,%d%n", &c.control_fd, &c.ack_fd, &end) != 2 || optarg[end])
                bad_argument("--perf-fds takes two file descriptors, CONTROL,ACK, not '%s'.", optarg);
            break;
        default:
            if (option < OWN)
                bad_argument("Usage: %s --pages P --layout L --order O --lines N [--stride-pages D] [--seed S] [--cpu C] "
                             "[--region-ms R] [--warm-hops W]", kernel);
            struct own *o = &c.own[option - OWN];
            o->value = natural(o->name, optarg, o->least, o->most);
            o->given = 1;
        }
    if (optind < argc)
        bad_argument("'%s' is not an option of %s.", argv[optind], kernel);
    c.packed = !strcmp(c.layout, "packed");
    c.alias = !strcmp(c.layout, "alias");
    if (c.stride_pages > 1 && (c.packed || c.pages->source == FROM_MTHP || c.pages->source == FROM_THP))
        bad_argument("--stride-pages above 1 takes --layout spread or alias and --pages 4k, 2m or 1g.");
    return c;
}

static inline struct config parse_arguments(int argc, char **argv, const char *kernel, const char *const *orders,
                                            const char *const *layouts)
{
    return parse_more(argc, argv, kernel, orders, layouts, NULL, NULL);
}
#endif
