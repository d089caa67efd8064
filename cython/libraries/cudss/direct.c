#include "libraries/cudss/direct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_runs.h"
#include "libraries/cudss/messages.h"
#include "runtime/failure.h"

const atomr_field atomr_pattern_fields[] = {
    ATOMR_SOLVER_OF_PATTERN_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
const atomr_field atomr_phase_fields[] = {ATOMR_PHASE_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_direct_constants[] = {
    ATOMR_CUDSS_CONSTANTS(ATOMR_CONSTANT) ATOMR_DIRECT_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

/* Places of operands. */
enum { OFFSETS, INDICES, VALUES, MEMORY, MORE, B, X, SIZES = MORE };
enum { ESTIMATES = 16, PERMANENT = 0, PEAK = 1 };
/* What an analysis writes: bytes that it takes at most, that the solver takes in the end and at most, and the size of the
 * part for which there was no room, or 0. */
enum { FOUND = 4 };

struct atomr_direct {
    const atomr_cudss_table *t;
    atomr_cuda *cuda;
    atomr_pattern_spec spec;
    pthread_mutex_t lock;
    CUstream home; /* where the library works, whichever lane asks it to */
    cudssHandle_t handle;
    cudssConfig_t config;
    cudssData_t data;
    int analysed, factored;
    int doubtful; /* whether the library may know of a bad factorization */
    uint64_t memory, more; /* addresses of the arrays; 0: not known yet */
    uint64_t bytes;        /* of both */
    uint64_t refused;      /* bytes of the allocation that found no room */
    atomr_region region;
};

static const char *name_of(cudssStatus_t status) {
    static const char prefix[] = "CUDSS_STATUS_";
    for (const atomr_constant *c = atomr_direct_constants; c->name; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

static int fail(atomr_direct *s, cudssStatus_t status, const char *what, atomr_failure *failure) {
    if (status == CUDSS_STATUS_ALLOC_FAILED && s->refused)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY,
                             "%s: cuDSS wants %llu bytes more, and the solver has %llu, of which %llu are taken", what,
                             (unsigned long long)s->refused, (unsigned long long)s->bytes,
                             (unsigned long long)s->region.used);
    const char *const why = atomr_cudss_heard(), *const colon = *why ? ": " : "";
    if (status == CUDSS_STATUS_NOT_SUPPORTED)
        return atomr_unsupported(failure, "sparse", "cudss", "cuDSS does not compute this: %s%s%s", what, colon, why);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cudss", status, name_of(status), "%s%s%s", what, colon, why);
}

/* ---- The library's memory. */

static int take(void *context, void **at, size_t size, cudaStream_t stream) {
    (void)stream;
    atomr_direct *const s = context;
    *at = NULL;
    if (!size) return 0; /* as cudaMallocAsync: the library fails to give back an address without bytes */
    *at = (void *)(uintptr_t)atomr_region_take(&s->region, size);
    s->refused = *at ? 0 : size; /* the library may go on with a smaller part, and fail for another reason */
    return *at ? 0 : 1;
}

static int give(void *context, void *at, size_t size, cudaStream_t stream) {
    (void)size, (void)stream;
    return at ? atomr_region_give(&((atomr_direct *)context)->region, (uint64_t)(uintptr_t)at) : 0;
}

/* ---- Solvers. */

int atomr_direct_new(atomr_cuda *cuda, const atomr_pattern_spec *spec, atomr_direct **made, atomr_failure *failure) {
    if (spec->n < 1 || spec->nnz < 1 || spec->batch < 1 || spec->columns < 1 ||
        spec->kind < CUDSS_MTYPE_GENERAL || spec->kind > CUDSS_MTYPE_HPD || spec->view < CUDSS_MVIEW_FULL ||
        spec->view > CUDSS_MVIEW_UPPER)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a direct solver");
    char why[sizeof failure->text];
    const atomr_cudss_table *const t = atomr_cudss_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_cudss_listen(t);
    atomr_direct *const s = calloc(1, sizeof *s);
    if (!s) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a direct solver");
    s->t = t;
    s->cuda = cuda;
    s->spec = *spec;
    pthread_mutex_init(&s->lock, NULL);
    *made = s;
    return ATOMR_OK;
}

/* Forget everything but the specification. */
static void reset(atomr_direct *s) {
    if (s->data) s->t->cudssDataDestroy(s->handle, s->data);
    if (s->config) s->t->cudssConfigDestroy(s->config);
    if (s->handle) s->t->cudssDestroy(s->handle);
    if (s->home) atomr_cuda_driver(s->cuda)->cuStreamDestroy_v2(s->home);
    s->home = NULL;
    s->data = NULL;
    s->config = NULL;
    s->handle = NULL;
    s->analysed = s->factored = s->doubtful = 0;
    s->memory = s->more = s->bytes = 0;
    atomr_region_clear(&s->region);
}

void atomr_direct_delete(atomr_direct *s) {
    if (!s) return;
    if (atomr_cuda_enter(s->cuda) == CUDA_SUCCESS) /* else the library is not called any more */
        reset(s);
    atomr_region_clear(&s->region);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Have a handle that uses this stream and this memory, of which calls may take parts at once. */
static int open(atomr_direct *s, const atomr_phase_spec *how, uint64_t memory, uint64_t more, atomr_failure *failure) {
    const atomr_cudss_table *const t = s->t;
    if (s->handle && (s->memory != memory || (s->more && more && s->more != more))) reset(s);
    s->refused = 0;
    atomr_cudss_forget();
    int room = 0;
    if (!s->memory) {
        room = atomr_region_add(&s->region, memory, (uint64_t)how->bytes);
        s->memory = memory;
        s->bytes = (uint64_t)how->bytes;
    }
    if (!room && more && !s->more) {
        room = atomr_region_add(&s->region, more, (uint64_t)how->more);
        s->more = more;
        s->bytes += (uint64_t)how->more;
    }
    if (room) {
        reset(s);
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for the parts of a direct solver");
    }
    const int fresh = !s->handle, batch = (int)s->spec.batch, yes = 1;
    const CUresult r = s->home ? CUDA_SUCCESS : atomr_cuda_driver(s->cuda)->cuStreamCreate(&s->home, CU_STREAM_NON_BLOCKING);
    if (r) {
        reset(s);
        return atomr_cuda_fail(s->cuda, r, "making the stream of a direct solver", failure);
    }
    const cudssDeviceMemHandler_t handler = {s, take, give, "atomr_native"};
    const char *what = "cudssCreate";
    cudssStatus_t status = fresh ? t->cudssCreate(&s->handle) : CUDSS_STATUS_SUCCESS; /* a handle may come with an error */
    if (!status && fresh) what = "cudssSetStream", status = t->cudssSetStream(s->handle, s->home);
    if (!status && fresh) what = "cudssSetDeviceMemHandler", status = t->cudssSetDeviceMemHandler(s->handle, &handler);
    if (!status && fresh) what = "cudssConfigCreate", status = t->cudssConfigCreate(&s->config);
    if (!status && fresh && batch > 1)
        what = "cudssConfigSet of the batch", status = t->cudssConfigSet(s->config, CUDSS_CONFIG_UBATCH_SIZE, &batch, sizeof batch);
    if (!status && fresh && s->spec.deterministic)
        what = "cudssConfigSet of determinism",
        status = t->cudssConfigSet(s->config, CUDSS_CONFIG_DETERMINISTIC_MODE, &yes, sizeof yes);
    if (!status && !s->data) what = "cudssDataCreate", status = t->cudssDataCreate(s->handle, &s->data);
    if (!status) return ATOMR_OK;
    const int code = fail(s, status, what, failure);
    reset(s);
    return code;
}

typedef struct {
    cudssMatrix_t a, b, x;
} matrices;

static void drop(const atomr_direct *s, matrices *m) {
    if (m->a) s->t->cudssMatrixDestroy(m->a);
    if (m->b) s->t->cudssMatrixDestroy(m->b);
    if (m->x) s->t->cudssMatrixDestroy(m->x);
}

/* Describe A, and the `columns` right sides from the one at `first` on.  Phases before the solve look at the extents of B
 * and X alone. */
static cudssStatus_t describe(const atomr_direct *s, const atomr_call *call, int solving, int64_t first, int64_t columns,
                              matrices *m) {
    const atomr_pattern_spec *const p = &s->spec;
    const cudaDataType_t type = (cudaDataType_t)p->value_type, index = (cudaDataType_t)p->index_type;
    const int64_t size = type == CUDA_R_32F ? 4 : type == CUDA_C_64F ? 16 : 8;
    char *const b = (char *)call->pointers[solving ? B : MEMORY] + (solving ? first * p->n * size : 0);
    char *const x = (char *)call->pointers[solving ? X : MEMORY] + (solving ? first * p->n * size : 0);
    cudssStatus_t status = s->t->cudssMatrixCreateCsr(
        &m->a, p->n, p->n, p->nnz, call->pointers[OFFSETS], NULL, call->pointers[INDICES], call->pointers[VALUES], index,
        index, type, (cudssMatrixType_t)p->kind, (cudssMatrixViewType_t)p->view, CUDSS_BASE_ZERO);
    if (!status) status = s->t->cudssMatrixCreateDn(&m->b, p->n, columns, p->n, b, type, CUDSS_LAYOUT_COL_MAJOR);
    if (!status) status = s->t->cudssMatrixCreateDn(&m->x, p->n, columns, p->n, x, type, CUDSS_LAYOUT_COL_MAJOR);
    return status;
}

static int judge(atomr_direct *s, atomr_failure *failure) {
    int info = 0;
    size_t written = 0;
    const cudssStatus_t status = s->t->cudssDataGet(s->handle, s->data, CUDSS_DATA_INFO, &info, sizeof info, &written);
    if (status) return fail(s, status, "cudssDataGet of the outcome", failure);
    if (!info) return ATOMR_OK;
    const int positive = s->spec.kind == CUDSS_MTYPE_SPD || s->spec.kind == CUDSS_MTYPE_HPD;
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "solver", info, positive ? "NotPositiveDefinite" : "SingularMatrix",
                        "%s\n%s\n%d", "sparse.direct", "", 1);
}

/* Write what the analysis found to the device. */
static int tell(atomr_direct *s, CUdeviceptr to, CUstream stream, atomr_failure *failure) {
    int64_t found[ESTIMATES] = {0};
    size_t written = 0;
    const cudssStatus_t status =
        s->refused ? CUDSS_STATUS_SUCCESS
                   : s->t->cudssDataGet(s->handle, s->data, CUDSS_DATA_MEMORY_ESTIMATES, found, sizeof found, &written);
    if (status) return fail(s, status, "cudssDataGet of the memory that it needs", failure);
    const int64_t words[FOUND] = {(int64_t)s->region.most, found[PERMANENT], found[PEAK], (int64_t)s->refused};
    unsigned char bytes[sizeof words];
    memcpy(bytes, words, sizeof words);
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof bytes && !r; i++) /* no memory of the host that would have to stay */
        r = atomr_cuda_driver(s->cuda)->cuMemsetD8Async(to + i, bytes[i], 1, stream);
    return r ? atomr_cuda_fail(s->cuda, r, "writing the sizes of a direct solver", failure) : ATOMR_OK;
}

static int execute(atomr_direct *s, int phase, const matrices *m, const char *what, atomr_failure *failure) {
    const cudssStatus_t status = s->t->cudssExecute(s->handle, phase, s->config, s->data, m->a, m->x, m->b);
    if (status) return fail(s, status, what, failure);
    s->refused = 0; /* it went on with less */
    return ATOMR_OK;
}

/* Forget the outcome of earlier factorizations: the library keeps the first one that was bad. */
static int forgive(atomr_direct *s, atomr_failure *failure) {
    const int none = 0;
    const cudssStatus_t status = s->t->cudssDataSet(s->handle, s->data, CUDSS_DATA_INFO, &none, sizeof none);
    return status ? fail(s, status, "cudssDataSet of the outcome", failure) : ATOMR_OK;
}

/* What the phase needs but solves: an analysis, and a factorization. */
static int prepare(atomr_direct *s, const atomr_phase_spec *how, const matrices *m, atomr_failure *failure) {
    int code = ATOMR_OK;
    if (!s->analysed) {
        code = execute(s, CUDSS_PHASE_ANALYSIS, m, "analysis", failure);
        s->analysed = code == ATOMR_OK;
    }
    if (code != ATOMR_OK || how->phase == ATOMR_DIRECT_ANALYSE || (how->phase == ATOMR_DIRECT_SOLVE && s->factored))
        return code;
    const int again = how->phase == ATOMR_DIRECT_REFACTOR && s->factored;
    s->factored = 0;
    if (how->check && s->doubtful && (code = forgive(s, failure)) != ATOMR_OK) return code;
    s->doubtful = 1;
    code = again ? execute(s, CUDSS_PHASE_REFACTORIZATION, m, "refactorization", failure)
                 : execute(s, CUDSS_PHASE_FACTORIZATION, m, "factorization", failure);
    if (code == ATOMR_OK && how->check) {
        code = judge(s, failure);
        s->doubtful = code != ATOMR_OK;
    } else if (code == ATOMR_OK) { /* the library may use its host memory again with the next phase */
        const CUresult r = atomr_cuda_driver(s->cuda)->cuStreamSynchronize(s->home);
        if (r) code = atomr_cuda_fail(s->cuda, r, "waiting for a factorization", failure);
    }
    s->factored = code == ATOMR_OK;
    return code;
}

/* Have `later` wait for what `earlier` has been given. */
static int follow(const atomr_direct *s, CUstream later, CUstream earlier, atomr_failure *failure) {
    const atomr_driver *const d = atomr_cuda_driver(s->cuda);
    CUevent event = NULL;
    CUresult r = d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (!r) r = d->cuEventRecord(event, earlier);
    if (!r) r = d->cuStreamWaitEvent(later, event, 0);
    if (event) d->cuEventDestroy_v2(event); /* when it has happened */
    return r ? atomr_cuda_fail(s->cuda, r, "ordering a direct solver's stream", failure) : ATOMR_OK;
}

/* With the lock held.  A solver that was analysed by way of one lane may be used by way of another, as those of recorded
 * programs: cuDSS 1.0 has a stream of its own for all, since it was wrong where its stream was set anew. */
static int run(atomr_direct *s, const atomr_phase_spec *how, const atomr_call *call, CUstream stream,
               atomr_failure *failure) {
    const int first = how->phase == ATOMR_DIRECT_ANALYSE, solving = how->phase == ATOMR_DIRECT_SOLVE;
    /* The deterministic mode solves for one column at a time. */
    const int64_t columns = solving ? how->columns : s->spec.columns, each = s->spec.deterministic ? 1 : columns;
    if (first) reset(s);
    int code = open(s, how, (uint64_t)(uintptr_t)call->pointers[MEMORY],
                    first ? 0 : (uint64_t)(uintptr_t)call->pointers[MORE], failure);
    if (code == ATOMR_OK) code = follow(s, s->home, stream, failure);
    for (int64_t at = 0; code == ATOMR_OK && at < (solving ? columns : each); at += each) {
        matrices m = {0};
        const cudssStatus_t status = describe(s, call, solving, at, each, &m);
        code = status ? fail(s, status, "describing the matrices of a direct solver", failure)
                      : prepare(s, how, &m, failure);
        if (code == ATOMR_OK && solving) code = execute(s, CUDSS_PHASE_SOLVE, &m, "solve", failure);
        drop(s, &m);
    }
    const int small = first && code == ATOMR_OUT_OF_MEMORY && s->refused;
    if (s->home) { /* also after a failure: what follows may give the memory away */
        const int ordered = follow(s, stream, s->home, failure);
        if (code == ATOMR_OK) code = ordered;
    }
    if (first && (code == ATOMR_OK || small)) code = tell(s, (CUdeviceptr)(uintptr_t)call->pointers[SIZES], stream, failure);
    if (small || (code != ATOMR_OK && !s->factored && (s->refused || !s->analysed))) reset(s); /* nothing is usable */
    return code;
}

int atomr_direct_check(const atomr_direct_call *c, atomr_failure *failure) {
    const int good = c->spec.phase >= ATOMR_DIRECT_ANALYSE && c->spec.phase <= ATOMR_DIRECT_SOLVE && c->spec.columns >= 1 &&
                     c->spec.columns <= c->solver->spec.columns && c->spec.bytes >= 1 && c->spec.more >= 0;
    return good ? ATOMR_OK
                : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a phase of a direct solver");
}

int atomr_direct_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_direct_call *const c = context;
    const CUstream stream = atomr_cuda_stream(c->solver->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(c->solver->cuda), "",
                            "the lane has no stream");
    pthread_mutex_lock(&c->solver->lock);
    const int code = run(c->solver, &c->spec, call, stream, failure);
    pthread_mutex_unlock(&c->solver->lock);
    return code;
}
