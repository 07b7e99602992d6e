/* errors.h: the two ways to give no number. A process for one point prints the reason and exits with 2 (bad argument) or 3
 * (unavailable); one for many points jumps to its next point. */
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

/* Print text as in a JSON string: /dev/kvm's group may be called CORP\kvm. */
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
