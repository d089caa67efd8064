/* A cuSPARSELt without a GPU: each call is noted, and computed in plain loops in the order of its stream.
 *
 * As documented and measured: extents and steps are multiples of 16 bytes, of 32 for the sparse matrix; 8-bit operands lie
 * with the summed axis dense; C has D's descriptor; factors for each row are read on the device, and beta is not applied if
 * only alpha is such a vector; a plan follows its descriptor, and a second one of that descriptor ends the process, as in
 * 0.8.0.  Objects belong to the address at which they were made.  The layout of the compressed matrix is this library's own: two of each four numbers, then a byte for each
 * four that says which. */
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "fake_floats.h"
#include "libraries/cusparselt/plan.h"

enum { HANDLE = 0x4c54, MATRIX, PRODUCT, SELECTION, PLAN, CONFIGURATIONS = 4, BUFFER = 512 };

typedef struct {
    int magic, structured;
    const void *self;
    int64_t rows, columns, step;
    cudaDataType type;
    cusparseOrder_t order;
} matrix;
typedef struct {
    int magic, turned, relu, alphas, betas, planned;
    const void *self, *bias;
    cusparseComputeType compute;
    matrix a, b, d;
} product;
typedef struct {
    int magic, configuration;
    const void *self;
} selection;
typedef struct {
    int magic, configuration;
    const void *self;
    const product *what;
} plan;

typedef struct {
    product what;
    const void *a, *b, *alphas, *betas;
    void *d, *workspace;
    float alpha, beta;
} noted;
typedef struct {
    matrix what;
    const void *dense;
    void *compressed, *buffer;
} noted_compression;

/* Handles, and other objects, that are alive, for tests in this process. */
_Atomic unsigned fake_structured_handles, fake_structured_objects;

static int size_of(cudaDataType type) {
    return type == CUDA_R_32F || type == CUDA_R_32I ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 1;
}

static float eight_bits(uint8_t b, int mantissa) { /* e4m3 without infinities, or e5m2 */
    const int exponent = 7 - mantissa, bias = (1 << (exponent - 1)) - 1, raised = b >> mantissa & ((1 << exponent) - 1);
    const int low = b & ((1 << mantissa) - 1), top = (1 << exponent) - 1;
    float x;
    if (mantissa == 3 ? (b & 0x7f) == 0x7f : raised == top && low) x = NAN;
    else if (mantissa == 2 && raised == top) x = INFINITY;
    else if (!raised) x = ldexpf((float)low, 1 - bias - mantissa);
    else x = ldexpf((float)(low + (1 << mantissa)), raised - bias - mantissa);
    return b & 0x80 ? -x : x;
}

static float get(cudaDataType type, const void *p, int64_t i) {
    switch (type) {
    case CUDA_R_8I: return ((const int8_t *)p)[i];
    case CUDA_R_32I: return (float)((const int32_t *)p)[i];
    case CUDA_R_16F: return half_float(((const uint16_t *)p)[i]);
    case CUDA_R_16BF: return from_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    case CUDA_R_8F_E4M3: return eight_bits(((const uint8_t *)p)[i], 3);
    case CUDA_R_8F_E5M2: return eight_bits(((const uint8_t *)p)[i], 2);
    default: return ((const float *)p)[i];
    }
}

static void put(cudaDataType type, void *p, int64_t i, float x) {
    switch (type) {
    case CUDA_R_8I: ((int8_t *)p)[i] = (int8_t)(x != x ? 0 : fminf(127, fmaxf(-128, nearbyintf(x)))); break;
    case CUDA_R_32I:
        ((int32_t *)p)[i] = (int32_t)(x != x ? 0 : fmin(2147483647.0, fmax(-2147483648.0, nearbyint(x))));
        break;
    case CUDA_R_16F: ((uint16_t *)p)[i] = float_half(x); break;
    case CUDA_R_16BF: ((uint16_t *)p)[i] = float_bfloat(x); break;
    default: ((float *)p)[i] = x;
    }
}

/* ---- What the device does. */

static void compress(void *argument) {
    const noted_compression *const c = argument;
    const matrix *const m = &c->what;
    const size_t size = (size_t)size_of(m->type), nbytes = (size_t)(m->rows * m->columns / 2) * size;
    uint8_t *const values = c->compressed, *const codes = values + nbytes;
    memset(c->buffer, 0xff, BUFFER);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t g = 0; g < m->columns / 4; g++) {
            int kept[4], n = 0;
            for (int j = 0; j < 4; j++)
                if (get(m->type, c->dense, i * m->step + 4 * g + j) != 0) kept[n++] = j;
            if (n > 2) n = 2; /* the others are lost, as by the library */
            for (int j = 3; n < 2; j--)
                if (!n || j != kept[0]) kept[n++] = j;
            if (kept[0] > kept[1]) {
                const int first = kept[1];
                kept[1] = kept[0];
                kept[0] = first;
            }
            for (int j = 0; j < 2; j++)
                memcpy(values + (size_t)(i * m->columns / 2 + 2 * g + j) * size,
                       (const char *)c->dense + (size_t)(i * m->step + 4 * g + kept[j]) * size, size);
            codes[i * m->columns / 4 + g] = (uint8_t)(kept[0] | kept[1] << 2);
        }
}

static void multiply(void *argument) {
    const noted *const c = argument;
    const product *const p = &c->what;
    const int64_t m = p->d.rows, n = p->d.columns, k = p->a.columns;
    const uint8_t *const codes = (const uint8_t *)c->a + (size_t)(m * k / 2) * (size_t)size_of(p->a.type);
    const cudaDataType of_bias = p->a.type == CUDA_R_8I ? CUDA_R_32F : p->d.type;
    memset(c->workspace, 0xff, BUFFER);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t g = 0; g < k / 4; g++)
                for (int e = 0; e < 2; e++) {
                    const int64_t column = 4 * g + (codes[i * k / 4 + g] >> 2 * e & 3);
                    const int64_t at = p->turned ? j * p->b.step + column : column * p->b.step + j;
                    sum += (double)get(p->a.type, c->a, i * k / 2 + 2 * g + e) * get(p->b.type, c->b, at);
                }
            const int64_t at = p->d.order == CUSPARSE_ORDER_ROW ? i * p->d.step + j : j * p->d.step + i;
            const float beta = p->betas ? ((const float *)c->betas)[i] : p->alphas ? 0 : c->beta;
            float x = (p->alphas ? ((const float *)c->alphas)[i] : c->alpha) * (float)sum;
            if (beta != 0) x += beta * get(p->d.type, c->d, at);
            if (p->bias) x += get(of_bias, p->bias, i);
            if (p->relu) x = x > 0 ? x : 0;
            put(p->d.type, c->d, at, x);
        }
}

/* ---- Calls. */

cusparseStatus_t cusparseLtGetProperty(libraryPropertyType propertyType, int *value) {
    static const int parts[] = {0, 10, 0};
    if (propertyType < 0 || propertyType > 2) return CUSPARSE_STATUS_INVALID_VALUE;
    *value = parts[propertyType];
    return 0;
}

#define AS(kind, object) ((kind *)(void *)(uintptr_t)(object)->data)

static int valid(const cusparseLtHandle_t *handle) { return handle && AS(int, handle)[0] == HANDLE; }

cusparseStatus_t cusparseLtInit(cusparseLtHandle_t *handle) {
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cusparseStatus_t)refusal;
    AS(int, handle)[0] = HANDLE;
    fake_structured_handles++;
    return 0;
}
cusparseStatus_t cusparseLtDestroy(const cusparseLtHandle_t *handle) {
    if (!valid(handle)) return CUSPARSE_STATUS_INVALID_VALUE;
    AS(int, handle)[0] = 0;
    fake_structured_handles--;
    return 0;
}

static cusparseStatus_t make_matrix(const cusparseLtHandle_t *handle, cusparseLtMatDescriptor_t *made, matrix m,
                                    uint32_t alignment) {
    if (!valid(handle) || m.rows <= 0 || m.columns <= 0) return CUSPARSE_STATUS_INVALID_VALUE;
    if (m.step < (m.order == CUSPARSE_ORDER_ROW ? m.columns : m.rows)) return CUSPARSE_STATUS_INVALID_VALUE;
    const int64_t unit = (m.structured ? 32 : 16) / size_of(m.type);
    if (m.rows % unit || m.columns % unit || m.step % unit || alignment != 16) return CUSPARSE_STATUS_NOT_SUPPORTED;
    m.magic = MATRIX;
    m.self = made;
    *AS(matrix, made) = m;
    fake_structured_objects++;
    return 0;
}
cusparseStatus_t cusparseLtDenseDescriptorInit(const cusparseLtHandle_t *handle, cusparseLtMatDescriptor_t *matDescr,
                                               int64_t rows, int64_t cols, int64_t ld, uint32_t alignment,
                                               cudaDataType valueType, cusparseOrder_t order) {
    return make_matrix(handle, matDescr, (matrix){.rows = rows, .columns = cols, .step = ld, .type = valueType, .order = order},
                       alignment);
}
cusparseStatus_t cusparseLtStructuredDescriptorInit(const cusparseLtHandle_t *handle, cusparseLtMatDescriptor_t *matDescr,
                                                    int64_t rows, int64_t cols, int64_t ld, uint32_t alignment,
                                                    cudaDataType valueType, cusparseOrder_t order,
                                                    cusparseLtSparsity_t sparsity) {
    if (sparsity != CUSPARSELT_SPARSITY_50_PERCENT) return CUSPARSE_STATUS_INVALID_VALUE;
    return make_matrix(handle, matDescr,
                       (matrix){.structured = 1, .rows = rows, .columns = cols, .step = ld, .type = valueType, .order = order},
                       alignment);
}
cusparseStatus_t cusparseLtMatDescriptorDestroy(const cusparseLtMatDescriptor_t *matDescr) {
    if (AS(matrix, matDescr)->magic != MATRIX) return CUSPARSE_STATUS_INVALID_VALUE;
    AS(matrix, matDescr)->magic = 0;
    fake_structured_objects--;
    return 0;
}

static int typed(cudaDataType in, cudaDataType out, cusparseComputeType compute) {
    if (in == CUDA_R_8I)
        return compute == CUSPARSE_COMPUTE_32I &&
               (out == CUDA_R_8I || out == CUDA_R_32I || out == CUDA_R_16F || out == CUDA_R_16BF);
    if (compute != CUSPARSE_COMPUTE_32F) return 0;
    if (in == CUDA_R_16F || in == CUDA_R_16BF) return out == in;
    return (in == CUDA_R_8F_E4M3 || in == CUDA_R_8F_E5M2) &&
           (out == CUDA_R_16F || out == CUDA_R_16BF || out == CUDA_R_32F);
}
cusparseStatus_t cusparseLtMatmulDescriptorInit(const cusparseLtHandle_t *handle, cusparseLtMatmulDescriptor_t *matmulDescr,
                                                cusparseOperation_t opA, cusparseOperation_t opB,
                                                const cusparseLtMatDescriptor_t *matA, const cusparseLtMatDescriptor_t *matB,
                                                const cusparseLtMatDescriptor_t *matC, const cusparseLtMatDescriptor_t *matD,
                                                cusparseComputeType computeType) {
    const matrix a = *AS(matrix, matA), b = *AS(matrix, matB), d = *AS(matrix, matD);
    if (!valid(handle) || a.self != matA || b.self != matB || d.self != matD || !a.structured || b.structured || matC != matD)
        return CUSPARSE_STATUS_INVALID_VALUE;
    const int turned = opB != CUSPARSE_OPERATION_NON_TRANSPOSE;
    if (opA || a.columns != (turned ? b.columns : b.rows) || d.rows != a.rows || d.columns != (turned ? b.rows : b.columns))
        return CUSPARSE_STATUS_INVALID_VALUE;
    const int dense = turned == (b.order == CUSPARSE_ORDER_ROW); /* along the summed axis */
    if (a.type != b.type || !typed(a.type, d.type, computeType) || (size_of(a.type) == 1 && !dense))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    *AS(product, matmulDescr) =
        (product){.magic = PRODUCT, .self = matmulDescr, .turned = dense, .compute = computeType, .a = a, .b = b, .d = d};
    return 0;
}
cusparseStatus_t cusparseLtMatmulDescSetAttribute(const cusparseLtHandle_t *handle,
                                                  cusparseLtMatmulDescriptor_t *matmulDescr,
                                                  cusparseLtMatmulDescAttribute_t matmulAttribute, const void *data,
                                                  size_t dataSize) {
    product *const p = AS(product, matmulDescr);
    if (!valid(handle) || p->magic != PRODUCT || p->self != matmulDescr) return CUSPARSE_STATUS_INVALID_VALUE;
    if (matmulAttribute == CUSPARSELT_MATMUL_BIAS_POINTER) {
        if (dataSize != sizeof(void *)) return CUSPARSE_STATUS_INVALID_VALUE;
        memcpy(&p->bias, data, sizeof p->bias);
        return 0;
    }
    if (dataSize != sizeof(int)) return CUSPARSE_STATUS_INVALID_VALUE;
    int *const to = matmulAttribute == CUSPARSELT_MATMUL_ACTIVATION_RELU        ? &p->relu
                    : matmulAttribute == CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING ? &p->alphas
                    : matmulAttribute == CUSPARSELT_MATMUL_BETA_VECTOR_SCALING  ? &p->betas
                                                                                : NULL;
    if (!to) return CUSPARSE_STATUS_INVALID_VALUE;
    memcpy(to, data, sizeof *to);
    return 0;
}

cusparseStatus_t cusparseLtMatmulAlgSelectionInit(const cusparseLtHandle_t *handle,
                                                  cusparseLtMatmulAlgSelection_t *algSelection,
                                                  const cusparseLtMatmulDescriptor_t *matmulDescr,
                                                  cusparseLtMatmulAlg_t alg) {
    if (!valid(handle) || AS(product, matmulDescr)->magic != PRODUCT || alg) return CUSPARSE_STATUS_INVALID_VALUE;
    *AS(selection, algSelection) = (selection){.magic = SELECTION, .self = algSelection};
    fake_structured_objects++;
    return 0;
}
cusparseStatus_t cusparseLtMatmulAlgSelectionDestroy(const cusparseLtMatmulAlgSelection_t *algSelection) {
    if (AS(selection, algSelection)->magic != SELECTION) return CUSPARSE_STATUS_INVALID_VALUE;
    AS(selection, algSelection)->magic = 0;
    fake_structured_objects--;
    return 0;
}
cusparseStatus_t cusparseLtMatmulAlgSetAttribute(const cusparseLtHandle_t *handle,
                                                 cusparseLtMatmulAlgSelection_t *algSelection,
                                                 cusparseLtMatmulAlgAttribute_t attribute, const void *data,
                                                 size_t dataSize) {
    int value;
    if (!valid(handle) || dataSize != sizeof value || attribute != CUSPARSELT_MATMUL_ALG_CONFIG_ID)
        return CUSPARSE_STATUS_INVALID_VALUE;
    memcpy(&value, data, sizeof value);
    if (value < 0 || value >= CONFIGURATIONS) return CUSPARSE_STATUS_INVALID_VALUE;
    AS(selection, algSelection)->configuration = value;
    return 0;
}
cusparseStatus_t cusparseLtMatmulAlgGetAttribute(const cusparseLtHandle_t *handle,
                                                 const cusparseLtMatmulAlgSelection_t *algSelection,
                                                 cusparseLtMatmulAlgAttribute_t attribute, void *data, size_t dataSize) {
    const int most = CONFIGURATIONS;
    if (!valid(handle) || AS(selection, algSelection)->magic != SELECTION || dataSize != sizeof most ||
        attribute != CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID)
        return CUSPARSE_STATUS_INVALID_VALUE;
    memcpy(data, &most, sizeof most);
    return 0;
}
cusparseStatus_t cusparseLtMatmulPlanInit(const cusparseLtHandle_t *handle, cusparseLtMatmulPlan_t *made,
                                          const cusparseLtMatmulDescriptor_t *matmulDescr,
                                          const cusparseLtMatmulAlgSelection_t *algSelection) {
    product *const p = AS(product, matmulDescr);
    const selection *const chosen = AS(selection, algSelection);
    if (!valid(handle) || p->self != matmulDescr || chosen->self != algSelection) return CUSPARSE_STATUS_INVALID_VALUE;
    if (p->planned++) abort();
    *AS(plan, made) = (plan){.magic = PLAN, .configuration = chosen->configuration, .self = made, .what = p};
    fake_structured_objects++;
    return 0;
}
cusparseStatus_t cusparseLtMatmulPlanDestroy(const cusparseLtMatmulPlan_t *made) {
    if (AS(plan, made)->magic != PLAN) return CUSPARSE_STATUS_INVALID_VALUE;
    AS(plan, made)->magic = 0;
    fake_structured_objects--;
    return 0;
}
cusparseStatus_t cusparseLtMatmulGetWorkspace(const cusparseLtHandle_t *handle, const cusparseLtMatmulPlan_t *made,
                                              size_t *workspaceSize) {
    if (!valid(handle) || AS(plan, made)->magic != PLAN) return CUSPARSE_STATUS_INVALID_VALUE;
    *workspaceSize = BUFFER;
    return 0;
}
cusparseStatus_t cusparseLtMatmul(const cusparseLtHandle_t *handle, const cusparseLtMatmulPlan_t *made, const void *alpha,
                                  const void *d_A, const void *d_B, const void *beta, const void *d_C, void *d_D,
                                  void *workspace, cudaStream_t *streams, int32_t numStreams) {
    const plan *const p = AS(plan, made);
    if (!valid(handle) || p->magic != PLAN || p->self != made || !workspace || numStreams != 1 || !streams[0] || d_C != d_D)
        return CUSPARSE_STATUS_INVALID_VALUE;
    noted c = {.what = *p->what, .a = d_A, .b = d_B, .d = d_D, .workspace = workspace, .alphas = alpha, .betas = beta};
    if (!c.what.alphas) memcpy(&c.alpha, alpha, sizeof c.alpha);
    if (!c.what.betas) memcpy(&c.beta, beta, sizeof c.beta);
    return fake_enqueue(streams[0], multiply, &c, sizeof c, 0) ? CUSPARSE_STATUS_EXECUTION_FAILED : 0;
}

cusparseStatus_t cusparseLtSpMMACompressedSize2(const cusparseLtHandle_t *handle,
                                                const cusparseLtMatDescriptor_t *sparseMatDescr, size_t *compressedSize,
                                                size_t *compressedBufferSize) {
    const matrix *const m = AS(matrix, sparseMatDescr);
    if (!valid(handle) || !m->structured) return CUSPARSE_STATUS_INVALID_VALUE;
    *compressedSize = (size_t)(m->rows * m->columns / 2) * (size_t)size_of(m->type) + (size_t)(m->rows * m->columns / 4);
    *compressedBufferSize = BUFFER;
    return 0;
}
cusparseStatus_t cusparseLtSpMMACompress2(const cusparseLtHandle_t *handle, const cusparseLtMatDescriptor_t *sparseMatDescr,
                                          int isSparseA, cusparseOperation_t op, const void *d_dense, void *d_compressed,
                                          void *d_compressed_buffer, cudaStream_t stream) {
    const matrix *const m = AS(matrix, sparseMatDescr);
    if (!valid(handle) || m->self != sparseMatDescr || !isSparseA || op || !d_compressed_buffer || !stream)
        return CUSPARSE_STATUS_INVALID_VALUE;
    const noted_compression c = {*m, d_dense, d_compressed, d_compressed_buffer};
    return fake_enqueue(stream, compress, &c, sizeof c, 0) ? CUSPARSE_STATUS_EXECUTION_FAILED : 0;
}
