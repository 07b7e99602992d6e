/* verify_backing() of kernels/backing.h on texts that no kernel wrote: the very function, with three words of libc replaced
 * (fopen by what stands in memory, exit by a jump back, stderr by a buffer). The kernels themselves know nothing of this.
 *
 * stdin: per case "PAGES LENGTH\n" and LENGTH bytes; stdout: per case "accepted\n" or the complaint as the kernel prints it.
 * argv: the arena's base, bytes and resident bytes. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text;
static size_t length;
static FILE *said;
static jmp_buf back;

static FILE *replay(const char *path, const char *mode)
{
    if (strcmp(path, "/proc/self/smaps")) /* sysfs: absent */
        return NULL;
    return fmemopen(text, length, mode);
}

#define fopen replay
#define exit(status) longjmp(back, status)
#undef stderr
#define stderr said
#include "../../kernels/backing.h"
#undef exit

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct arena a = {.base = (char *)strtoull(argv[1], NULL, 0), .bytes = strtoull(argv[2], NULL, 0),
                      .resident = strtoull(argv[3], NULL, 0)};
    char pages[4], *complaint = NULL;
    size_t room = 0;
    while (scanf("%3s %zu", pages, &length) == 2) {
        getchar();
        text = malloc(length + 1);
        if (!text || fread(text, 1, length, stdin) != length)
            return 1;
        said = open_memstream(&complaint, &room);
        int status = setjmp(back);
        if (!status) {
            struct config c = {.pages = page_size_called(pages)};
            verify_backing(&c, &a);
        }
        fclose(said);
        fputs(status ? complaint : "accepted\n", stdout);
        if (status && (status != 3 || !room))
            return 1;
        free(complaint);
        free(text);
    }
    return 0;
}
