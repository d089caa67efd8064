/* Shared by the C twins: options, time, statistics and one JSON line of output.
 *
 * Every twin prints exactly one line: {"program": ..., "us": microseconds per operation, "count": operations}.
 * A twin is killed by SIGALRM after a minute, so that a lost wake-up can never hang a run.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BENCH_LIMIT_SECONDS 60

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void rest_us(long us)
{
    struct timespec t = {us / 1000000, (us % 1000000) * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline const char *option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return fallback;
}

static inline long option_long(int argc, char **argv, const char *name, long fallback)
{
    const char *text = option(argc, argv, name, NULL);
    char *end = NULL;
    if (text == NULL) {
        return fallback;
    }
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "%s: expected a whole number, got %s\n", name, text);
        exit(2);
    }
    return value;
}

static inline long option_positive(int argc, char **argv, const char *name, long fallback)
{
    long value = option_long(argc, argv, name, fallback);
    if (value < 1) {
        fprintf(stderr, "%s: expected at least 1, got %ld\n", name, value);
        exit(2);
    }
    return value;
}

static inline int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Median of `count` durations in nanoseconds, as microseconds.  Sorts in place. */
static inline double median_us(int64_t *times, long count)
{
    qsort(times, (size_t)count, sizeof *times, compare_i64);
    int64_t middle = times[count / 2];
    if (count % 2 == 0) {
        return (double)(middle + times[count / 2 - 1]) / 2e3;
    }
    return (double)middle / 1e3;
}

static inline void print_result(const char *program, double us, long count)
{
    printf("{\"program\": \"%s\", \"us\": %.6f, \"count\": %ld}\n", program, us, count);
    fflush(stdout);
}

#endif
