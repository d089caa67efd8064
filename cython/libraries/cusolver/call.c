#include "libraries/cublas/private.h"
#include "libraries/cusolver/private.h"

const atomr_field atomr_solver_fields[] = {
    ATOMR_SOLVER_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_solver_constants[] = {
    ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUBLAS_CONSTANTS(ATOMR_CONSTANT)
    ATOMR_BLAS_CONSTANTS(ATOMR_CONSTANT) ATOMR_SOLVER_CONSTANTS(ATOMR_CONSTANT)
    ATOMR_VERDICT_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUSOLVER_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

static cudaDataType type_of(const atomr_solver_spec *s) {
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
    return types[s->type];
}

static size_t element(const atomr_solver_spec *s) {
    return s->type == ATOMR_SOLVER_FLOAT ? 4 : s->type == ATOMR_SOLVER_DOUBLE_COMPLEX ? 16 : 8;
}

static int check(const atomr_solver_spec *s, atomr_failure *failure) {
    const int64_t operands[] = {s->a, s->b, s->pivots, s->info, s->scratch, s->pointers};
    const int64_t extents[] = {s->m, s->n, s->k, s->step[0], s->step[1], s->jump[0], s->jump[1]};
    const int many = s->pointers >= 0, pivoted = s->routine >= ATOMR_SOLVER_GETRF;
    int good = s->routine >= 0 && s->routine <= ATOMR_SOLVER_SYTRF && s->type >= 0 && s->type <= 3;
    for (unsigned i = 0; i < 6; i++) good = good && operands[i] >= -1 && operands[i] < s->n_operands;
    for (unsigned i = 0; i < 7; i++) good = good && extents[i] >= 0;
    good = good && s->batch >= 1 && s->info >= 0 && (many || s->a >= 0) && (!pivoted || s->pivots >= 0);
    if (many) /* these count in 32 bits; of positive definite systems cuBLAS's triangles solve a batch */
        good = good && s->routine != ATOMR_SOLVER_POTRS && s->routine != ATOMR_SOLVER_SYTRF &&
               s->batch <= INT32_MAX && s->m == s->n && s->n <= INT32_MAX && s->k <= INT32_MAX &&
               s->step[0] <= INT32_MAX && s->step[1] <= INT32_MAX;
    if (s->routine == ATOMR_SOLVER_SYTRF)
        good = good && s->n <= INT32_MAX && s->step[0] <= INT32_MAX && s->scratch >= 0 && s->m == s->n;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a solver");
}

/* Symmetric matrices; `work` is NULL to ask for its size, in elements. */
#define SYMMETRIC(p, T)                                                                                               \
    static cusolverStatus_t symmetric_##p(const atomr_solver *o, const atomr_solver_spec *s, void *a, int *pivots,     \
                                          void *work, int *size, int *info) {                                         \
        const int n = (int)s->n, lda = (int)s->step[0];                                                               \
        return work ? o->t->cusolverDn##p##sytrf(o->handle, (int)s->uplo, n, a, lda, pivots, work, *size, info)        \
                    : o->t->cusolverDn##p##sytrf_bufferSize(o->handle, n, a, lda, size);                              \
    }

SYMMETRIC(S, float)
SYMMETRIC(D, double)
SYMMETRIC(C, cuComplex)
SYMMETRIC(Z, cuDoubleComplex)

static cusolverStatus_t symmetric(const atomr_solver *o, const atomr_solver_spec *s, void *a, void *pivots, void *work,
                                  int *size, int *info) {
    typedef cusolverStatus_t (*function)(const atomr_solver *, const atomr_solver_spec *, void *, int *, void *, int *,
                                         int *);
    static const function functions[] = {symmetric_S, symmetric_D, symmetric_C, symmetric_Z};
    return functions[s->type](o, s, a, pivots, work, size, info);
}

static cusolverStatus_t ask(const atomr_solver *o, const atomr_solver_spec *s, size_t *device, size_t *host) {
    const cudaDataType type = type_of(s);
    int size = 0;
    cusolverStatus_t status;
    switch (s->routine) {
    case ATOMR_SOLVER_POTRF:
        return o->t->cusolverDnXpotrf_bufferSize(o->handle, o->params, (int)s->uplo, s->n, type, NULL, s->step[0], type,
                                                 device, host);
    case ATOMR_SOLVER_GETRF:
        return o->t->cusolverDnXgetrf_bufferSize(o->handle, o->params, s->m, s->n, type, NULL, s->step[0], type, device,
                                                 host);
    default:
        status = symmetric(o, s, NULL, NULL, NULL, &size, NULL);
        *device = (size_t)(size < 1 ? 1 : size) * element(s);
        return status;
    }
}

int atomr_solver_prepare(atomr_solver_call *c, atomr_failure *failure) {
    const atomr_solver_spec *s = &c->spec;
    int code = check(s, failure);
    if (code != ATOMR_OK) return code;
    if (s->pointers >= 0 || s->routine == ATOMR_SOLVER_POTRS || s->routine == ATOMR_SOLVER_GETRS) return ATOMR_OK;
    atomr_solver *o = NULL;
    code = atomr_solver_ask(c->cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    size_t device = 0, host = 0;
    const cusolverStatus_t status = ask(o, s, &device, &host);
    if (status != 0) return atomr_solver_fail(status, "asking for the size of a workspace", failure);
    c->scratch_bytes = device;
    return atomr_host_memory_make(&c->memory, c->cuda, host, s->batch, failure);
}

void atomr_solver_release(atomr_solver_call *c) { atomr_host_memory_release(&c->memory, c->cuda); }

/* The calls that are typed by their names. */
#define TYPED(p, T)                                                                                                   \
    static cusolverStatus_t factor_##p(const atomr_solver *o, const atomr_solver_spec *s, void *at, int *info) {       \
        return o->t->cusolverDn##p##potrfBatched(o->handle, (int)s->uplo, (int)s->n, at, (int)s->step[0], info,        \
                                                 (int)s->batch);                                                      \
    }                                                                                                                 \
    static cublasStatus_t lu_##p(const atomr_blas *o, const atomr_solver_spec *s, void *at, void *b, int *pivots,      \
                                 int *info) {                                                                         \
        const int n = (int)s->n, a = (int)s->step[0], batch = (int)s->batch;                                          \
        int wrong = 0; /* in host memory: the number of a bad argument */                                             \
        if (s->routine == ATOMR_SOLVER_GETRF)                                                                         \
            return o->t->cublas##p##getrfBatched(o->handle, n, at, a, pivots, info, batch);                           \
        const cublasStatus_t status = o->t->cublas##p##getrsBatched(                                                  \
            o->handle, (int)s->trans, n, (int)s->k, at, a, pivots, b, (int)s->step[1], &wrong, batch);                \
        return status == 0 && wrong ? CUBLAS_STATUS_INVALID_VALUE : status;                                           \
    }

TYPED(S, float)
TYPED(D, double)
TYPED(C, cuComplex)
TYPED(Z, cuDoubleComplex)

static int run_lu(atomr_solver_call *c, const atomr_call *call, char *at, atomr_failure *failure) {
    typedef cublasStatus_t (*function)(const atomr_blas *, const atomr_solver_spec *, void *, void *, int *, int *);
    static const function functions[] = {lu_S, lu_D, lu_C, lu_Z};
    const atomr_solver_spec *s = &c->spec;
    atomr_blas *o = NULL;
    const int code = atomr_blas_take(c->cuda, call->lane, NULL, 0, CUBLAS_POINTER_MODE_HOST, &o, failure);
    if (code != ATOMR_OK) return code;
    const cublasStatus_t status = functions[s->type](o, s, at, at + ATOMR_POINTER_RUN(s->batch),
                                                     call->pointers[s->pivots], call->pointers[s->info]);
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "a batched LU routine of cuBLAS", failure);
}

static int run_many(atomr_solver_call *c, const atomr_call *call, atomr_failure *failure) {
    typedef cusolverStatus_t (*function)(const atomr_solver *, const atomr_solver_spec *, void *, int *);
    static const function functions[] = {factor_S, factor_D, factor_C, factor_Z};
    const atomr_solver_spec *s = &c->spec;
    char *const at = call->pointers[s->pointers];
    if (s->routine != ATOMR_SOLVER_POTRF) return run_lu(c, call, at, failure);
    atomr_solver *o = NULL;
    const int code = atomr_solver_take(c->cuda, call->lane, &o, failure);
    if (code != ATOMR_OK) return code;
    const cusolverStatus_t status = functions[s->type](o, s, at, call->pointers[s->info]);
    return status == 0 ? ATOMR_OK : atomr_solver_fail(status, "a batched Cholesky factorization", failure);
}

int atomr_solver_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_solver_call *c = context;
    const atomr_solver_spec *s = &c->spec;
    if (s->pointers >= 0) return run_many(c, call, failure);
    atomr_solver *o = NULL;
    const int code = atomr_solver_take(c->cuda, call->lane, &o, failure);
    if (code != ATOMR_OK) return code;
    const cudaDataType type = type_of(s);
    char *a = call->pointers[s->a], *b = s->b >= 0 ? call->pointers[s->b] : NULL;
    char *pivots = s->pivots >= 0 ? call->pointers[s->pivots] : NULL;
    int *info = call->pointers[s->info];
    void *const scratch = s->scratch >= 0 ? call->pointers[s->scratch] : NULL;
    char *host = atomr_host_memory_next(&c->memory);
    const int64_t least = s->m < s->n ? s->m : s->n;
    const int64_t to_pivots = least * (int64_t)(s->routine == ATOMR_SOLVER_SYTRF ? sizeof(int32_t) : sizeof(int64_t));
    int size = (int)(c->scratch_bytes / element(s));
    cusolverStatus_t status = 0;
    for (int64_t i = 0; i < s->batch && status == 0; i++) {
        switch (s->routine) {
        case ATOMR_SOLVER_POTRF:
            status = o->t->cusolverDnXpotrf(o->handle, o->params, (int)s->uplo, s->n, type, a, s->step[0], type,
                                            scratch, c->scratch_bytes, host, c->memory.step, info);
            break;
        case ATOMR_SOLVER_POTRS:
            status = o->t->cusolverDnXpotrs(o->handle, o->params, (int)s->uplo, s->n, s->k, type, a, s->step[0], type,
                                            b, s->step[1], info);
            break;
        case ATOMR_SOLVER_GETRF:
            status = o->t->cusolverDnXgetrf(o->handle, o->params, s->m, s->n, type, a, s->step[0],
                                            (int64_t *)(void *)pivots, type, scratch, c->scratch_bytes, host,
                                            c->memory.step, info);
            break;
        case ATOMR_SOLVER_SYTRF:
            status = symmetric(o, s, a, pivots, scratch, &size, info);
            break;
        default:
            status = o->t->cusolverDnXgetrs(o->handle, o->params, (int)s->trans, s->n, s->k, type, a, s->step[0],
                                            (int64_t *)(void *)pivots, type, b, s->step[1], info);
        }
        a += s->jump[0];
        if (b) b += s->jump[1];
        if (pivots) pivots += to_pivots;
        if (host) host += c->memory.step;
        info++;
    }
    return status == 0 ? ATOMR_OK : atomr_solver_fail(status, "a routine of cuSOLVER", failure);
}
