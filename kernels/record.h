/* record.h: the record of a point, one line of JSON. */
#ifndef RECORD_H
#define RECORD_H
#include "region.h"

static inline void print_options(const struct own *own)
{
    const char *comma = "";
    for (const struct own *o = own; o->name; o++)
        if (o->given) {
            printf("%s[\"%s\", %" PRIu64 "]", comma, o->name, o->value);
            comma = ", ";
        }
}

static inline void print_id(void)
{
    fputs("\"id\": \"", stdout);
    print_escaped(stdout, plan_line.id);
    printf("\", \"proved\": %" PRIu64 ", ", plan_line.proved);
}

static inline int report(const struct config *c, const struct arena *a, const struct region *r)
{
    const char *pages = c->pages->name;
    putchar('{');
    if (plan_line.id)
        print_id();
    printf("\"kernel\": \"%s\", \"engine\": \"c\", \"pages\": \"%s\", \"backing\": \"%s\", \"layout\": \"%s\", \"order\": \"%s\", "
           "\"lines\": %" PRIu64 ", \"stride_pages\": %" PRIu64 ", \"mode\": \"%s\", \"options\": [",
           c->kernel, pages, pages, c->layout, c->order, c->lines, c->stride_pages, c->mode);
    print_options(c->own);
    printf("], \"also\": {%s}, \"stride_bytes\": %" PRIu64 ", \"working_set_bytes\": %" PRIu64 ", \"arena_bytes\": %" PRIu64 ", "
           "\"mapping_bytes\": %" PRIu64 ", \"position\": %" PRIu64 ", \"fifo\": %d, ",
           also_text, a->stride, a->working_set, a->physical, plan_line.mapping_bytes ? plan_line.mapping_bytes : a->physical,
           plan_line.position, r->fifo);
    if (r->table_bytes)
        printf("\"page_table_bytes\": %" PRIu64 ", ", r->table_bytes);
    if (r->warm_ns)
        printf("\"warm_ns\": %" PRIu64 ".0, ", r->warm_ns);
    if (r->cpu_ns)
        printf("\"cpu_ns\": %" PRIu64 ".0, ", r->cpu_ns);
    printf("\"seed\": %" PRIu64 ", \"cpu\": %d, \"accesses\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 ".0, \"ns_per_access\": %.9g, ",
           c->seed, r->cpu, r->accesses, r->elapsed_ns, median(r->batch, r->batches));
    printf("\"batch_ns_per_access\": [");
    for (int i = 0; i < r->batches; i++)
        printf("%s%.6g", i ? ", " : "", r->batch[i]);
    printf("], \"core_ghz\": %.6g, \"prepare_ns\": %" PRIu64 ".0, \"minor_faults\": %ld, \"major_faults\": %ld, "
           "\"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"migrations\": %d, \"checksum\": \"%016" PRIx64 "\"",
           median(r->ghz, r->clocks), r->prepare_ns, r->after.ru_minflt - r->before.ru_minflt, r->after.ru_majflt - r->before.ru_majflt,
           r->after.ru_nvcsw - r->before.ru_nvcsw, r->after.ru_nivcsw - r->before.ru_nivcsw, r->migrations, r->checksum);
    if (r->more)
        r->more(r->of);
    puts("}");
    return fflush(stdout) ? 1 : 0;
}
#endif
