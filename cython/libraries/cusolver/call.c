#include "libraries/cublas/private.h"
#include "libraries/cusolver/private.h"

const atomr_field atomr_solver_fields[] = {
    ATOMR_SOLVER_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_solver_constants[] = {
    ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUBLAS_CONSTANTS(ATOMR_CONSTANT)
    ATOMR_BLAS_CONSTANTS(ATOMR_CONSTANT) ATOMR_SOLVER_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

static cudaDataType type_of(const atomr_solver_spec *s) {
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
    return types[s->type];
}

static int check(const atomr_solver_spec *s, atomr_failure *failure) {
    const int64_t operands[] = {s->a, s->b, s->pivots, s->info, s->scratch, s->pointers};
    const int64_t extents[] = {s->m, s->n, s->k, s->step[0], s->step[1], s->jump[0], s->jump[1]};
    const int many = s->pointers >= 0, pivoted = s->routine >= ATOMR_SOLVER_GETRF;
    int good = s->routine >= 0 && s->routine <= ATOMR_SOLVER_GETRS && s->type >= 0 && s->type <= 3;
    for (unsigned i = 0; i < 6; i++) good = good && operands[i] >= -1 && operands[i] < s->n_operands;
    for (unsigned i = 0; i < 7; i++) good = good && extents[i] >= 0;
    good = good && s->batch >= 1 && s->info >= 0 && (many || s->a >= 0) && (!pivoted || s->pivots >= 0);
    if (many) /* these count in 32 bits; of positive definite systems cuBLAS's triangles solve a batch */
        good = good && s->routine != ATOMR_SOLVER_POTRS && s->batch <= INT32_MAX && s->m == s->n &&
               s->n <= INT32_MAX && s->k <= INT32_MAX && s->step[0] <= INT32_MAX && s->step[1] <= INT32_MAX;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a solver");
}

int atomr_solver_prepare(atomr_solver_call *c, atomr_failure *failure) {
    const atomr_solver_spec *s = &c->spec;
    int code = check(s, failure);
    if (code != ATOMR_OK) return code;
    if (s->pointers >= 0 || (s->routine != ATOMR_SOLVER_POTRF && s->routine != ATOMR_SOLVER_GETRF)) return ATOMR_OK;
    atomr_solver *o = NULL;
    code = atomr_solver_ask(c->cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    size_t device = 0, host = 0;
    const cudaDataType type = type_of(s);
    const cusolverStatus_t status =
        s->routine == ATOMR_SOLVER_POTRF
            ? o->t->cusolverDnXpotrf_bufferSize(o->handle, o->params, (int)s->uplo, s->n, type, NULL, s->step[0], type,
                                                &device, &host)
            : o->t->cusolverDnXgetrf_bufferSize(o->handle, o->params, s->m, s->n, type, NULL, s->step[0], type,
                                                &device, &host);
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
    int64_t *pivots = s->pivots >= 0 ? call->pointers[s->pivots] : NULL;
    int *info = call->pointers[s->info];
    void *const scratch = s->scratch >= 0 ? call->pointers[s->scratch] : NULL;
    char *host = atomr_host_memory_next(&c->memory);
    const int64_t least = s->m < s->n ? s->m : s->n;
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
            status = o->t->cusolverDnXgetrf(o->handle, o->params, s->m, s->n, type, a, s->step[0], pivots, type,
                                            scratch, c->scratch_bytes, host, c->memory.step, info);
            break;
        default:
            status = o->t->cusolverDnXgetrs(o->handle, o->params, (int)s->trans, s->n, s->k, type, a, s->step[0],
                                            pivots, type, b, s->step[1], info);
        }
        a += s->jump[0];
        if (b) b += s->jump[1];
        if (pivots) pivots += least;
        if (host) host += c->memory.step;
        info++;
    }
    return status == 0 ? ATOMR_OK : atomr_solver_fail(status, "a routine of cuSOLVER", failure);
}
