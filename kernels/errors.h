/* errors.h: the two ways in which a kernel says that there will be no number: bad arguments, and what the machine lacks.
 *
 * A process that measures one point prints why on stderr and ends, with status 2 or 3. One that measures many goes on with the next
 * point: whoever fails jumps there. */
#ifndef ERRORS_H
#define ERRORS_H
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of many points in one process one may fail: where the next begins, and why this one gave no number. NULL: the process ends. */
static jmp_buf *next_point;
static struct { const char *reason; char detail[256]; } failure;

__attribute__((noreturn, format(printf, 1, 2))) static void bad_argument(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    failure.reason = "bad-parameter";
    vsnprintf(failure.detail, sizeof failure.detail, format, args);
    va_end(args);
    if (next_point)
        longjmp(*next_point, 1);
    fprintf(stderr, "%s\n", failure.detail);
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

static inline void print_failure(FILE *out)
{
    fprintf(out, "\"reason\": \"%s\", \"detail\": \"", failure.reason);
    print_escaped(out, failure.detail);
    fputc('"', out);
}

__attribute__((noreturn, format(printf, 2, 3))) static void unavailable(const char *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    failure.reason = reason;
    vsnprintf(failure.detail, sizeof failure.detail, format, args);
    va_end(args);
    if (next_point)
        longjmp(*next_point, 1);
    fputc('{', stderr);
    print_failure(stderr);
    fputs("}\n", stderr);
    exit(3);
}
#endif
