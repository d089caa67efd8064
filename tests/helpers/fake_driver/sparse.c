/* A cuSPARSE without a GPU: each call is noted, and computed in plain loops in the order of its stream.
 *
 * As documented: an index that is out of range is an invalid access, the rows of COO must be in order, the buffer belongs
 * to the library until its work is done, and descriptors may be destroyed as soon as a call has returned. */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "libraries/cusparse/call.h"

typedef double complex number;

struct cusparseContext {
    CUstream stream;
    cusparsePointerMode_t mode;
};
struct cusparseSpMatDescr {
    int coo, wide;
    int64_t rows, columns, nnz;
    void *first, *indices, *values;
    cudaDataType type;
};
struct cusparseDnMatDescr {
    int64_t rows, columns, ld;
    void *values;
    cudaDataType type;
    cusparseOrder_t order;
};
struct cusparseDnVecDescr {
    struct cusparseDnMatDescr as;
};

enum { SPMV, SDDMM, BUFFER = 512 };

typedef struct {
    int routine, op_a, op_b, on_device;
    cudaDataType compute;
    struct cusparseSpMatDescr a;
    struct cusparseDnMatDescr x, y;
    number alpha, beta;
    const void *alpha_at, *beta_at;
    void *buffer;
} noted;

/* Handles and descriptors that are alive, for tests in this process. */
_Atomic unsigned fake_sparse_handles, fake_sparse_descriptors;

static float bits(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}
static uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}

static number get(cudaDataType type, const void *p, int64_t i) {
    switch (type) {
    case CUDA_R_8I: return ((const int8_t *)p)[i];
    case CUDA_R_32I: return ((const int32_t *)p)[i];
    case CUDA_R_16F: return (double)((const _Float16 *)p)[i];
    case CUDA_R_16BF: return bits((uint32_t)((const uint16_t *)p)[i] << 16);
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_C_32F: return CMPLX(((const float *)p)[2 * i], ((const float *)p)[2 * i + 1]);
    default: return CMPLX(((const double *)p)[2 * i], ((const double *)p)[2 * i + 1]);
    }
}

static void put(cudaDataType type, void *p, int64_t i, number x) {
    const float narrow = (float)creal(x);
    switch (type) {
    case CUDA_R_32I: ((int32_t *)p)[i] = (int32_t)creal(x); break;
    case CUDA_R_16F: ((_Float16 *)p)[i] = (_Float16)narrow; break;
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = narrow != narrow ? 0x7fc0 : (uint16_t)((bits_of(narrow) + 0x7fffu + (bits_of(narrow) >> 16 & 1u)) >> 16);
        break;
    case CUDA_R_32F: ((float *)p)[i] = narrow; break;
    case CUDA_R_64F: ((double *)p)[i] = creal(x); break;
    case CUDA_C_32F:
        ((float *)p)[2 * i] = narrow;
        ((float *)p)[2 * i + 1] = (float)cimag(x);
        break;
    default:
        ((double *)p)[2 * i] = creal(x);
        ((double *)p)[2 * i + 1] = cimag(x);
    }
}

static int64_t place(const struct cusparseDnMatDescr *m, int64_t i, int64_t j) {
    return m->order == CUSPARSE_ORDER_ROW ? i * m->ld + j : j * m->ld + i;
}
static int64_t index_at(const struct cusparseSpMatDescr *a, const void *p, int64_t i) {
    return a->wide ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}

static void run(void *argument) {
    noted *const c = argument;
    const struct cusparseSpMatDescr *const a = &c->a;
    if (c->buffer) memset(c->buffer, 0xff, BUFFER);
    const number alpha = c->on_device ? get(c->compute, c->alpha_at, 0) : c->alpha;
    const number beta = c->on_device ? get(c->compute, c->beta_at, 0) : c->beta;
    const int64_t rows = c->op_a ? a->columns : a->rows, across = c->routine == SDDMM ? 0 : c->y.columns;
    number *const sums = calloc((size_t)(rows * across + 1), sizeof *sums);
    if (!sums) fake_raise(ERROR_LAUNCH_FAILED);
    int64_t row = 0;
    for (int64_t e = 0; e < a->nnz; e++) {
        if (a->coo) {
            if (index_at(a, a->first, e) < row) fake_raise(ERROR_LAUNCH_FAILED); /* not in order: results mean nothing */
            row = index_at(a, a->first, e);
        } else
            while (row < a->rows && index_at(a, a->first, row + 1) <= e) row++;
        const int64_t column = index_at(a, a->indices, e);
        if (row < 0 || row >= a->rows || column < 0 || column >= a->columns) fake_raise(ERROR_ILLEGAL_ADDRESS);
        if (c->routine == SDDMM) {
            number sum = 0;
            for (int64_t k = 0; k < c->x.columns; k++)
                sum += get(c->x.type, c->x.values, place(&c->x, row, k)) * get(c->y.type, c->y.values, place(&c->y, k, column));
            put(a->type, a->values, e, alpha * sum + (beta == 0 ? 0 : beta * get(a->type, a->values, e)));
            continue;
        }
        number value = get(a->type, a->values, e);
        if (c->op_a == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE) value = conj(value);
        const int64_t to = c->op_a ? column : row, from = c->op_a ? row : column;
        for (int64_t j = 0; j < across; j++) sums[to * across + j] += value * get(c->x.type, c->x.values, place(&c->x, from, j));
    }
    for (int64_t i = 0; i < rows * across; i++) {
        const int64_t at = place(&c->y, i / across, i % across);
        put(c->y.type, c->y.values, at, alpha * sums[i] + (beta == 0 ? 0 : beta * get(c->y.type, c->y.values, at)));
    }
    free(sums);
}

cusparseStatus_t cusparseGetProperty(libraryPropertyType type, int *value) {
    static const int parts[] = {12, 6, 3};
    if (type < 0 || type > 2) return CUSPARSE_STATUS_INVALID_VALUE;
    *value = parts[type];
    return 0;
}
cusparseStatus_t cusparseCreate(cusparseHandle_t *handle) {
    const CUresult refusal = fake_refusal(__func__);
    *handle = refusal ? NULL : calloc(1, sizeof **handle);
    fake_sparse_handles += *handle != NULL;
    return refusal ? (cusparseStatus_t)refusal : *handle ? 0 : CUSPARSE_STATUS_ALLOC_FAILED;
}
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
    fake_sparse_handles--;
    free(handle);
    return 0;
}
cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t streamId) {
    handle->stream = streamId;
    return 0;
}
cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode) {
    handle->mode = mode;
    return 0;
}

static cusparseStatus_t make_sparse(cusparseSpMatDescr_t *made, struct cusparseSpMatDescr d, cusparseIndexType_t index) {
    if (!d.first || !d.indices || !d.values || d.rows < 0 || d.columns < 0 || d.nnz < 0 || d.nnz > d.rows * d.columns) return CUSPARSE_STATUS_INVALID_VALUE;
    *made = malloc(sizeof **made);
    if (!*made) return CUSPARSE_STATUS_ALLOC_FAILED;
    d.wide = index == CUSPARSE_INDEX_64I;
    **made = d;
    fake_sparse_descriptors++;
    return 0;
}
cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *spMatDescr, int64_t rows, int64_t cols, int64_t nnz,
                                   void *csrRowOffsets, void *csrColInd, void *csrValues,
                                   cusparseIndexType_t csrRowOffsetsType, cusparseIndexType_t csrColIndType,
                                   cusparseIndexBase_t idxBase, cudaDataType valueType) {
    if (csrRowOffsetsType != csrColIndType || idxBase) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return make_sparse(spMatDescr,
                       (struct cusparseSpMatDescr){.rows = rows, .columns = cols, .nnz = nnz, .first = csrRowOffsets,
                                                   .indices = csrColInd, .values = csrValues, .type = valueType},
                       csrColIndType);
}
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t *spMatDescr, int64_t rows, int64_t cols, int64_t nnz,
                                   void *cooRowInd, void *cooColInd, void *cooValues, cusparseIndexType_t cooIdxType,
                                   cusparseIndexBase_t idxBase, cudaDataType valueType) {
    if (idxBase) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return make_sparse(spMatDescr,
                       (struct cusparseSpMatDescr){.coo = 1, .rows = rows, .columns = cols, .nnz = nnz, .first = cooRowInd,
                                                   .indices = cooColInd, .values = cooValues, .type = valueType},
                       cooIdxType);
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t spMatDescr) {
    fake_sparse_descriptors--;
    free((void *)(uintptr_t)spMatDescr);
    return 0;
}
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t *dnMatDescr, int64_t rows, int64_t cols, int64_t ld, void *values,
                                     cudaDataType valueType, cusparseOrder_t order) {
    if (!values || ld < (order == CUSPARSE_ORDER_ROW ? cols : rows)) return CUSPARSE_STATUS_INVALID_VALUE;
    *dnMatDescr = malloc(sizeof **dnMatDescr);
    if (!*dnMatDescr) return CUSPARSE_STATUS_ALLOC_FAILED;
    **dnMatDescr = (struct cusparseDnMatDescr){rows, cols, ld, values, valueType, order};
    fake_sparse_descriptors++;
    return 0;
}
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t dnMatDescr) {
    fake_sparse_descriptors--;
    free((void *)(uintptr_t)dnMatDescr);
    return 0;
}
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t *dnVecDescr, int64_t size, void *values, cudaDataType valueType) {
    return cusparseCreateDnMat((cusparseDnMatDescr_t *)(void *)dnVecDescr, size, 1, size, values, valueType, CUSPARSE_ORDER_COL);
}
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t dnVecDescr) {
    return cusparseDestroyDnMat((cusparseConstDnMatDescr_t)(const void *)dnVecDescr);
}

/* What the library knows of types. */
static int typed(cudaDataType a, cudaDataType x, cudaDataType y, cudaDataType compute) {
    if (a != x) return 0;
    if (a == CUDA_R_8I) return y == CUDA_R_32I && compute == CUDA_R_32I;
    if (a == CUDA_R_16F || a == CUDA_R_16BF) return (y == a || y == CUDA_R_32F) && compute == CUDA_R_32F;
    return y == a && compute == a;
}
static cusparseStatus_t check(const noted *c) {
    if (c->op_a == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE && c->compute != CUDA_C_32F && c->compute != CUDA_C_64F)
        return CUSPARSE_STATUS_INVALID_VALUE;
    const struct cusparseSpMatDescr *const a = &c->a;
    const cudaDataType out = c->routine == SDDMM ? a->type : c->y.type;
    if (!typed(a->type, c->x.type, out, c->compute)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    const int64_t rows = c->op_a ? a->columns : a->rows, columns = c->op_a ? a->rows : a->columns;
    if (c->routine == SDDMM)
        return c->x.rows == a->rows && c->y.columns == a->columns && c->x.columns == c->y.rows ? 0 : CUSPARSE_STATUS_INVALID_VALUE;
    return c->x.rows == columns && c->y.rows == rows && c->x.columns == c->y.columns ? 0 : CUSPARSE_STATUS_INVALID_VALUE;
}
static cusparseStatus_t enqueue(cusparseHandle_t handle, noted c, const void *alpha, const void *beta, void *buffer) {
    const cusparseStatus_t status = check(&c);
    if (status) return status;
    if (!handle->stream || !buffer) return CUSPARSE_STATUS_INVALID_VALUE;
    c.on_device = handle->mode == CUSPARSE_POINTER_MODE_DEVICE;
    c.buffer = buffer;
    if (c.on_device) c.alpha_at = alpha, c.beta_at = beta;
    else c.alpha = get(c.compute, alpha, 0), c.beta = get(c.compute, beta, 0);
    return fake_enqueue(handle->stream, run, &c, sizeof c, 0) ? CUSPARSE_STATUS_EXECUTION_FAILED : 0;
}
static cusparseStatus_t measure(noted c, const void *alpha, const void *beta, size_t *size) {
    *size = BUFFER;
    if (get(c.compute, alpha, 0) != 1 || get(c.compute, beta, 0) != 1) return CUSPARSE_STATUS_INVALID_VALUE;
    return check(&c);
}

#define VECTORS ((noted){.routine = SPMV, .op_a = opA, .compute = computeType, .a = *mat_a, .x = vecX->as, .y = vecY->as})
cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t handle, cusparseOperation_t opA, const void *alpha,
                                         cusparseConstSpMatDescr_t mat_a, cusparseConstDnVecDescr_t vecX, const void *beta,
                                         cusparseDnVecDescr_t vecY, cudaDataType computeType, cusparseSpMVAlg_t alg,
                                         size_t *bufferSize) {
    (void)handle, (void)alg;
    return measure(VECTORS, alpha, beta, bufferSize);
}
cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t opA, const void *alpha,
                              cusparseConstSpMatDescr_t mat_a, cusparseConstDnVecDescr_t vecX, const void *beta,
                              cusparseDnVecDescr_t vecY, cudaDataType computeType, cusparseSpMVAlg_t alg,
                              void *externalBuffer) {
    (void)alg;
    return enqueue(handle, VECTORS, alpha, beta, externalBuffer);
}

#define SAMPLED                                                                                                        \
    ((noted){.routine = SDDMM, .op_a = 0, .op_b = opB, .compute = computeType, .a = *mat_c, .x = *mat_a, .y = *mat_b})
cusparseStatus_t cusparseSDDMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t opA, cusparseOperation_t opB,
                                          const void *alpha, cusparseConstDnMatDescr_t mat_a, cusparseConstDnMatDescr_t mat_b,
                                          const void *beta, cusparseSpMatDescr_t mat_c, cudaDataType computeType,
                                          cusparseSDDMMAlg_t alg, size_t *bufferSize) {
    (void)handle, (void)alg, (void)opA;
    return measure(SAMPLED, alpha, beta, bufferSize);
}
cusparseStatus_t cusparseSDDMM(cusparseHandle_t handle, cusparseOperation_t opA, cusparseOperation_t opB, const void *alpha,
                               cusparseConstDnMatDescr_t mat_a, cusparseConstDnMatDescr_t mat_b, const void *beta,
                               cusparseSpMatDescr_t mat_c, cudaDataType computeType, cusparseSDDMMAlg_t alg,
                               void *externalBuffer) {
    (void)alg, (void)opA;
    return enqueue(handle, SAMPLED, alpha, beta, externalBuffer);
}
