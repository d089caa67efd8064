/* A cuDSS without a GPU: each call is noted, and computed in plain loops in the order of its stream.
 *
 * As documented: device memory comes from the handler from the moment on that it is set, and the library goes on with less
 * where it is refused more than it must have; a handle that comes with an error is destroyed; phases follow each other; a
 * refactorization needs a factorization; matrices of a uniform batch lie one after the other; B and X have their columns one
 * after the other; the deterministic mode knows neither batches nor several columns; queries of the outcome wait, and a bad
 * one stays until it is reset; errors go to the log.  As seen on an H200: it asks for no bytes, and cannot give back an
 * address that it got for them.  Factors are dense here, with pivots for all kinds but the positive definite. */
#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "libraries/cudss/direct.h"

typedef double complex number;

struct cudssContext {
    CUstream stream;
    cudssDeviceMemHandler_t memory;
    void *own; /* a part that it takes as soon as it can */
};
struct cudssConfig {
    int batch, deterministic;
};
struct cudssMatrix {
    int sparse;
    int64_t rows, columns, nnz;
    const void *offsets, *indices, *values;
    cudaDataType_t index, type;
    int kind, view;
};
struct cudssData {
    int phase; /* the last one that was enqueued */
    int64_t n, nnz, columns, batch;
    void *analysis, *factors;
    size_t bytes[2];
    _Atomic int *info;
};

typedef struct {
    struct cudssMatrix a, b, x;
    int64_t batch;
    void *factors;
    _Atomic int *info;
} noted;

/* Handles, data and matrices that are alive, and analyses, for tests in this process. */
_Atomic unsigned fake_direct_objects, fake_direct_analyses;

static number get(cudaDataType_t type, const void *p, int64_t i) {
    switch (type) {
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_C_32F: return CMPLX(((const float *)p)[2 * i], ((const float *)p)[2 * i + 1]);
    default: return CMPLX(((const double *)p)[2 * i], ((const double *)p)[2 * i + 1]);
    }
}
static void put(cudaDataType_t type, void *p, int64_t i, number x) {
    switch (type) {
    case CUDA_R_32F: ((float *)p)[i] = (float)creal(x); break;
    case CUDA_R_64F: ((double *)p)[i] = creal(x); break;
    case CUDA_C_32F: ((float *)p)[2 * i] = (float)creal(x), ((float *)p)[2 * i + 1] = (float)cimag(x); break;
    default: ((double *)p)[2 * i] = creal(x), ((double *)p)[2 * i + 1] = cimag(x);
    }
}
static int64_t index_at(const struct cudssMatrix *a, const void *p, int64_t i) {
    return a->index == CUDA_R_64I ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}
static size_t bytes_of_factors(int64_t n) { return (size_t)(n * n) * sizeof(number) + (size_t)n * sizeof(int64_t); }

/* ---- What the device does. */

static void factor(void *argument) {
    const noted *const c = argument;
    const int64_t n = c->a.rows;
    const int positive = c->a.kind == CUDSS_MTYPE_SPD || c->a.kind == CUDSS_MTYPE_HPD;
    for (int64_t m = 0; m < c->batch; m++) {
        number *const f = (number *)((char *)c->factors + (size_t)m * bytes_of_factors(n));
        int64_t *const pivot = (int64_t *)(f + n * n);
        memset(f, 0, (size_t)(n * n) * sizeof *f);
        for (int64_t i = 0; i < n; i++)
            for (int64_t e = index_at(&c->a, c->a.offsets, i); e < index_at(&c->a, c->a.offsets, i + 1); e++) {
                const int64_t j = index_at(&c->a, c->a.indices, e);
                if (j < 0 || j >= n) fake_raise(ERROR_ILLEGAL_ADDRESS);
                if ((c->a.view == CUDSS_MVIEW_LOWER && j > i) || (c->a.view == CUDSS_MVIEW_UPPER && j < i)) continue;
                const number v = get(c->a.type, c->a.values, m * c->a.nnz + e);
                f[i * n + j] = v;
                if (c->a.view == CUDSS_MVIEW_FULL || i == j) continue;
                const int conjugate = c->a.kind == CUDSS_MTYPE_HERMITIAN || c->a.kind == CUDSS_MTYPE_HPD;
                f[j * n + i] = conjugate ? conj(v) : v;
            }
        for (int64_t k = 0; k < n; k++) {
            int64_t best = k;
            for (int64_t i = k + 1; i < n && !positive; i++)
                if (cabs(f[i * n + k]) > cabs(f[best * n + k])) best = i;
            pivot[k] = best;
            for (int64_t j = 0; j < n && best != k; j++) {
                const number other = f[best * n + j];
                f[best * n + j] = f[k * n + j];
                f[k * n + j] = other;
            }
            if ((positive ? creal(f[k * n + k]) <= 0 : f[k * n + k] == 0) && !*c->info) *c->info = (int)k + 1;
            for (int64_t i = k + 1; i < n; i++) {
                f[i * n + k] /= f[k * n + k];
                for (int64_t j = k + 1; j < n; j++) f[i * n + j] -= f[i * n + k] * f[k * n + j];
            }
        }
    }
}

static void solve(void *argument) {
    const noted *const c = argument;
    const int64_t n = c->a.rows, columns = c->b.columns;
    number *const y = calloc((size_t)n, sizeof *y);
    if (!y) fake_raise(ERROR_LAUNCH_FAILED);
    for (int64_t m = 0; m < c->batch * columns; m++) {
        const number *const f = (const number *)((char *)c->factors + (size_t)(m / columns) * bytes_of_factors(n));
        const int64_t *const pivot = (const int64_t *)(f + n * n);
        for (int64_t i = 0; i < n; i++) y[i] = get(c->b.type, c->b.values, m * n + i);
        for (int64_t k = 0; k < n; k++) {
            const number other = y[pivot[k]];
            y[pivot[k]] = y[k];
            y[k] = other;
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++) y[i] -= f[i * n + j] * y[j];
        for (int64_t i = n; i-- > 0;) {
            for (int64_t j = i + 1; j < n; j++) y[i] -= f[i * n + j] * y[j];
            y[i] /= f[i * n + i];
        }
        for (int64_t i = 0; i < n; i++) put(c->x.type, (void *)(uintptr_t)c->x.values, m * n + i, y[i]);
    }
    free(y);
}

/* ---- The log. */

static cudssLoggerCallback_t listener;
static int level, printed = 1;

cudssStatus_t cudssLoggerSetCallback(cudssLoggerCallback_t callback) {
    listener = callback;
    return 0;
}
cudssStatus_t cudssLoggerSetLevel(int to) {
    level = to;
    return 0;
}
cudssStatus_t cudssLoggerOpenFile(const char *logFile) {
    printed = !logFile;
    return logFile ? 0 : CUDSS_STATUS_INVALID_VALUE;
}
static cudssStatus_t complain(cudssStatus_t status, const char *function, const char *text) {
    if (level >= 1 && listener) listener(1, function, text);
    if (level >= 1 && printed) printf("[CUDSS][Error][%s] %s\n", function, text);
    return status;
}

/* ---- Calls. */

enum { OWN = 512 };

cudssStatus_t cudssGetProperty(libraryPropertyType propertyType, int *value) {
    static const int parts[] = {1, 0, 0};
    if (propertyType < 0 || propertyType > 2) return CUDSS_STATUS_INVALID_VALUE;
    *value = parts[propertyType];
    return 0;
}
cudssStatus_t cudssCreate(cudssHandle_t *handle) {
    const CUresult refusal = fake_refusal(__func__);
    *handle = calloc(1, sizeof **handle);
    fake_direct_objects += *handle != NULL;
    if (refusal) return complain((cudssStatus_t)refusal, __func__, "cublasCreate failed");
    return *handle ? 0 : CUDSS_STATUS_ALLOC_FAILED;
}
CUresult cuCtxGetCurrent(CUcontext *context);
static int entered(void) {
    CUcontext found = NULL;
    return cuCtxGetCurrent(&found) == CUDA_SUCCESS && found;
}
cudssStatus_t cudssDestroy(cudssHandle_t handle) {
    if (!entered()) return complain(CUDSS_STATUS_EXECUTION_FAILED, __func__, "the thread has no context");
    if (handle->own) handle->memory.device_free(handle->memory.ctx, handle->own, OWN, handle->stream);
    fake_direct_objects--;
    free(handle);
    return 0;
}
cudssStatus_t cudssSetStream(cudssHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return 0;
}
cudssStatus_t cudssSetDeviceMemHandler(cudssHandle_t handle, const cudssDeviceMemHandler_t *handler) {
    handle->memory = *handler;
    if (handler->device_alloc(handler->ctx, &handle->own, OWN, handle->stream))
        return complain(CUDSS_STATUS_ALLOC_FAILED, __func__, "Failed at the memory allocation");
    return 0;
}
cudssStatus_t cudssConfigCreate(cudssConfig_t *config) {
    *config = calloc(1, sizeof **config);
    if (!*config) return CUDSS_STATUS_ALLOC_FAILED;
    (*config)->batch = 1;
    fake_direct_objects++;
    return 0;
}
cudssStatus_t cudssConfigDestroy(cudssConfig_t config) {
    fake_direct_objects--;
    free(config);
    return 0;
}
cudssStatus_t cudssConfigSet(cudssConfig_t config, cudssConfigParam_t param, const void *value, size_t sizeInBytes) {
    int *const to = param == CUDSS_CONFIG_UBATCH_SIZE ? &config->batch
                    : param == CUDSS_CONFIG_DETERMINISTIC_MODE ? &config->deterministic : NULL;
    if (!to || sizeInBytes != sizeof *to) return CUDSS_STATUS_INVALID_VALUE;
    memcpy(to, value, sizeof *to);
    return 0;
}
cudssStatus_t cudssDataCreate(const cudssHandle_t handle, cudssData_t *data) {
    if (!handle->memory.device_alloc) return CUDSS_STATUS_NOT_INITIALIZED;
    *data = calloc(1, sizeof **data);
    if (!*data) return CUDSS_STATUS_ALLOC_FAILED;
    (*data)->info = calloc(1, sizeof *(*data)->info);
    fake_direct_objects++;
    return (*data)->info ? 0 : CUDSS_STATUS_ALLOC_FAILED;
}
cudssStatus_t cudssDataDestroy(cudssHandle_t handle, cudssData_t data) {
    if (!entered()) return complain(CUDSS_STATUS_EXECUTION_FAILED, __func__, "the thread has no context");
    if (handle->stream) cuStreamSynchronize(handle->stream);
    void *const parts[] = {data->analysis, data->factors};
    for (int i = 0; i < 2; i++)
        if (parts[i]) handle->memory.device_free(handle->memory.ctx, parts[i], data->bytes[i], handle->stream);
    free((void *)data->info);
    free(data);
    fake_direct_objects--;
    return 0;
}
cudssStatus_t cudssDataSet(const cudssHandle_t handle, cudssData_t data, cudssDataParam_t param, const void *value,
                           size_t sizeInBytes) {
    if (param != CUDSS_DATA_INFO || sizeInBytes != sizeof(int)) return CUDSS_STATUS_INVALID_VALUE;
    cuStreamSynchronize(handle->stream);
    *data->info = *(const int *)value;
    return 0;
}
cudssStatus_t cudssDataGet(const cudssHandle_t handle, const cudssData_t data, cudssDataParam_t param, void *value,
                           size_t sizeInBytes, size_t *sizeWritten) {
    if (param == CUDSS_DATA_INFO) {
        if (sizeInBytes != sizeof(int)) return CUDSS_STATUS_INVALID_VALUE;
        cuStreamSynchronize(handle->stream);
        *(int *)value = *data->info;
        *sizeWritten = sizeof(int);
        return 0;
    }
    if (param != CUDSS_DATA_MEMORY_ESTIMATES || sizeInBytes != 16 * sizeof(int64_t) || !data->phase)
        return CUDSS_STATUS_INVALID_VALUE;
    int64_t *const words = value;
    memset(words, 0, sizeInBytes);
    words[0] = (int64_t)(data->bytes[0] + bytes_of_factors(data->n) * (size_t)data->batch);
    words[1] = words[0] + data->n * data->columns * data->batch * (int64_t)sizeof(number);
    *sizeWritten = sizeInBytes;
    return 0;
}

cudssStatus_t cudssMatrixCreateCsr(cudssMatrix_t *matrix, int64_t nrows, int64_t ncols, int64_t nnz, const void *rowStart,
                                   const void *rowEnd, const void *colIndices, const void *values, cudaDataType_t offsetType,
                                   cudaDataType_t indexType, cudaDataType_t valueType, cudssMatrixType_t mtype,
                                   cudssMatrixViewType_t mview, cudssIndexBase_t indexBase) {
    if (!rowStart || rowEnd || !colIndices || !values || nrows != ncols || nrows < 1 || offsetType != indexType || indexBase)
        return CUDSS_STATUS_INVALID_VALUE;
    *matrix = malloc(sizeof **matrix);
    if (!*matrix) return CUDSS_STATUS_ALLOC_FAILED;
    **matrix = (struct cudssMatrix){1, nrows, ncols, nnz, rowStart, colIndices, values, indexType, valueType, mtype, mview};
    fake_direct_objects++;
    return 0;
}
cudssStatus_t cudssMatrixCreateDn(cudssMatrix_t *matrix, int64_t nrows, int64_t ncols, int64_t ld, const void *values,
                                  cudaDataType_t valueType, cudssLayout_t layout) {
    if (!values || nrows < 1 || ncols < 1 || ld != nrows || layout != CUDSS_LAYOUT_COL_MAJOR) return CUDSS_STATUS_INVALID_VALUE;
    *matrix = malloc(sizeof **matrix);
    if (!*matrix) return CUDSS_STATUS_ALLOC_FAILED;
    **matrix = (struct cudssMatrix){.rows = nrows, .columns = ncols, .values = values, .type = valueType};
    fake_direct_objects++;
    return 0;
}
cudssStatus_t cudssMatrixDestroy(cudssMatrix_t matrix) {
    fake_direct_objects--;
    free(matrix);
    return 0;
}

static const size_t MUCH = (size_t)1 << 40; /* that an analysis would like, and does without */

static int take(cudssHandle_t handle, size_t size, void **made) {
    return handle->memory.device_alloc(handle->memory.ctx, made, size, handle->stream);
}

cudssStatus_t cudssExecute(cudssHandle_t handle, int phase, const cudssConfig_t config, cudssData_t data,
                           const cudssMatrix_t inputMatrix, cudssMatrix_t solution, const cudssMatrix_t rhs) {
    const struct cudssMatrix *const a = inputMatrix;
    if (!handle->stream || a->rows != rhs->rows || solution->columns != rhs->columns) return CUDSS_STATUS_INVALID_VALUE;
    if (config->deterministic && rhs->columns > 1)
        return complain(CUDSS_STATUS_NOT_SUPPORTED, __func__, "the deterministic mode is not compatible with nrhs > 1");
    if (config->deterministic && config->batch > 1)
        return complain(CUDSS_STATUS_NOT_SUPPORTED, __func__, "the deterministic mode is not supported for uniform batches");
    if (phase == CUDSS_PHASE_ANALYSIS) {
        if (data->phase) return CUDSS_STATUS_INVALID_VALUE;
        void *much;
        if (take(handle, MUCH, &much) == 0) handle->memory.device_free(handle->memory.ctx, much, MUCH, handle->stream);
        void *nothing;
        if (take(handle, 0, &nothing)) return CUDSS_STATUS_ALLOC_FAILED;
        if (nothing) { /* only memory with bytes is on its list */
            complain(CUDSS_STATUS_ALLOC_FAILED, __func__, "The buffer to be deregistered was not registered");
            return complain(CUDSS_STATUS_ALLOC_FAILED, __func__, "resize analysis scratch failed");
        }
        data->bytes[0] = (size_t)a->nnz * 16;
        if (take(handle, data->bytes[0], &data->analysis)) return CUDSS_STATUS_ALLOC_FAILED;
        const CUresult refusal = fake_refusal(__func__);
        if (refusal) return complain((cudssStatus_t)refusal, __func__, "Device allocation observed prior CUDA error 36");
        cuStreamSynchronize(handle->stream); /* it orders on the host */
        data->n = a->rows, data->nnz = a->nnz, data->columns = rhs->columns, data->batch = config->batch;
        data->phase = phase;
        fake_direct_analyses++;
        return 0;
    }
    if (!data->phase || data->n != a->rows || data->nnz != a->nnz) return CUDSS_STATUS_INVALID_VALUE;
    noted c = {*a, *rhs, *solution, data->batch, data->factors, data->info};
    if (phase == CUDSS_PHASE_FACTORIZATION || phase == CUDSS_PHASE_REFACTORIZATION) {
        if (phase == CUDSS_PHASE_REFACTORIZATION && data->phase == CUDSS_PHASE_ANALYSIS) return CUDSS_STATUS_INVALID_VALUE;
        if (!data->factors) {
            data->bytes[1] = bytes_of_factors(data->n) * (size_t)data->batch;
            if (take(handle, data->bytes[1], &data->factors)) return CUDSS_STATUS_ALLOC_FAILED;
            c.factors = data->factors;
        }
        data->phase = phase;
        return fake_enqueue(handle->stream, factor, &c, sizeof c, 0) ? CUDSS_STATUS_EXECUTION_FAILED : 0;
    }
    if (phase != CUDSS_PHASE_SOLVE || data->phase == CUDSS_PHASE_ANALYSIS) return CUDSS_STATUS_INVALID_VALUE;
    void *work = NULL;
    const size_t size = (size_t)(data->n * rhs->columns * data->batch) * sizeof(number);
    if (take(handle, size, &work)) return CUDSS_STATUS_ALLOC_FAILED;
    handle->memory.device_free(handle->memory.ctx, work, size, handle->stream);
    return fake_enqueue(handle->stream, solve, &c, sizeof c, 0) ? CUDSS_STATUS_EXECUTION_FAILED : 0;
}
