/* The handles of a lane: made once by kind, tried again after a failure, destroyed in reverse, counted meanwhile. */
#include <pthread.h>

#include "check.h"
#include "cuda/handles.h"
#include "runtime/failure.h"

/* A library that writes down what is done to its handles. */
static char history[256];
static int refuse_create, refuse_stream;

static void note(const char *what, const void *handle) {
    const size_t n = strlen(history);
    snprintf(history + n, sizeof history - n, "%s%d ", what, *(const int *)handle);
}

static int create_as(int number, void **handle, atomr_failure *failure) {
    if (refuse_create) return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "some", 3, "NO_MEMORY", "someCreate");
    int *const made = malloc(sizeof *made);
    *made = number;
    *handle = made;
    note("create", made);
    return ATOMR_OK;
}
static int create_one(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    CHECK(cuda == (atomr_cuda *)history);
    return create_as(1, handle, failure);
}
static int create_two(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    CHECK(cuda == (atomr_cuda *)history);
    return create_as(2, handle, failure);
}
static int set_stream(void *handle, CUstream stream, atomr_failure *failure) {
    CHECK(stream == (CUstream)&refuse_stream);
    if (refuse_stream) return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "some", 7, "INVALID", "someSetStream");
    note("stream", handle);
    return ATOMR_OK;
}
static void destroy(void *handle) {
    note("destroy", handle);
    free(handle);
}

static const atomr_handle_kind one = {"one", create_one, set_stream, destroy};
static const atomr_handle_kind two = {"two", create_two, NULL, destroy};

static int get(atomr_handles *h, const atomr_handle_kind *kind, void **handle, atomr_failure *failure) {
    return atomr_handles_get(h, kind, (atomr_cuda *)history, (CUstream)&refuse_stream, handle, failure);
}

static void test_made_once_and_destroyed_in_reverse(void) {
    atomr_handles h = {0};
    atomr_failure failure;
    void *a = NULL, *b = NULL, *again = NULL;
    history[0] = 0;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_OK);
    CHECK_EQ(get(&h, &two, &b, &failure), ATOMR_OK);
    CHECK_EQ(get(&h, &one, &again, &failure), ATOMR_OK);
    CHECK(again == a && a != b);
    atomr_handles_end(&h);
    CHECK(strcmp(history, "create1 stream1 create2 destroy2 destroy1 ") == 0);
    atomr_handles_end(&h);
    CHECK(strcmp(history, "create1 stream1 create2 destroy2 destroy1 ") == 0);
}

static void test_a_failure_leaves_none_and_is_tried_again(void) {
    atomr_handles h = {0};
    atomr_failure failure;
    void *a = NULL;
    history[0] = 0;
    refuse_create = 1;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_LIBRARY_ERROR);
    CHECK(failure.status == 3 && strcmp(failure.text, "someCreate") == 0);
    refuse_create = 0, refuse_stream = 1;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_LIBRARY_ERROR);
    CHECK(strcmp(failure.name, "INVALID") == 0);
    refuse_stream = 0;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_OK);
    atomr_handles_end(&h);
    CHECK(strcmp(history, "create1 destroy1 create1 stream1 destroy1 ") == 0);
}

/* Those of a lane are pointed at another stream and back; one that cannot be is destroyed, and made anew when needed. */
static void test_pointed_at_another_stream(void) {
    atomr_handles h = {0};
    atomr_failure failure;
    void *a = NULL, *b = NULL;
    history[0] = 0;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_OK);
    CHECK_EQ(get(&h, &two, &b, &failure), ATOMR_OK);
    CHECK_EQ(atomr_handles_point(&h, (CUstream)&refuse_stream, &failure), ATOMR_OK);
    refuse_stream = 1;
    CHECK_EQ(atomr_handles_point(&h, (CUstream)&refuse_stream, &failure), ATOMR_LIBRARY_ERROR);
    CHECK_EQ(atomr_handles_point(&h, (CUstream)&refuse_stream, &failure), ATOMR_OK); /* the other one has no stream */
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_LIBRARY_ERROR);
    refuse_stream = 0;
    atomr_handles_end(&h);
    CHECK(strcmp(history, "create1 stream1 create2 stream1 destroy1 create1 destroy1 destroy2 ") == 0);
    history[0] = 0;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_OK);
    refuse_stream = 1;
    CHECK_EQ(atomr_handles_point(&h, (CUstream)&refuse_stream, &failure), ATOMR_LIBRARY_ERROR);
    refuse_stream = 0;
    CHECK_EQ(get(&h, &one, &a, &failure), ATOMR_OK);
    CHECK_EQ(atomic_load(&h.n), 1);
    atomr_handles_end(&h);
    CHECK(strcmp(history, "create1 stream1 destroy1 create1 stream1 destroy1 ") == 0);
}

static void test_too_many_kinds(void) {
    static atomr_handle_kind kinds[ATOMR_HANDLES + 1];
    atomr_handles h = {0};
    atomr_failure failure;
    void *handle = NULL;
    history[0] = 0;
    for (unsigned i = 0; i <= ATOMR_HANDLES; i++) {
        kinds[i] = two;
        CHECK_EQ(get(&h, &kinds[i], &handle, &failure), i < ATOMR_HANDLES ? ATOMR_OK : ATOMR_UNSUPPORTED);
    }
    CHECK(strstr(failure.text, "two is one too many") != NULL);
    atomr_handle_count counts[ATOMR_HANDLES];
    CHECK_EQ(atomr_handles_count(&h, counts, 0), 1); /* all of one library */
    CHECK_EQ(counts[0].count, ATOMR_HANDLES);
    atomr_handles_end(&h);
}

enum { LANES = 8 };

typedef struct {
    atomr_handles *lanes;
    _Atomic int stop;
} counter;

/* Counts may be asked for at any time: they grow, and a handle that is counted has a library. */
static void *count_all(void *argument) {
    counter *const c = argument;
    unsigned last = 0;
    while (!c->stop) {
        atomr_handle_count counts[ATOMR_HANDLES];
        unsigned n = 0, total = 0;
        for (unsigned i = 0; i < LANES; i++) n = atomr_handles_count(&c->lanes[i], counts, n);
        for (unsigned i = 0; i < n; i++) {
            CHECK(strcmp(counts[i].library, "one") == 0 || strcmp(counts[i].library, "two") == 0);
            total += counts[i].count;
        }
        CHECK(n <= 2 && total >= last && total <= 2 * LANES);
        last = total;
    }
    return NULL;
}

static void test_counted_while_they_are_made(void) {
    for (int round = 0; round < 200; round++) {
        atomr_handles lanes[LANES];
        memset(lanes, 0, sizeof lanes);
        counter c = {lanes, 0};
        pthread_t thread;
        atomr_failure failure;
        void *handle;
        history[0] = 0;
        CHECK_EQ(pthread_create(&thread, NULL, count_all, &c), 0);
        for (unsigned i = 0; i < LANES; i++) {
            CHECK_EQ(get(&lanes[i], &one, &handle, &failure), ATOMR_OK);
            CHECK_EQ(get(&lanes[i], &two, &handle, &failure), ATOMR_OK);
        }
        c.stop = 1;
        CHECK_EQ(pthread_join(thread, NULL), 0);
        atomr_handle_count counts[ATOMR_HANDLES];
        unsigned n = 0;
        for (unsigned i = 0; i < LANES; i++) n = atomr_handles_count(&lanes[i], counts, n);
        CHECK(n == 2 && counts[0].count == LANES && counts[1].count == LANES);
        for (unsigned i = 0; i < LANES; i++) atomr_handles_end(&lanes[i]);
    }
}

int main(int argc, char **argv) {
    RUN(test_made_once_and_destroyed_in_reverse);
    RUN(test_a_failure_leaves_none_and_is_tried_again);
    RUN(test_pointed_at_another_stream);
    RUN(test_too_many_kinds);
    RUN(test_counted_while_they_are_made);
    return check_end(argc, argv);
}
