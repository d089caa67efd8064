/* Copies between devices: what the ranks of source and target say of one that the target's device refuses. */
#include "check.h"
#include "cuda/cuda_runs.h"
#include "cuda/device_copy.h"
#include "page_rig.h"
#include "runtime/failure.h"

enum { SOURCE, TARGET, RANKS, NBYTES = 64, FIRST = 7 };

/* ---- a driver that copies at once, or refuses to */

static atomr_driver driver;
static CUresult refused;

const atomr_driver *atomr_cuda_driver(const atomr_cuda *c) { return (void)c, &driver; }
CUstream atomr_cuda_stream(atomr_cuda *c, unsigned lane) { return (void)lane, (CUstream)c; }
CUresult atomr_cuda_error(atomr_cuda *c) { return (void)c, CUDA_SUCCESS; }
int atomr_cuda_fail(const atomr_cuda *c, CUresult result, const char *what, atomr_failure *failure) {
    (void)c;
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", result, "REFUSED", "%s", what);
}
static CUresult query(CUstream stream) { return (void)stream, CUDA_SUCCESS; }
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
    (void)stream;
    if (!refused) memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
    return refused;
}

/* ---- two ranks, whose lanes are this thread */

static const _Atomic int running;
static char source[NBYTES], target[NBYTES];

typedef struct {
    atomr_page *page;
    atomr_late late[RANKS];
    _Atomic int32_t info[RANKS][ATOMR_INFO_WORDS];
    atomr_between ranks[RANKS];
} pair;

static void vote(pair *p, uint64_t sequence) {
    atomr_error why;
    for (unsigned i = 0; i < RANKS; i++) atomr_page_cast(p->page, i, sequence, NULL);
    for (unsigned i = 0; i < RANKS; i++) CHECK_EQ(atomr_page_count(p->page, i, sequence, &running, &why), ATOMR_MET);
}

static int run(pair *p, unsigned rank, uint64_t sequence, atomr_failure *failure) {
    void *pointers[] = {source, target};
    const uint64_t scalars[] = {[ATOMR_KEY_MEETING] = 0, [ATOMR_KEY_SEQUENCE] = sequence};
    int prompt = 0, holds = 0;
    atomr_call call = {.n_operands = 2, .n_scalars = ATOMR_KEY_WORDS, .pointers = pointers, .scalars = scalars,
                       .prompt = &prompt, .late = &p->late[rank], .info = p->info[rank], .holds = &holds};
    memset(failure, 0, sizeof *failure);
    return atomr_between_run(&p->ranks[rank], &call, failure);
}

static int judged(pair *p, unsigned rank, atomr_failure *failure) {
    memset(failure, 0, sizeof *failure);
    return p->late[rank].judge(p->late[rank].context, p->info[rank], failure);
}

static pair begin(void) {
    pair p = {.page = page_new(RANKS)};
    driver.cuStreamQuery = query, driver.cuMemcpyAsync = copy;
    refused = CUDA_SUCCESS;
    for (unsigned i = 0; i < RANKS; i++)
        p.ranks[i] = (atomr_between){(atomr_cuda *)&driver, p.page, &running, i, SOURCE, TARGET, NBYTES, 1};
    memset(source, 5, NBYTES);
    memset(target, 0, NBYTES);
    return p;
}

static void test_both_succeed_when_the_copy_is_done(void) {
    pair p = begin();
    atomr_failure failure;
    vote(&p, FIRST);
    CHECK_EQ(run(&p, SOURCE, FIRST, &failure), ATOMR_OK);
    CHECK_EQ(judged(&p, SOURCE, &failure), ATOMR_UNDECIDED);
    CHECK_EQ(run(&p, TARGET, FIRST, &failure), ATOMR_OK);
    CHECK_EQ(judged(&p, SOURCE, &failure), ATOMR_UNDECIDED);
    CHECK_EQ(judged(&p, TARGET, &failure), ATOMR_OK);
    CHECK_EQ(judged(&p, SOURCE, &failure), ATOMR_OK);
    CHECK(memcmp(source, target, NBYTES) == 0);
    free(p.page);
}

/* A rank that has copied nothing must not look, at any moment, as if it had: the source's message would succeed. */
static void test_both_fail_when_the_copy_is_refused(void) {
    pair p = begin();
    atomr_failure failure;
    vote(&p, FIRST);
    CHECK_EQ(run(&p, SOURCE, FIRST, &failure), ATOMR_OK);
    refused = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK_EQ(run(&p, TARGET, FIRST, &failure), ATOMR_LIBRARY_ERROR);
    CHECK(failure.status == CUDA_ERROR_OUT_OF_MEMORY && strcmp(failure.lib, "cuda") == 0);
    CHECK_EQ(judged(&p, SOURCE, &failure), ATOMR_LIBRARY_ERROR);
    CHECK(failure.status == CUDA_ERROR_OUT_OF_MEMORY && strstr(failure.name, "REFUSED") != NULL);
    free(p.page);
}

/* The source's rank may look when both have gone on, and the target's has copied for later messages. */
static void test_refusals_are_known_while_messages_are_open(void) {
    static struct {
        atomr_late late;
        _Atomic int32_t info[ATOMR_INFO_WORDS];
    } open[ATOMR_INFOS];
    pair p = begin();
    atomr_failure failure;
    for (unsigned i = 0; i < ATOMR_INFOS; i++) {
        vote(&p, FIRST + i);
        CHECK_EQ(run(&p, SOURCE, FIRST + i, &failure), ATOMR_OK);
        open[i].late = p.late[SOURCE];
        for (unsigned k = 0; k < ATOMR_INFO_WORDS; k++) open[i].info[k] = atomic_load(&p.info[SOURCE][k]);
        refused = i % 3 == 0 ? (CUresult)(100 + i) : CUDA_SUCCESS;
        CHECK_EQ(run(&p, TARGET, FIRST + i, &failure), refused ? ATOMR_LIBRARY_ERROR : ATOMR_OK);
        if (!refused) CHECK_EQ(judged(&p, TARGET, &failure), ATOMR_OK);
    }
    for (unsigned i = 0; i < ATOMR_INFOS; i++) {
        memset(&failure, 0, sizeof failure);
        const int code = open[i].late.judge(open[i].late.context, open[i].info, &failure);
        CHECK_EQ(code, i % 3 == 0 ? ATOMR_LIBRARY_ERROR : ATOMR_OK);
        if (code) CHECK(failure.status == (int)(100 + i) && strstr(failure.name, "REFUSED") != NULL);
    }
    free(p.page);
}

int main(int argc, char **argv) {
    RUN(test_both_succeed_when_the_copy_is_done);
    RUN(test_both_fail_when_the_copy_is_refused);
    RUN(test_refusals_are_known_while_messages_are_open);
    return check_end(argc, argv);
}
