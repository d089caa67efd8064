/* The whole test framework of the native tests: CHECK and a runner.
 *
 * A failed CHECK aborts instead of unwinding: a sanitizer, a core file and a debugger then all show
 * the state at the failure, and a test of shared memory or threads has no honest way to carry on.
 * CHECK is never compiled out (unlike assert), so its argument may have side effects, and it may be
 * used from any thread.
 *
 *     static void test_something(void) { CHECK(1 + 1 == 2); }
 *     int main(int argc, char **argv) { RUN(test_something); return check_end(argc, argv); }
 *
 * Words on the command line select tests by a part of their name; none selects all.
 */
#ifndef ATOMR_TESTS_CHECK_H
#define ATOMR_TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fflush(stdout);                                                                        \
            fprintf(stderr, "%s:%d: CHECK failed in %s: %s\n", __FILE__, __LINE__, __func__,       \
                    #cond);                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Two integers that must be equal; both values are printed when they are not. */
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        const intmax_t check_a_ = (intmax_t)(a), check_b_ = (intmax_t)(b);                         \
        if (check_a_ != check_b_) {                                                                \
            fflush(stdout);                                                                        \
            fprintf(stderr, "%s:%d: CHECK failed in %s: %s == %s (%jd, %jd)\n", __FILE__,          \
                    __LINE__, __func__, #a, #b, check_a_, check_b_);                               \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Nanoseconds on the monotonic clock. */
static inline uint64_t check_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A small reproducible generator (xorshift64*): tests print their seed, never the time of day. */
static inline uint64_t check_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* True when the command line selects a test of that name. */
static inline int check_selected(int argc, char **argv, const char *name) {
    int i;
    for (i = 1; i < argc; i++) {
        if (strstr(name, argv[i]) != NULL) return 1;
    }
    return argc <= 1;
}

static int check_ran; /* tests run so far */

/* Runs one test from main(int argc, char **argv). */
#define RUN(test)                                                                                  \
    do {                                                                                           \
        if (check_selected(argc, argv, #test)) {                                                   \
            const uint64_t check_from_ = check_now_ns();                                           \
            check_ran++;                                                                           \
            printf("%-44s", #test);                                                                \
            fflush(stdout);                                                                        \
            test();                                                                                \
            printf(" ok %8.1f ms\n", (double)(check_now_ns() - check_from_) / 1e6);                \
            fflush(stdout);                                                                        \
        }                                                                                          \
    } while (0)

/* Runs a test of one thread, in which ThreadSanitizer could see nothing, slowly: not under it. */
#ifdef __SANITIZE_THREAD__
#define RUN_ALONE(test) ((void)test)
#else
#define RUN_ALONE(test) RUN(test)
#endif

/* The end of main. A selection that matched nothing must not look like success. */
static inline int check_end(int argc, char **argv) {
    (void)argc;
    if (check_ran == 0) {
        fprintf(stderr, "%s: no test has such a name\n", argv[0]);
        return 1;
    }
    printf("%d passed\n", check_ran);
    return 0;
}

#endif
