#include "libraries/cusparse/call.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/failure.h"

const atomr_field atomr_sparse_fields[] = {
    ATOMR_SPARSE_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_sparse_constants[] = {
    ATOMR_CUSPARSE_CONSTANTS(ATOMR_CONSTANT) ATOMR_SPARSE_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

/* A handle, and the pointer mode that it is set to. */
typedef struct {
    const atomr_cusparse_table *t;
    cusparseHandle_t handle;
    cusparsePointerMode_t mode;
} sparse_handle;

static const char *name_of(cusparseStatus_t status) {
    static const char prefix[] = "CUSPARSE_STATUS_";
    for (const atomr_constant *c = atomr_sparse_constants; c->name; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

static int fail(cusparseStatus_t status, const char *what, atomr_failure *failure) {
    const int refused = status == CUSPARSE_STATUS_NOT_SUPPORTED || status == CUSPARSE_STATUS_ARCH_MISMATCH ||
                        status == CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED;
    return atomr_failed(failure, refused ? ATOMR_UNSUPPORTED : ATOMR_LIBRARY_ERROR, "cusparse", status,
                        name_of(status), "%s", what);
}

static void destroy(void *handle) {
    sparse_handle *const h = handle;
    h->t->cusparseDestroy(h->handle);
    free(h);
}

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cusparse_table *const t = atomr_cusparse_load(NULL, why, sizeof why); /* it is open: a plan was made */
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    sparse_handle *const h = calloc(1, sizeof *h);
    if (!h) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuSPARSE handle");
    h->t = t;
    h->mode = CUSPARSE_POINTER_MODE_HOST;
    const cusparseStatus_t status = t->cusparseCreate(&h->handle);
    if (status != 0) {
        free(h);
        return fail(status, "cusparseCreate", failure);
    }
    *handle = h;
    return ATOMR_OK;
}

static int set_stream(void *handle, CUstream stream, atomr_failure *failure) {
    const sparse_handle *const h = handle;
    const cusparseStatus_t status = h->t->cusparseSetStream(h->handle, stream);
    return status == 0 ? ATOMR_OK : fail(status, "cusparseSetStream", failure);
}

static const atomr_handle_kind of_lane = {"cusparse", create, set_stream, destroy};
static const atomr_handle_kind of_device = {"cusparse", create, NULL, destroy};

static int is_sampled(const atomr_sparse_spec *s) { return s->routine == ATOMR_SPARSE_SDDMM; }
static int on_device(const atomr_sparse_spec *s) { return s->factor_at[0] >= 0; }

static int malformed(const atomr_sparse_spec *s) {
    const int64_t operands[] = {s->values, s->offsets, s->indices, s->x};
    const int64_t others[] = {s->y, s->z, s->factor_at[0], s->factor_at[1]};
    int good = s->routine >= ATOMR_SPARSE_SPMV && s->routine <= ATOMR_SPARSE_SDDMM;
    good = good && (s->format == ATOMR_SPARSE_CSR || s->format == ATOMR_SPARSE_COO);
    good = good && s->rows >= 1 && s->columns >= 1 && s->nnz >= 1 && s->scratch >= 0 && s->scratch % 256 == 0;
    for (int i = 0; i < 4; i++) good = good && operands[i] >= 0 && operands[i] < s->n_operands;
    for (int i = 0; i < 4; i++) good = good && others[i] >= -1 && others[i] < s->n_operands;
    for (int i = 0; i < 4; i++) good = good && s->factor[i] >= -1 && s->factor[i] < s->n_scalars;
    for (int i = 0; i < 6; i++) good = good && s->extent[i] >= 0;
    for (int i = 0; i < 3; i++) good = good && s->step[i] >= 0;
    good = good && (is_sampled(s) ? s->z >= 0 : s->y >= 0);
    return !good || (s->factor_at[0] >= 0) != (s->factor_at[1] >= 0);
}

typedef struct {
    cusparseSpMatDescr_t sparse;
    cusparseDnVecDescr_t vector[2];
    cusparseDnMatDescr_t matrix[3];
} descriptors;

static void drop(const atomr_cusparse_table *t, descriptors *d) {
    if (d->sparse) t->cusparseDestroySpMat(d->sparse);
    for (int i = 0; i < 2; i++)
        if (d->vector[i]) t->cusparseDestroyDnVec(d->vector[i]);
    for (int i = 0; i < 3; i++)
        if (d->matrix[i]) t->cusparseDestroyDnMat(d->matrix[i]);
}

/* Descriptors of the arrays at `at`, by operand. */
static cusparseStatus_t describe(const atomr_cusparse_table *t, const atomr_sparse_spec *s, void *const *at,
                                 descriptors *d) {
    const cusparseIndexType_t index = (cusparseIndexType_t)s->index_type;
    const cudaDataType values = (cudaDataType)s->value_type;
    const int64_t places[] = {s->x, s->y, s->z};
    const cudaDataType types[] = {(cudaDataType)s->dense_type, (cudaDataType)s->out_type, (cudaDataType)s->dense_type};
    cusparseStatus_t status =
        s->format == ATOMR_SPARSE_CSR
            ? t->cusparseCreateCsr(&d->sparse, s->rows, s->columns, s->nnz, at[s->offsets], at[s->indices],
                                   at[s->values], index, index, CUSPARSE_INDEX_BASE_ZERO, values)
            : t->cusparseCreateCoo(&d->sparse, s->rows, s->columns, s->nnz, at[s->offsets], at[s->indices],
                                   at[s->values], index, CUSPARSE_INDEX_BASE_ZERO, values);
    for (int i = 0; i < 3 && status == 0; i++) {
        if (places[i] < 0) continue;
        if (s->routine == ATOMR_SPARSE_SPMV)
            status = t->cusparseCreateDnVec(&d->vector[i], s->extent[2 * i], at[places[i]], types[i]);
        else
            status = t->cusparseCreateDnMat(&d->matrix[i], s->extent[2 * i], s->extent[2 * i + 1], s->step[i],
                                            at[places[i]], types[i], (cusparseOrder_t)s->order[i]);
    }
    return status;
}

/* The size of the buffer if `size` is given, else the work itself. */
static cusparseStatus_t work(const sparse_handle *h, const atomr_sparse_spec *s, const descriptors *d,
                             const void *alpha, const void *beta, size_t *size, void *buffer) {
    const atomr_cusparse_table *const t = h->t;
    const cusparseOperation_t a = (cusparseOperation_t)s->op_a, b = (cusparseOperation_t)s->op_b;
    const cudaDataType type = (cudaDataType)s->compute_type;
    const int algorithm = (int)s->algorithm;
    switch (s->routine) {
    case ATOMR_SPARSE_SPMV:
        return size ? t->cusparseSpMV_bufferSize(h->handle, a, alpha, d->sparse, d->vector[0], beta, d->vector[1], type,
                                                 algorithm, size)
                    : t->cusparseSpMV(h->handle, a, alpha, d->sparse, d->vector[0], beta, d->vector[1], type, algorithm,
                                      buffer);
    default:
        return size ? t->cusparseSDDMM_bufferSize(h->handle, a, b, alpha, d->matrix[0], d->matrix[2], beta, d->sparse,
                                                  type, algorithm, size)
                    : t->cusparseSDDMM(h->handle, a, b, alpha, d->matrix[0], d->matrix[2], beta, d->sparse, type,
                                       algorithm, buffer);
    }
}

/* A factor as the library reads it: in the type of the sum. */
typedef union {
    float single[2];
    double wide[2];
    int32_t whole;
} factor;

static factor factor_of(const atomr_sparse_spec *s, double real, double imaginary) {
    factor made = {.wide = {0, 0}};
    if (s->compute_type == CUDA_R_32I) made.whole = (int32_t)real;
    else if (s->compute_type == CUDA_R_32F || s->compute_type == CUDA_C_32F)
        made.single[0] = (float)real, made.single[1] = (float)imaginary;
    else made.wide[0] = real, made.wide[1] = imaginary;
    return made;
}

static factor factor_at(const atomr_sparse_spec *s, const atomr_call *call, int which) {
    double part[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const int64_t at = s->factor[which + 2 * i];
        if (at >= 0) memcpy(&part[i], &call->scalars[at], sizeof part[i]);
    }
    return factor_of(s, part[0], part[1]);
}

int atomr_sparse_prepare(atomr_sparse_call *c, atomr_failure *failure) {
    const atomr_sparse_spec *const s = &c->spec;
    if (malformed(s)) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a sparse product");
    void *handle = NULL;
    const int code = atomr_device_handle(c->cuda, &of_device, &handle, failure);
    if (code != ATOMR_OK) return code;
    const sparse_handle *const h = handle;
    void *at[64]; /* the library looks at no array for this, but refuses NULL */
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) at[i] = (void *)(uintptr_t)4096;
    if (s->n_operands > (int64_t)(sizeof at / sizeof *at))
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a sparse product");
    const factor one = factor_of(s, 1, 0);
    descriptors d = {0};
    size_t size = 0;
    cusparseStatus_t status = describe(h->t, s, at, &d);
    if (status == 0) status = work(h, s, &d, &one, &one, &size, NULL);
    drop(h->t, &d);
    c->buffer = size;
    return status == 0 ? ATOMR_OK : fail(status, "asking for the size of the buffer of a sparse product", failure);
}

int atomr_sparse_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_sparse_call *const c = context;
    const atomr_sparse_spec *const s = &c->spec;
    if (c->buffer && (uint64_t)s->scratch + c->buffer > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and this product needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)s->scratch + c->buffer);
    void *handle = NULL;
    const int code = atomr_lane_handle(c->cuda, call->lane, &of_lane, &handle, failure);
    if (code != ATOMR_OK) return code;
    sparse_handle *const h = handle;
    const cusparsePointerMode_t mode = on_device(s) ? CUSPARSE_POINTER_MODE_DEVICE : CUSPARSE_POINTER_MODE_HOST;
    cusparseStatus_t status = 0;
    if (mode != h->mode) {
        status = h->t->cusparseSetPointerMode(h->handle, mode);
        if (status != 0) return fail(status, "cusparseSetPointerMode", failure);
        h->mode = mode;
    }
    const factor alpha = factor_at(s, call, 0), beta = factor_at(s, call, 1);
    const void *const first = on_device(s) ? call->pointers[s->factor_at[0]] : &alpha;
    const void *const second = on_device(s) ? call->pointers[s->factor_at[1]] : &beta;
    descriptors d = {0};
    status = describe(h->t, s, call->pointers, &d);
    if (status == 0)
        status = work(h, s, &d, first, second, NULL, c->buffer ? (char *)call->workspace + s->scratch : NULL);
    drop(h->t, &d);
    return status == 0 ? ATOMR_OK : fail(status, "a sparse product", failure);
}
