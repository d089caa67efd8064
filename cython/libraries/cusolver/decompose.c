#include <string.h>

#include "libraries/cusolver/decompose.h"
#include "libraries/cusolver/private.h"

const atomr_field atomr_decomposition_fields[] = {
    ATOMR_DECOMPOSITION_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_decomposition_constants[] = {
    ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUBLAS_CONSTANTS(ATOMR_CONSTANT)
    ATOMR_SOLVER_CONSTANTS(ATOMR_CONSTANT) ATOMR_DECOMPOSITION_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

static cudaDataType type_of(const atomr_decomposition_spec *s) {
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
    return types[s->type];
}

static cudaDataType complex_of(const atomr_decomposition_spec *s) { return s->type % 2 ? CUDA_C_64F : CUDA_C_32F; }

static cudaDataType real_of(const atomr_decomposition_spec *s) { return s->type % 2 ? CUDA_R_64F : CUDA_R_32F; }

static int check(const atomr_decomposition_spec *s, atomr_failure *failure) {
    const int64_t operands[] = {s->a, s->values, s->b, s->c, s->info, s->scratch, s->found};
    const int64_t extents[] = {s->m,       s->n,       s->k,       s->step[0], s->step[1],
                               s->step[2], s->jump[0], s->jump[1], s->jump[2], s->jump[3]};
    const int together = s->routine == ATOMR_DECOMPOSE_SYEV_BATCHED || s->routine == ATOMR_DECOMPOSE_GESVDA;
    const int tall = s->routine == ATOMR_DECOMPOSE_GESVDJ || s->routine == ATOMR_DECOMPOSE_GESVDP ||
                     s->routine == ATOMR_DECOMPOSE_GESVDA;
    int good = s->routine >= 0 && s->routine <= ATOMR_DECOMPOSE_SYEVDX && s->type >= 0 && s->type <= 3;
    for (unsigned i = 0; i < 7; i++) good = good && operands[i] >= -1 && operands[i] < s->n_operands;
    for (unsigned i = 0; i < 10; i++) good = good && extents[i] >= 0;
    good = good && s->group >= 1 && (s->group == 1 || together);
    good = good && s->batch >= 1 && s->a >= 0 && s->values >= 0 && s->info >= 0 && s->scratch >= 0;
    if (s->routine == ATOMR_DECOMPOSE_ORGQR || s->routine == ATOMR_DECOMPOSE_ORMQR) /* these count in 32 bits */
        good = good && s->m <= INT32_MAX && s->n <= INT32_MAX && s->k <= INT32_MAX && s->step[0] <= INT32_MAX &&
               s->step[1] <= INT32_MAX && (s->routine == ATOMR_DECOMPOSE_ORGQR || s->b >= 0);
    if (s->routine == ATOMR_DECOMPOSE_GESVDJ || s->routine == ATOMR_DECOMPOSE_GESVDA ||
        s->routine == ATOMR_DECOMPOSE_SYEVJ) /* and these */
        good = good && s->m <= INT32_MAX && s->n <= INT32_MAX && s->step[0] <= INT32_MAX && s->step[1] <= INT32_MAX &&
               s->step[2] <= INT32_MAX && s->group <= INT32_MAX;
    if (tall) good = good && s->m >= s->n && (!s->job || (s->b >= 0 && s->c >= 0));
    if (s->routine == ATOMR_DECOMPOSE_GESVDA) good = good && s->job && s->group == s->batch;
    if (s->routine == ATOMR_DECOMPOSE_SYEVDX)
        good = good && s->m == s->n && s->found >= 0 &&
               (s->range == CUSOLVER_EIG_RANGE_V ||
                (s->range == CUSOLVER_EIG_RANGE_I && s->first >= 1 && s->first <= s->last && s->last <= s->n));
    if (s->routine == ATOMR_DECOMPOSE_GEEV) good = good && s->m == s->n && (!s->job || s->b >= 0);
    if (s->routine == ATOMR_DECOMPOSE_GESVD)
        good = good && s->m >= s->n && (s->job == ATOMR_DECOMPOSE_NOTHING || (s->b >= 0 && s->c >= 0));
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a decomposition");
}

/* The calls that are typed by their names; `work` is NULL to ask for its size, in elements.  `b` and `c`: the vectors. */
#define TYPED(p, form, multiply, eigen, T, R)                                                                                   \
    static cusolverStatus_t q_##p(const atomr_solver *o, const atomr_decomposition_spec *s, void *a, void *tau,        \
                                  void *b, void *c, void *work, int *size, int *info) {                               \
        const int m = (int)s->m, n = (int)s->n, k = (int)s->k, lda = (int)s->step[0], ldb = (int)s->step[1];           \
        const int side = (int)s->side, trans = (int)s->trans, job = (int)s->job, ldc = (int)s->step[2];                \
        const int uplo = (int)s->uplo, batch = (int)s->batch;                                                         \
        const long long to_a = s->jump[0] / (int64_t)sizeof(T), to_values = s->jump[1] / (int64_t)sizeof(R);           \
        const long long to_b = s->jump[2] / (int64_t)sizeof(T), to_c = s->jump[3] / (int64_t)sizeof(T);                \
        if (s->routine == ATOMR_DECOMPOSE_GESVDJ)                                                                     \
            return work ? o->t->cusolverDn##p##gesvdj(o->handle, job, 1, m, n, a, lda, tau, b, ldb, c, ldc, work,      \
                                                      *size, info, o->jacobi)                                         \
                        : o->t->cusolverDn##p##gesvdj_bufferSize(o->handle, job, 1, m, n, a, lda, tau, b, ldb, c, ldc, \
                                                                 size, o->jacobi);                                    \
        if (s->routine == ATOMR_DECOMPOSE_GESVDA) /* no norms of residuals, which the host would wait for */           \
            return work ? o->t->cusolverDn##p##gesvdaStridedBatched(o->handle, job, n, m, n, a, lda, to_a, tau,        \
                                                                    to_values, b, ldb, to_b, c, ldc, to_c, work,       \
                                                                    *size, info, NULL, batch)                         \
                        : o->t->cusolverDn##p##gesvdaStridedBatched_bufferSize(o->handle, job, n, m, n, a, lda, to_a,  \
                                                                               tau, to_values, b, ldb, to_b, c, ldc,   \
                                                                               to_c, size, batch);                    \
        if (s->routine == ATOMR_DECOMPOSE_SYEVJ)                                                                      \
            return work ? o->t->cusolverDn##p##eigen(o->handle, job, uplo, n, a, lda, tau, work, *size, info,          \
                                                     o->jacobi_eigen)                                                 \
                        : o->t->cusolverDn##p##eigen##_bufferSize(o->handle, job, uplo, n, a, lda, tau, size,          \
                                                                  o->jacobi_eigen);                                   \
        if (s->routine == ATOMR_DECOMPOSE_ORGQR)                                                                      \
            return work ? o->t->cusolverDn##p##form(o->handle, m, n, k, a, lda, tau, work, *size, info)               \
                        : o->t->cusolverDn##p##form##_bufferSize(o->handle, m, n, k, a, lda, tau, size);              \
        return work ? o->t->cusolverDn##p##multiply(o->handle, side, trans, m, n, k, a, lda, tau, b, ldb, work, *size, \
                                                    info)                                                             \
                    : o->t->cusolverDn##p##multiply##_bufferSize(o->handle, side, trans, m, n, k, a, lda, tau, b, ldb, \
                                                                 size);                                               \
    }

TYPED(S, orgqr, ormqr, syevj, float, float)
TYPED(D, orgqr, ormqr, syevj, double, double)
TYPED(C, ungqr, unmqr, heevj, cuComplex, float)
TYPED(Z, ungqr, unmqr, heevj, cuDoubleComplex, double)

static cusolverStatus_t typed(const atomr_solver *o, const atomr_decomposition_spec *s, void *a, void *values, void *b,
                              void *c, void *work, int *size, int *info) {
    typedef cusolverStatus_t (*function)(const atomr_solver *, const atomr_decomposition_spec *, void *, void *, void *,
                                         void *, void *, int *, int *);
    static const function functions[] = {q_S, q_D, q_C, q_Z};
    return functions[s->type](o, s, a, values, b, c, work, size, info);
}

/* The bounds of a range of values, as the library takes them: numbers of the eigenvalues' type. */
typedef union {
    float narrow;
    double wide;
} bound;

static bound bound_of(const atomr_decomposition_spec *s, int64_t bits) {
    bound found;
    double value;
    memcpy(&value, &bits, sizeof value);
    if (real_of(s) == CUDA_R_32F) found.narrow = (float)value;
    else found.wide = value;
    return found;
}

/* Bytes of host memory before the library's: for how many eigenvalues it found. */
static size_t before_host(const atomr_decomposition_spec *s) { return s->routine == ATOMR_DECOMPOSE_SYEVDX ? 256 : 0; }

static size_t element(const atomr_decomposition_spec *s) { return s->type == 0 ? 4 : s->type == 3 ? 16 : 8; }

static cusolverStatus_t ask(const atomr_solver *o, const atomr_decomposition_spec *s, size_t *device, size_t *host) {
    const cudaDataType type = type_of(s), real = real_of(s);
    const signed char job = (signed char)s->job;
    const int mode = (int)s->job, uplo = (int)s->uplo;
    int size = 0;
    int64_t found = 0;
    bound above = bound_of(s, s->above), up_to = bound_of(s, s->up_to);
    cusolverStatus_t status;
    switch (s->routine) {
    case ATOMR_DECOMPOSE_SYEVDX:
        return o->t->cusolverDnXsyevdx_bufferSize(o->handle, o->params, mode, (int)s->range, uplo, s->n, type, NULL,
                                                  s->step[0], &above, &up_to, s->first, s->last, &found, real, NULL,
                                                  type, device, host);
    case ATOMR_DECOMPOSE_GEQRF:
        return o->t->cusolverDnXgeqrf_bufferSize(o->handle, o->params, s->m, s->n, type, NULL, s->step[0], type, NULL,
                                                 type, device, host);
    case ATOMR_DECOMPOSE_GESVD:
        return o->t->cusolverDnXgesvd_bufferSize(o->handle, o->params, job, job, s->m, s->n, type, NULL, s->step[0],
                                                 real, NULL, type, NULL, s->step[1], type, NULL, s->step[2], type,
                                                 device, host);
    case ATOMR_DECOMPOSE_SYEVD:
        return o->t->cusolverDnXsyevd_bufferSize(o->handle, o->params, mode, uplo, s->n, type, NULL, s->step[0], real,
                                                 NULL, type, device, host);
    case ATOMR_DECOMPOSE_SYEV_BATCHED:
        return o->t->cusolverDnXsyevBatched_bufferSize(o->handle, o->params, mode, uplo, s->n, type, NULL, s->step[0],
                                                       real, NULL, type, device, host, s->group);
    case ATOMR_DECOMPOSE_GESVDP:
        return o->t->cusolverDnXgesvdp_bufferSize(o->handle, o->params, mode, 1, s->m, s->n, type, NULL, s->step[0], real,
                                                  NULL, type, NULL, s->step[1], type, NULL, s->step[2], type, device,
                                                  host);
    case ATOMR_DECOMPOSE_GEEV:
        return o->t->cusolverDnXgeev_bufferSize(o->handle, o->params, 0, mode, s->n, type, NULL, s->step[0],
                                                complex_of(s), NULL, type, NULL, s->n, type, NULL, s->step[1], type,
                                                device, host);
    default:
        status = typed(o, s, NULL, NULL, NULL, NULL, NULL, &size, NULL);
        *device = (size_t)size * element(s);
        return status;
    }
}

int atomr_decomposition_prepare(atomr_decomposition *c, atomr_failure *failure) {
    const atomr_decomposition_spec *s = &c->spec;
    int code = check(s, failure);
    if (code != ATOMR_OK) return code;
    atomr_solver *o = NULL;
    code = atomr_solver_ask(c->cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    size_t device = 0, host = 0;
    const cusolverStatus_t status = ask(o, s, &device, &host);
    if (status != 0) return atomr_solver_fail(status, "asking for the size of a workspace", failure);
    c->scratch_bytes = device < element(s) ? element(s) : device;
    const int64_t calls = (s->batch - 1) / s->group + 1;
    return atomr_host_memory_make(&c->memory, c->cuda, before_host(s) + host, calls, failure);
}

void atomr_decomposition_release(atomr_decomposition *c) { atomr_host_memory_release(&c->memory, c->cuda); }

/* Copy how many eigenvalues were found, in pinned memory, to the device. */
static int note_found(const atomr_decomposition *c, const atomr_call *call, int32_t *to, const char *host,
                      atomr_failure *failure) {
    const CUresult r = atomr_cuda_driver(c->cuda)->cuMemcpyAsync(
        (CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)host, sizeof *to, atomr_cuda_stream(c->cuda, call->lane));
    return r == CUDA_SUCCESS ? ATOMR_OK
                             : atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, "cuMemcpyAsync",
                                            "copying a number of eigenvalues");
}

int atomr_decomposition_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_decomposition *c = context;
    const atomr_decomposition_spec *s = &c->spec;
    atomr_solver *o = NULL;
    const int code = atomr_solver_take(c->cuda, call->lane, &o, failure);
    if (code != ATOMR_OK) return code;
    const cudaDataType type = type_of(s), real = real_of(s);
    const signed char job = (signed char)s->job;
    const int mode = (int)s->job, uplo = (int)s->uplo;
    char *a = call->pointers[s->a], *values = call->pointers[s->values];
    char *b = s->b >= 0 ? call->pointers[s->b] : NULL, *vh = s->c >= 0 ? call->pointers[s->c] : NULL;
    int *info = call->pointers[s->info];
    void *const work = call->pointers[s->scratch];
    const size_t bytes = c->scratch_bytes, host_bytes = c->memory.step;
    int size = (int)(bytes / element(s));
    double error = 0; /* of the singular values, by the polar decomposition */
    bound above = bound_of(s, s->above), up_to = bound_of(s, s->up_to);
    int32_t *found = s->found >= 0 ? call->pointers[s->found] : NULL;
    char *host = atomr_host_memory_next(&c->memory);
    cusolverStatus_t status = 0;
    for (int64_t left = s->batch; left > 0 && status == 0; left -= s->group) {
        switch (s->routine) {
        case ATOMR_DECOMPOSE_GEQRF:
            status = o->t->cusolverDnXgeqrf(o->handle, o->params, s->m, s->n, type, a, s->step[0], type, values, type,
                                            work, bytes, host, host_bytes, info);
            break;
        case ATOMR_DECOMPOSE_GESVD:
            status = o->t->cusolverDnXgesvd(o->handle, o->params, job, job, s->m, s->n, type, a, s->step[0], real,
                                            values, type, b, s->step[1], type, vh, s->step[2], type, work, bytes, host,
                                            host_bytes, info);
            break;
        case ATOMR_DECOMPOSE_SYEVD:
            status = o->t->cusolverDnXsyevd(o->handle, o->params, mode, uplo, s->n, type, a, s->step[0], real, values,
                                            type, work, bytes, host, host_bytes, info);
            break;
        case ATOMR_DECOMPOSE_SYEVDX:
            status = o->t->cusolverDnXsyevdx(o->handle, o->params, mode, (int)s->range, uplo, s->n, type, a, s->step[0],
                                             &above, &up_to, s->first, s->last, (int64_t *)(void *)host, real, values,
                                             type, work, bytes, host + before_host(s), host_bytes - before_host(s),
                                             info);
            if (status == 0) {
                const int code = note_found(c, call, found++, host, failure);
                if (code != ATOMR_OK) return code;
            }
            break;
        case ATOMR_DECOMPOSE_SYEV_BATCHED:
            status = o->t->cusolverDnXsyevBatched(o->handle, o->params, mode, uplo, s->n, type, a, s->step[0], real,
                                                  values, type, work, bytes, host, host_bytes, info, left < s->group ? left : s->group);
            break;
        case ATOMR_DECOMPOSE_GESVDP:
            status = o->t->cusolverDnXgesvdp(o->handle, o->params, mode, 1, s->m, s->n, type, a, s->step[0], real, values,
                                             type, b, s->step[1], type, vh, s->step[2], type, work, bytes, host,
                                             host_bytes, info, &error);
            break;
        case ATOMR_DECOMPOSE_GEEV:
            status = o->t->cusolverDnXgeev(o->handle, o->params, 0, mode, s->n, type, a, s->step[0], complex_of(s),
                                           values, type, NULL, s->n, type, b, s->step[1], type, work, bytes, host,
                                           host_bytes, info);
            break;
        default:
            status = typed(o, s, a, values, b, vh, work, &size, info);
        }
        a += s->jump[0] * s->group;
        values += s->jump[1] * s->group;
        if (b) b += s->jump[2];
        if (vh) vh += s->jump[3];
        if (host) host += host_bytes;
        info += s->group;
    }
    return status == 0 ? ATOMR_OK : atomr_solver_fail(status, "a decomposition of cuSOLVER", failure);
}
