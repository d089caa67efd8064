/* What a segment costs: memfd_create, size, map, touch the first page, unmap, close; --bytes each. */
#include "common.h"

#include <sys/mman.h>

int main(int argc, char **argv)
{
    long bytes = option_positive(argc, argv, "--bytes", 64 << 20);
    long count = option_positive(argc, argv, "--count", 1000);
    alarm(BENCH_LIMIT_SECONDS);
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = memfd_create("bench-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ftruncate(fd, bytes) != 0) {
            die("memfd");
        }
        volatile unsigned char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            die("mmap");
        }
        p[0] = (unsigned char)i;
        munmap((void *)p, (size_t)bytes);
        close(fd);
    }
    double us = (double)(now_ns() - start) / 1e3 / (double)count;
    print_result("memfd", us, count);
    return 0;
}
