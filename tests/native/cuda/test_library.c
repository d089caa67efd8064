/* The loader of libraries: what it binds, what it refuses and says then, and that it opens a file once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "cuda/library.h"

typedef struct {
    size_t (*some_version)(void);
    int (*some_sum)(int, int);
    int (*some_product)(int, int);
    int (*some_extra)(void); /* optional */
} some_table;

static size_t version(const void *table) {
    const some_table *t = table;
    return t->some_version ? t->some_version() : 0;
}

static const char *const functions[] = {"some_version", "some_sum", "some_product", "some_extra"};
static const char *const sonames[] = {"libatomr_none.so.2", "libatomr_none.so.1", NULL};
static const atomr_library_info info = {
    .title = "Some",
    .environment = "ATOMR_TEST_SOME",
    .help = "pip install some",
    .sonames = sonames,
    .functions = functions,
    .n_needed = 3,
    .n_optional = 1,
    .version = version,
};

static char whole[4096], old[4096], none[4096];

static void find_files(void) {
    char self[3500];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n] = 0;
    const char *const folder = dirname(self);
    snprintf(whole, sizeof whole, "%s/some_library.so", folder);
    snprintf(old, sizeof old, "%s/some_library_old.so", folder);
    snprintf(none, sizeof none, "%s/no_such_library.so", folder);
    CHECK(access(whole, R_OK) == 0 && access(old, R_OK) == 0 && access(none, R_OK) != 0);
}

static int is_open(const char *path) {
    void *const handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (handle) dlclose(handle);
    return handle != NULL;
}

static int says(const char *why, const char *part) {
    if (strstr(why, part)) return 1;
    fprintf(stderr, "'%s' is not in: %s\n", part, why);
    return 0;
}

static void test_binds_all_and_tells_version_and_file(void) {
    some_table t = {0};
    atomr_library library = ATOMR_LIBRARY(info, t);
    char why[512];
    CHECK(atomr_library_open(&library, whole, why, sizeof why) == &t);
    CHECK_EQ(why[0], 0);
    CHECK_EQ(t.some_sum(3, 4), 7);
    CHECK_EQ(t.some_product(3, 4), 12);
    CHECK_EQ(t.some_extra(), 7);
    CHECK_EQ(library.version, 120401);
    CHECK(strcmp(library.file, whole) == 0);
    /* Once a process: a later call has another file in mind, and gets the same table. */
    CHECK(atomr_library_open(&library, none, why, sizeof why) == &t);
    CHECK_EQ(dlclose(library.handle), 0);
    CHECK(!is_open(whole));
}

static void test_missing_file(void) {
    some_table t = {0};
    atomr_library library = ATOMR_LIBRARY(info, t);
    char why[512];
    CHECK(atomr_library_open(&library, none, why, sizeof why) == NULL);
    CHECK(says(why, "Some cannot be opened: ") && says(why, none) && says(why, "; pip install some"));
    CHECK(atomr_library_open(&library, NULL, why, sizeof why) == NULL);
    CHECK(says(why, "Some is not installed: tried libatomr_none.so.2 and libatomr_none.so.1 ("));
    CHECK(says(why, "; pip install some"));
    CHECK(atomr_library_open(&library, whole, why, sizeof why) == &t); /* a failure is not the last word */
    CHECK_EQ(dlclose(library.handle), 0);
}

static void test_missing_functions_refuse_and_close(void) {
    some_table t = {0};
    const some_table untouched = {0};
    atomr_library library = ATOMR_LIBRARY(info, t);
    char why[512];
    CHECK(atomr_library_open(&library, old, why, sizeof why) == NULL);
    CHECK(says(why, old) && says(why, ", version 120401, cannot be used as Some"));
    CHECK(says(why, "it lacks some_product; pip install some")); /* not the optional one */
    CHECK(!is_open(old));
    CHECK(library.handle == NULL && memcmp(&t, &untouched, sizeof t) == 0);
}

static void test_optional_functions_may_be_missing(void) {
    static const char *const fewer[] = {"some_version", "some_sum", "some_extra"};
    struct {
        size_t (*some_version)(void);
        int (*some_sum)(int, int), (*some_extra)(void);
    } t = {0};
    atomr_library_info less = info;
    less.functions = fewer;
    less.n_needed = 2;
    atomr_library library = ATOMR_LIBRARY(less, t);
    char why[512];
    CHECK(atomr_library_open(&library, old, why, sizeof why) == &t);
    CHECK(t.some_sum && !t.some_extra);
    CHECK_EQ(dlclose(library.handle), 0);
}

static void test_environment_wins(void) {
    some_table t = {0};
    atomr_library library = ATOMR_LIBRARY(info, t);
    char why[512];
    CHECK_EQ(setenv("ATOMR_TEST_SOME", none, 1), 0);
    CHECK(atomr_library_open(&library, whole, why, sizeof why) == NULL);
    CHECK(says(why, none));
    CHECK_EQ(setenv("ATOMR_TEST_SOME", whole, 1), 0);
    CHECK(atomr_library_open(&library, none, why, sizeof why) == &t);
    CHECK_EQ(unsetenv("ATOMR_TEST_SOME"), 0);
    CHECK_EQ(dlclose(library.handle), 0);
}

static void test_long_reasons_are_cut(void) {
    some_table t = {0};
    atomr_library library = ATOMR_LIBRARY(info, t);
    char why[40];
    memset(why, 'x', sizeof why);
    CHECK(atomr_library_open(&library, old, why, sizeof why) == NULL);
    CHECK_EQ(strlen(why), sizeof why - 1);
}

enum { THREADS = 8 };

typedef struct {
    atomr_library *library;
    pthread_barrier_t *start;
    const some_table *found;
    size_t version;
    int sum;
} racer;

static void *race(void *argument) {
    racer *const r = argument;
    char why[512];
    pthread_barrier_wait(r->start);
    r->found = atomr_library_open(r->library, whole, why, sizeof why);
    if (r->found) r->sum = r->found->some_sum(1, 2);
    r->version = r->library->version;
    return NULL;
}

static void test_threads_race(void) {
    for (int round = 0; round < 50; round++) {
        some_table t = {0};
        atomr_library library = ATOMR_LIBRARY(info, t);
        pthread_barrier_t start;
        pthread_t threads[THREADS];
        racer racers[THREADS];
        CHECK_EQ(pthread_barrier_init(&start, NULL, THREADS), 0);
        for (int i = 0; i < THREADS; i++) {
            racers[i] = (racer){&library, &start, NULL, 0, 0};
            CHECK_EQ(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(racers[i].found == &t && racers[i].sum == 3 && racers[i].version == 120401);
        CHECK_EQ(dlclose(library.handle), 0); /* one reference: it was opened once */
        CHECK(!is_open(whole));
        CHECK_EQ(pthread_barrier_destroy(&start), 0);
    }
}

int main(int argc, char **argv) {
    find_files();
    RUN(test_binds_all_and_tells_version_and_file);
    RUN(test_missing_file);
    RUN(test_missing_functions_refuse_and_close);
    RUN(test_optional_functions_may_be_missing);
    RUN(test_environment_wins);
    RUN(test_long_reasons_are_cut);
    RUN(test_threads_race);
    return check_end(argc, argv);
}
