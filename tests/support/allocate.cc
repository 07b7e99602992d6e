#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <sys/mman.h>

int main(int argc, char **)
{
    const std::size_t bytes = 64 << 20;
    std::size_t huge = 0;
    std::ifstream("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") >> huge;
    char *p = nullptr;
    if (argc > 1) {
        p = static_cast<char *>(aligned_alloc(huge, (bytes + huge - 1) / huge * huge));
        madvise(p, bytes, MADV_HUGEPAGE);
        p = new (p) char[bytes];
    } else
        p = new char[bytes];
    std::memset(p, 1, bytes);
    std::string word;
    std::ifstream file("/proc/self/smaps_rollup");
    while (file >> word && word != "AnonHugePages:")
        ;
    file >> word;
    std::printf("huge=%s\n", word.c_str());
    return p[1] != 1;
}
