/* arguments.h: parse a kernel's arguments. Exit 2 and one sentence for a bad one; exit 3 and {"reason": ..., "detail": ...}
 * on stderr, with codes of tlb/system/reasons.py, for what the machine lacks. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H
#include "errors.h"
#include "pages.h"
#include <getopt.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 64ull      /* cache line on x86-64 and almost every arm64 server core */
#define NOT_GIVEN UINT64_MAX
#define MOST_CPUS 8192  /* Linux's limit on x86-64 (MAXSMP) */

/* A timed function: equal machine code at an equal place within a cache line in every program. noipa keeps the compiler from
 * specialising it for its callers; clang's `used` stands in for that. */
#ifdef __clang__
#define TIMED __attribute__((noinline, used, aligned(64))) static
#else
#define TIMED __attribute__((noipa, aligned(64))) static
#endif

struct own {
    const char *name;
    uint64_t value, least, most;
    int given;
};
enum { MOST_WORDS = 6, MOST_OWN = 7 }; /* of arrays that end with a NULL */
enum { POINT_FIELDS = 9, MOST_ARGUMENTS = 64 };

/* What a record says of its line in a plan; id: NULL for a point that the command line names. */
static struct { const char *id; uint64_t position, mapping_bytes, proved; } plan_line;

struct config {
    const char *kernel, *layout, *order, *mode;
    const struct page_size *pages;
    struct own own[MOST_OWN];
    uint64_t lines, stride_pages, seed, region_ns, started_ns;
    uint64_t warm_hops;            /* before a part of a large cycle; default: lines of the largest cache */
    int packed, alias;             /* layouts; neither: spread */
    int fifo;
    int cpu, control_fd, ack_fd;   /* perf's gate; -1: not counted */
};

struct arena;
struct region;

struct kernel {
    const char *name, *orders[MOST_WORDS], *layouts[MOST_WORDS], *modes[MOST_WORDS];
    struct own own[MOST_OWN];
    void (*check)(struct config *c);
    struct arena (*map)(const struct config *c);
    struct region (*measure)(const struct config *c, const struct arena *a); /* after the arena is proved */
};

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

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
    char all[160] = "";
    for (const char *const *a = allowed; *a; a++)
        if (!strcmp(text, *a))
            return *a;
    for (const char *const *a = allowed; *a; a++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s %s", a == allowed ? "" : ",", *a);
    bad_argument("--%s takes%s; not '%s'.", name, all, text);
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

static inline int asks_for_plan(int argc, char **argv)
{
    int i = argc - 1;
    while (i > 0 && strcmp(argv[i], "--plan"))
        i--;
    return i > 0;
}

static inline void print_mapped(uint64_t bytes, uint64_t populate_ns, uint64_t page_table_bytes)
{
    printf("{\"mapped\": %" PRIu64 ", \"populate_ns\": %" PRIu64 ", \"page_table_bytes\": %" PRIu64 ", \"proved\": 0}\n", bytes,
           populate_ns, page_table_bytes);
    fflush(stdout);
}

static inline void print_end(uint64_t answered, uint64_t proved)
{
    printf("{\"end\": %" PRIu64 ", \"proved\": %" PRIu64 "}\n", answered, proved);
}

/* Append the arguments of a plan's line (plan.h) to argv; return the kernel's name. */
static inline const char *read_point(char *line, int *argc, char **argv)
{
    static const char *const named[] = {"--mode", "--layout", "--order", "--lines", "--stride-pages", "--seed", "--region-ms"};
    char *word[MOST_ARGUMENTS], *rest;
    int words = 0;
    for (char *w = strtok_r(line, " \t\n", &rest); w && words < MOST_ARGUMENTS; w = strtok_r(NULL, " \t\n", &rest))
        word[words++] = w;
    plan_line.id = words ? word[0] : "";
    if (words < POINT_FIELDS || words == MOST_ARGUMENTS)
        bad_argument("A line of a plan has %d fields and then options, %d words in all at the most; this one has %d.", POINT_FIELDS,
                     MOST_ARGUMENTS - 1, words);
    for (int i = 2; i < POINT_FIELDS; i++)
        if (i > 2 || strcmp(word[i], "-"))
            argv[(*argc)++] = (char *)named[i - 2], argv[(*argc)++] = word[i];
    for (int i = POINT_FIELDS; i < words; i++)
        argv[(*argc)++] = word[i];
    argv[*argc] = NULL;
    return word[1];
}

/* A program whose points take a process each forks one for each line of its plan, and returns in those alone. One that fails
 * ends its parent as it ended. */
static inline int take_line(const struct kernel *k, int argc, char **argv, char **words)
{
    static char *line;
    size_t room = 0;
    uint64_t taken = 0;
    int n = 0, status = 0;
    for (int i = 0; i < argc && n < MOST_ARGUMENTS; i++)
        if (!i || strcmp(argv[i], "--plan"))
            words[n++] = argv[i];
    setvbuf(stdin, NULL, _IONBF, 0); /* exit() in a child would set a file back to where its buffer was read */
    print_mapped(0, 0, 0);
    while (!status && getline(&line, &room, stdin) > 0) {
        pid_t child = fork();
        if (child < 0)
            unavailable("memory-short", "no process for a point: %s", strerror(errno));
        taken++;
        if (!child) {
            const char *name = read_point(line, &n, words);
            if (strcmp(name, k->name))
                bad_argument("'%s' is no kernel that this program measures.", name);
            plan_line.proved = taken;
            return n;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    if (status)
        exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    print_end(taken, taken);
    exit(fflush(stdout) ? 1 : 0);
}

static inline struct config parse(const struct kernel *k, int argc, char **argv)
{
    char *words[3 * MOST_ARGUMENTS + POINT_FIELDS];
    if (asks_for_plan(argc, argv))
        argc = take_line(k, argc, argv, words), argv = words;
    enum { SHARED = 11, OWN = 256 }; /* OWN: above every short option's letter */
    struct option options[SHARED + 1 + MOST_OWN] = {
        {"pages", 1, 0, 'p'}, {"layout", 1, 0, 'l'}, {"order", 1, 0, 'o'},     {"lines", 1, 0, 'n'}, {"seed", 1, 0, 's'},
        {"cpu", 1, 0, 'c'},   {"region-ms", 1, 0, 'r'}, {"perf-fds", 1, 0, 'f'}, {"stride-pages", 1, 0, 'd'},
        {"warm-hops", 1, 0, 'w'}, {"fifo", 0, 0, 'i'}};
    struct config c = {.kernel = k->name, .layout = k->layouts[0], .order = k->orders[0], .mode = k->modes[0] ? k->modes[0] : "",
                       .pages = page_sizes, .lines = 4096, .stride_pages = 1, .seed = 1, .region_ns = 60000000ull,
                       .warm_hops = NOT_GIVEN, .started_ns = now_ns(), .cpu = -1, .control_fd = -1, .ack_fd = -1};
    int option, end, known = SHARED;
    memcpy(c.own, k->own, sizeof c.own);
    if (k->modes[0])
        options[known++] = (struct option){"mode", 1, 0, 'm'};
    for (int i = 0; c.own[i].name; i++)
        options[known++] = (struct option){c.own[i].name, 1, 0, OWN + i};
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'p': c.pages = page_size_called(optarg); break;
        case 'l': c.layout = one_of("layout", optarg, k->layouts); break;
        case 'o': c.order = one_of("order", optarg, k->orders); break;
        case 'm': c.mode = one_of("mode", optarg, k->modes); break;
        case 'n': c.lines = natural("lines", optarg, 1, 1ull << 32); break; /* next_random() draws 32 bits */
        case 'd': c.stride_pages = natural("stride-pages", optarg, 1, 1 << 20); break;
        case 's': c.seed = natural("seed", optarg, 0, INT64_MAX); break;
        case 'c': c.cpu = (int)natural("cpu", optarg, 0, MOST_CPUS - 1); break;
        case 'r': c.region_ns = natural("region-ms", optarg, 1, 60000) * 1000000ull; break;
        case 'w': c.warm_hops = natural("warm-hops", optarg, 1, 1ull << 32); break;
        case 'i': c.fifo = 1; break;
        case 'f':
            if (sscanf(optarg, "%d,%d%n", &c.control_fd, &c.ack_fd, &end) != 2 || optarg[end])
                bad_argument("--perf-fds takes two file descriptors, CONTROL,ACK, not '%s'.", optarg);
            break;
        default:
            if (option < OWN)
                bad_argument("Usage: %s --pages P --layout L --order O --lines N [--stride-pages D] [--seed S] [--cpu C] "
                             "[--region-ms R] [--warm-hops W] [--fifo]", k->name);
            struct own *o = &c.own[option - OWN];
            o->value = natural(o->name, optarg, o->least, o->most);
            o->given = 1;
        }
    if (optind < argc)
        bad_argument("'%s' is not an option of %s.", argv[optind], k->name);
    c.packed = !strcmp(c.layout, "packed");
    c.alias = !strcmp(c.layout, "alias");
    if (c.stride_pages > 1 && (c.packed || c.pages->source == FROM_MTHP || c.pages->source == FROM_THP))
        bad_argument("--stride-pages above 1 takes --layout spread or alias and --pages 4k, 2m or 1g.");
    if (k->check)
        k->check(&c);
    return c;
}
#endif
