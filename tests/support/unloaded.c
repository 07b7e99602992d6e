/* A library that reads an array out of order (-DLIBRARY), and a program that loads the libraries
 * that it is given one after the other, each in the place of the last: unloaded LIBRARY... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define PAGE 4096
#define PAGES 2048

#ifdef LIBRARY
#define CALLED_(name) read_by_##name
#define CALLED(name) CALLED_(name)
uint64_t CALLED(LIBRARY)(const char *array)
{
    uint64_t sum = 0;
    for (uint32_t i = 0, k = 1; i < 8 * PAGES; i++, k = (k * 1664525u + 1013904223u) % PAGES)
        sum += (uint64_t)array[(uint64_t)k * PAGE];
    return sum;
}

uint64_t (*const called)(const char *) = CALLED(LIBRARY);
#else
#include <dlfcn.h>
int main(int argc, char **argv)
{
    char *array = calloc(PAGES, PAGE);
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        uint64_t (**called)(const char *) = library ? dlsym(library, "called") : NULL;
        if (!called)
            return 1;
        printf("%llu\n", (unsigned long long)(*called)(array));
        dlclose(library);
    }
    return 0;
}
#endif
