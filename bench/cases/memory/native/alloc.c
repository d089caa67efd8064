/* Twin of allocate + free: a malloc and free pair of --bytes, untouched (as an empty array is untouched). */
#include "common.h"

int main(int argc, char **argv)
{
    long bytes = option_positive(argc, argv, "--bytes", 1 << 20);
    long count = option_positive(argc, argv, "--count", 10000);
    alarm(BENCH_LIMIT_SECONDS);
    for (long i = 0; i < 100; i++) { /* glibc raises its mmap threshold after the first large free */
        void *p = malloc((size_t)bytes);
        __asm__ __volatile__("" : : "r"(p) : "memory");
        free(p);
    }
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        void *p = malloc((size_t)bytes);
        __asm__ __volatile__("" : : "r"(p) : "memory");
        free(p);
    }
    double us = (double)(now_ns() - start) / 1e3 / (double)count;
    print_result("alloc", us, count);
    return 0;
}
