#include "libraries/cudss/direct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_runs.h"
#include "runtime/failure.h"

const atomr_field atomr_pattern_fields[] = {
    ATOMR_SOLVER_OF_PATTERN_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
const atomr_field atomr_phase_fields[] = {ATOMR_PHASE_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_direct_constants[] = {
    ATOMR_CUDSS_CONSTANTS(ATOMR_CONSTANT) ATOMR_DIRECT_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

/* Places of operands. */
enum { OFFSETS, INDICES, VALUES, MEMORY, MORE, B, X, SIZES = MORE };
enum { ESTIMATES = 16, PERMANENT = 0, PEAK = 1 };

struct atomr_direct {
    const atomr_cudss_table *t;
    atomr_cuda *cuda;
    atomr_pattern_spec spec;
    pthread_mutex_t lock;
    cudssHandle_t handle;
    cudssConfig_t config;
    cudssData_t data;
    int analysed, factored;
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
    if (s->refused || status == CUDSS_STATUS_ALLOC_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY,
                             "%s: cuDSS wants %llu bytes more, and the solver has %llu, of which %llu are taken", what,
                             (unsigned long long)s->refused, (unsigned long long)s->bytes,
                             (unsigned long long)s->region.used);
    if (status == CUDSS_STATUS_NOT_SUPPORTED)
        return atomr_unsupported(failure, "sparse", "cudss", "cuDSS does not compute this: %s", what);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cudss", status, name_of(status), "%s", what);
}

/* ---- The library's memory. */

static int take(void *context, void **at, size_t size, cudaStream_t stream) {
    (void)stream;
    atomr_direct *const s = context;
    *at = (void *)(uintptr_t)atomr_region_take(&s->region, size);
    if (!*at) s->refused = size;
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
    s->data = NULL;
    s->config = NULL;
    s->handle = NULL;
    s->analysed = s->factored = 0;
    s->memory = s->more = s->bytes = 0;
    atomr_region_clear(&s->region);
}

void atomr_direct_delete(atomr_direct *s) {
    if (!s) return;
    reset(s);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Have a handle that uses this stream and this memory. */
static int open(atomr_direct *s, const atomr_phase_spec *how, uint64_t memory, uint64_t more, CUstream stream,
                atomr_failure *failure) {
    const atomr_cudss_table *const t = s->t;
    if (s->handle && (s->memory != memory || (s->more && more && s->more != more))) reset(s);
    s->refused = 0;
    const char *what = "cudssCreate";
    cudssStatus_t status = 0;
    if (!s->handle) {
        status = t->cudssCreate(&s->handle);
        if (status) s->handle = NULL;
        const cudssDeviceMemHandler_t handler = {s, take, give, "atomr_native"};
        if (!status) what = "cudssSetDeviceMemHandler", status = t->cudssSetDeviceMemHandler(s->handle, &handler);
        if (!status) what = "cudssConfigCreate", status = t->cudssConfigCreate(&s->config);
        const int batch = (int)s->spec.batch, yes = 1;
        what = status ? what : "cudssConfigSet";
        if (!status && batch > 1)
            status = t->cudssConfigSet(s->config, CUDSS_CONFIG_UBATCH_SIZE, &batch, sizeof batch);
        if (!status && s->spec.deterministic)
            status = t->cudssConfigSet(s->config, CUDSS_CONFIG_DETERMINISTIC_MODE, &yes, sizeof yes);
        if (!status && atomr_region_add(&s->region, memory, (uint64_t)how->bytes) != 0) status = CUDSS_STATUS_ALLOC_FAILED;
        s->memory = memory;
        s->bytes = (uint64_t)how->bytes;
    }
    if (!status && more && !s->more) {
        if (atomr_region_add(&s->region, more, (uint64_t)how->more) != 0) status = CUDSS_STATUS_ALLOC_FAILED;
        s->more = more;
        s->bytes += (uint64_t)how->more;
    }
    if (!status) what = "cudssSetStream", status = t->cudssSetStream(s->handle, stream);
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

static cudssStatus_t describe(const atomr_direct *s, const atomr_call *call, const atomr_phase_spec *how, matrices *m) {
    const atomr_pattern_spec *const p = &s->spec;
    const int64_t columns = how->phase == ATOMR_DIRECT_SOLVE ? how->columns : p->columns;
    /* Phases before the solve look at the extents of B and X alone. */
    void *const b = call->pointers[how->phase == ATOMR_DIRECT_SOLVE ? B : MEMORY];
    void *const x = call->pointers[how->phase == ATOMR_DIRECT_SOLVE ? X : MEMORY];
    const cudaDataType_t type = (cudaDataType_t)p->value_type, index = (cudaDataType_t)p->index_type;
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

/* Write what the analysis found to three int64 on the device. */
static int tell(atomr_direct *s, CUdeviceptr to, CUstream stream, atomr_failure *failure) {
    int64_t found[ESTIMATES] = {0};
    size_t written = 0;
    const cudssStatus_t status =
        s->t->cudssDataGet(s->handle, s->data, CUDSS_DATA_MEMORY_ESTIMATES, found, sizeof found, &written);
    if (status) return fail(s, status, "cudssDataGet of the memory that it needs", failure);
    const int64_t words[3] = {(int64_t)s->region.used, found[PERMANENT], found[PEAK]};
    unsigned char bytes[sizeof words];
    memcpy(bytes, words, sizeof words);
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof bytes && !r; i++) /* no memory of the host that would have to stay */
        r = atomr_cuda_driver(s->cuda)->cuMemsetD8Async(to + i, bytes[i], 1, stream);
    return r ? atomr_cuda_fail(s->cuda, r, "writing the sizes of a direct solver", failure) : ATOMR_OK;
}

static int execute(atomr_direct *s, int phase, const matrices *m, const char *what, atomr_failure *failure) {
    const cudssStatus_t status = s->t->cudssExecute(s->handle, phase, s->config, s->data, m->a, m->x, m->b);
    return status ? fail(s, status, what, failure) : ATOMR_OK;
}

/* With the lock held. */
static int run(atomr_direct *s, const atomr_phase_spec *how, const atomr_call *call, CUstream stream,
               atomr_failure *failure) {
    const int64_t phase = how->phase;
    const int first = phase == ATOMR_DIRECT_ANALYSE;
    if (first) reset(s);
    int code = open(s, how, (uint64_t)(uintptr_t)call->pointers[MEMORY],
                    first ? 0 : (uint64_t)(uintptr_t)call->pointers[MORE], stream, failure);
    if (code != ATOMR_OK) return code;
    matrices m = {0};
    const cudssStatus_t status = describe(s, call, how, &m);
    if (status) code = fail(s, status, "describing the matrices of a direct solver", failure);
    if (code == ATOMR_OK && !s->analysed) {
        code = execute(s, CUDSS_PHASE_ANALYSIS, &m, "analysis", failure);
        s->analysed = code == ATOMR_OK;
    }
    if (code == ATOMR_OK && first) code = tell(s, (CUdeviceptr)(uintptr_t)call->pointers[SIZES], stream, failure);
    if (code == ATOMR_OK && !first && (phase != ATOMR_DIRECT_SOLVE || !s->factored)) {
        const int again = phase == ATOMR_DIRECT_REFACTOR && s->factored;
        s->factored = 0;
        code = again ? execute(s, CUDSS_PHASE_REFACTORIZATION, &m, "refactorization", failure)
                     : execute(s, CUDSS_PHASE_FACTORIZATION, &m, "factorization", failure);
        if (code == ATOMR_OK && how->check) code = judge(s, failure);
        s->factored = code == ATOMR_OK;
    }
    if (code == ATOMR_OK && phase == ATOMR_DIRECT_SOLVE) code = execute(s, CUDSS_PHASE_SOLVE, &m, "solve", failure);
    drop(s, &m);
    if (code != ATOMR_OK && !s->factored && (s->refused || !s->analysed)) reset(s); /* nothing of it is usable */
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
