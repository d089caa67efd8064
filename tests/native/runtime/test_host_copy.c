/* Copies by several threads: every byte, whatever the size and alignment, from many callers, across a fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "runtime/host_copy.h"

enum { GUARD = 64, MIB = 1 << 20 };

/* A value that depends on the place, so that a piece at a wrong place is seen: it repeats after a prime number of
 * bytes, as no piece does, and is written by memcpy, which sanitizers see as one access. */
static void fill(unsigned char *bytes, uint64_t n, uint64_t seed) {
    enum { PRIME = 65521 };
    unsigned char pattern[PRIME];
    for (uint64_t i = 0; i < (n < PRIME ? n : PRIME); i++) pattern[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
    for (uint64_t i = 0; i < n; i += PRIME) memcpy(bytes + i, pattern, n - i < PRIME ? n - i : PRIME);
}

static void check_copy(uint64_t n, unsigned to, unsigned from, enum atomr_copy_kind kind) {
    unsigned char *dst = malloc(n + to + 2 * GUARD), *src = malloc(n + from + 1);
    CHECK(dst && src);
    fill(src + from, n, n + to);
    memset(dst, 0xA5, n + to + 2 * GUARD);
    atomr_copy job;
    atomr_copy_start(&job, kind, dst + GUARD + to, src + from, n);
    CHECK_EQ(atomr_copy_finish(&job), 0);
    CHECK(atomr_copy_done(&job));
    CHECK_EQ(atomr_copy_finish(&job), 0); /* again */
    if (kind == ATOMR_COPY_TOUCH) memset(src + from, 0xA5, n); /* as it was */
    if (kind == ATOMR_COPY_ZERO) memset(src + from, 0, n);
    CHECK(memcmp(dst + GUARD + to, src + from, n) == 0);
    for (unsigned i = 0; i < GUARD; i++) CHECK(dst[to + i] == 0xA5 && dst[GUARD + to + n + i] == 0xA5);
    free(dst);
    free(src);
}

static const uint64_t sizes[] = {0, 1, 63, 4096, ATOMR_COPY_ALONE - 1, ATOMR_COPY_ALONE, ATOMR_COPY_ALONE + 1,
                                 512 << 10, MIB - 1, MIB, MIB + 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1,
                                 5 * MIB + 12345, 9 * MIB};
static const unsigned skews[] = {0, 1, 16, 64, 4095, 4096};

#ifdef __SANITIZE_THREAD__
enum { STEP = 3 }; /* who may touch a byte, and when, does not depend on its alignment */
#else
enum { STEP = 1 };
#endif

static void test_every_size_and_alignment(void) {
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned j = i % STEP; j < sizeof skews / sizeof *skews; j += STEP)
            check_copy(sizes[i], skews[j], skews[(i + j) % 6], ATOMR_COPY);
    uint64_t random = 7;
    for (unsigned i = 0; i < 40; i++)
        check_copy(check_random(&random) % (3 * MIB), check_random(&random) % 8192, check_random(&random) % 8192,
                   check_random(&random) % 2 ? ATOMR_COPY : ATOMR_COPY_FRESH);
}

static void test_other_kinds(void) {
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (enum atomr_copy_kind kind = ATOMR_COPY_FRESH; kind <= ATOMR_COPY_TOUCH; kind++)
            check_copy(sizes[i], skews[i % 6], skews[(i + 1) % 6], kind);
}

static uint64_t resident(unsigned char *start, uint64_t n) {
    unsigned char there[2048];
    uint64_t pages = 0;
    CHECK((n + 4095) / 4096 <= sizeof there);
    CHECK_EQ(mincore(start, n, there), 0);
    for (uint64_t i = 0; i < n / 4096; i++) pages += there[i] & 1;
    return pages;
}

static void test_touching_makes_the_pages(void) {
    const uint64_t n = 6 * MIB;
    unsigned char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK_EQ(resident(p, n), 0);
    atomr_copy job;
    atomr_copy_start(&job, ATOMR_COPY_TOUCH, p, NULL, n);
    CHECK_EQ(atomr_copy_finish(&job), 0);
    const uint64_t pages = resident(p, n);
    CHECK(pages == n / 4096 || pages == 0); /* 0: the kernel is older than 5.14 */
    munmap(p, n);
}

static void test_any_number_of_helpers(void) {
    const int before = atomr_copy_helpers();
    CHECK(before >= 1 && before <= 8);
    const int numbers[] = {0, 1, 5, 2, 0, 3, -4, 1000};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        atomr_copy_set_helpers(numbers[i]);
        if (i == 7) CHECK_EQ(atomr_copy_helpers(), ATOMR_COPY_MAX_HELPERS);
        if (i == 7) break;
        CHECK_EQ(atomr_copy_helpers(), numbers[i] < 0 ? 0 : numbers[i]);
        for (unsigned k = 0; k < 4; k++) check_copy(3 * MIB + k, k, 2 * k, ATOMR_COPY);
    }
    atomr_copy_set_helpers(before);
}

/* Several jobs of one caller, finished in any order. */
static void test_jobs_overlap(void) {
    enum { JOBS = 6, N = 3 * MIB };
    unsigned char *src = malloc(N), *dst = malloc((size_t)JOBS * N);
    CHECK(src && dst);
    fill(src, N, 3);
    for (unsigned round = 0; round < 10; round++) {
        memset(dst, 0, (size_t)JOBS * N);
        atomr_copy jobs[JOBS];
        for (unsigned i = 0; i < JOBS; i++) atomr_copy_start(&jobs[i], ATOMR_COPY, dst + (size_t)i * N, src, N);
        for (unsigned i = 0; i < JOBS; i++) CHECK_EQ(atomr_copy_finish(&jobs[(i * 5 + round) % JOBS]), 0);
        for (unsigned i = 0; i < JOBS; i++) CHECK(memcmp(dst + (size_t)i * N, src, N) == 0);
    }
    free(src);
    free(dst);
}

static void *call_often(void *argument) {
    uint64_t random = 11 + (uint64_t)(uintptr_t)argument;
    for (unsigned i = 0; i < 25; i++)
        check_copy(check_random(&random) % (2 * MIB), check_random(&random) % 4096, 0, ATOMR_COPY);
    return NULL;
}

static void test_many_callers(void) {
    enum { CALLERS = 8 };
    pthread_t threads[CALLERS];
    for (uintptr_t i = 0; i < CALLERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, call_often, (void *)i), 0);
    for (unsigned i = 0; i < 40; i++) {
        atomr_copy_set_helpers((int)(i % 4)); /* meanwhile */
        usleep(500);
    }
    atomr_copy_set_helpers(2);
    for (unsigned i = 0; i < CALLERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* The child has none of the threads, and starts its own; a job of the parent's is lost there, and only there. */
static void test_fork(void) {
    enum { N = 8 * MIB };
    unsigned char *src = malloc(N), *dst = calloc(1, N);
    CHECK(src && dst);
    fill(src, N, 9);
    for (unsigned round = 0; round < 6; round++) {
        check_copy(4 * MIB, 3, 5, ATOMR_COPY); /* the threads are there */
        atomr_copy job;
        if (round % 2) atomr_copy_start(&job, ATOMR_COPY, dst, src, N);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
#ifdef __SANITIZE_THREAD__
            atomr_copy_set_helpers(0); /* ThreadSanitizer knows no threads in a forked child */
#endif
            if (round % 2 && !atomr_copy_done(&job)) CHECK_EQ(atomr_copy_finish(&job), -1);
            check_copy(4 * MIB + 1, 1, 2, ATOMR_COPY);
            check_copy(4 * MIB + 1, 1, 2, ATOMR_COPY_FRESH);
            _exit(0);
        }
        if (round % 2) CHECK_EQ(atomr_copy_finish(&job), 0);
        if (round % 2) CHECK(memcmp(dst, src, N) == 0);
        int status = 0;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    free(src);
    free(dst);
}

int main(int argc, char **argv) {
    RUN(test_every_size_and_alignment);
    RUN(test_other_kinds);
    RUN(test_touching_makes_the_pages);
    RUN(test_any_number_of_helpers);
    RUN(test_jobs_overlap);
    RUN(test_many_callers);
    RUN(test_fork);
    return check_end(argc, argv);
}
