#include "libraries/cusparselt/plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_runs.h"
#include "runtime/failure.h"

const atomr_field atomr_structured_fields[] = {
    ATOMR_STRUCTURED_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_structured_constants[] = {
    ATOMR_CUSPARSELT_CONSTANTS(ATOMR_CONSTANT) ATOMR_STRUCTURED_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

enum { ALIGNMENT = 16 };

typedef struct {
    const atomr_cusparselt_table *t;
    cusparseLtHandle_t handle;
} owner;

struct atomr_structured {
    owner *owner;
    atomr_cuda *cuda;
    atomr_structured_spec spec;
    uint64_t workspace;
    int configurations;
    /* The library's objects, each if it was made. */
    int has_a, has_b, has_d, has_selection, has_plan;
    cusparseLtMatDescriptor_t a, b, d;
    cusparseLtMatmulDescriptor_t product;
    cusparseLtMatmulAlgSelection_t selection;
    cusparseLtMatmulPlan_t plan;
    pthread_mutex_t lock; /* of the plan and the address of its bias */
    const void *bias;
};

static const char *name_of(cusparseStatus_t status) {
    static const char prefix[] = "CUSPARSE_STATUS_";
    for (const atomr_constant *c = atomr_structured_constants; c->name; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

static int fail(cusparseStatus_t status, const char *what, atomr_failure *failure) {
    if (status == CUSPARSE_STATUS_ALLOC_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "%s: no memory", what);
    if (status == CUSPARSE_STATUS_NOT_SUPPORTED || status == CUSPARSE_STATUS_ARCH_MISMATCH ||
        status == CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED)
        return atomr_unsupported(failure, "sparse", "cusparselt", "cuSPARSELt does not compute this: %s: %s", what,
                                 name_of(status));
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cusparselt", status, name_of(status), "%s", what);
}

/* ---- The handle of a device. */

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cusparselt_table *const t = atomr_cusparselt_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    owner *const made = aligned_alloc(ALIGNMENT, (sizeof *made + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!made) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuSPARSELt handle");
    memset(made, 0, sizeof *made);
    made->t = t;
    const cusparseStatus_t status = t->cusparseLtInit(&made->handle);
    if (status != CUSPARSE_STATUS_SUCCESS) {
        free(made);
        return fail(status, "cusparseLtInit", failure);
    }
    *handle = made;
    return ATOMR_OK;
}

static void destroy(void *handle) {
    owner *const o = handle;
    o->t->cusparseLtDestroy(&o->handle);
    free(o);
}

static const atomr_handle_kind of_device = {"cusparselt", create, NULL, destroy};

/* ---- Making plans. */

static int malformed(const atomr_structured_spec *s) {
    const int64_t needed[] = {s->a, s->b, s->routine == ATOMR_STRUCTURED_MATMUL ? s->d : 0};
    const int64_t others[] = {s->bias, s->alpha_at, s->beta_at};
    int good = s->routine >= ATOMR_STRUCTURED_MATMUL && s->routine <= ATOMR_STRUCTURED_COMPRESS;
    good = good && s->m >= 1 && s->k >= 1 && s->compressed_bytes >= 1 && s->scratch >= 0 && s->scratch % 256 == 0;
    good = good && (s->routine == ATOMR_STRUCTURED_COMPRESS ? s->step_a >= s->k : s->n >= 1);
    for (int i = 0; i < 3; i++) good = good && needed[i] >= 0 && needed[i] < s->n_operands;
    for (int i = 0; i < 3; i++) good = good && others[i] >= -1 && others[i] < s->n_operands;
    good = good && s->alpha >= -1 && s->alpha < s->n_scalars && s->beta >= -1 && s->beta < s->n_scalars;
    good = good && (s->bias < 0 || s->nowhere > 0);
    return !good || s->workspace_bytes < 0 || s->configuration < -1 || s->configuration > INT32_MAX;
}

/* Make the library's plan for the descriptor as it is. */
static cusparseStatus_t plan_anew(atomr_structured *p) {
    const atomr_cusparselt_table *const t = p->owner->t;
    if (p->has_plan) t->cusparseLtMatmulPlanDestroy(&p->plan);
    memset(&p->plan, 0, sizeof p->plan);
    const cusparseStatus_t status =
        t->cusparseLtMatmulPlanInit(&p->owner->handle, &p->plan, &p->product, &p->selection);
    p->has_plan = status == CUSPARSE_STATUS_SUCCESS;
    return status;
}

static cusparseStatus_t set(const atomr_structured *p, cusparseLtMatmulDescAttribute_t attribute, const void *data,
                            size_t size) {
    return p->owner->t->cusparseLtMatmulDescSetAttribute(&p->owner->handle, (cusparseLtMatmulDescriptor_t *)&p->product,
                                                         attribute, data, size);
}

/* Everything of a matmul behind its sparse matrix.  *what: the call that failed. */
static cusparseStatus_t describe_product(atomr_structured *p, const char **what) {
    const atomr_cusparselt_table *const t = p->owner->t;
    const atomr_structured_spec *const s = &p->spec;
    const cusparseLtHandle_t *const h = &p->owner->handle;
    const int turned = s->turned_b != 0, yes = 1;
    *what = "cusparseLtDenseDescriptorInit of B";
    cusparseStatus_t status =
        t->cusparseLtDenseDescriptorInit(h, &p->b, turned ? s->n : s->k, turned ? s->k : s->n, s->step_b, ALIGNMENT,
                                         (cudaDataType)s->type, CUSPARSE_ORDER_ROW);
    if (status) return status;
    p->has_b = 1;
    *what = "cusparseLtDenseDescriptorInit of D";
    status = t->cusparseLtDenseDescriptorInit(h, &p->d, s->m, s->n, s->step_d, ALIGNMENT, (cudaDataType)s->type_d,
                                              (cusparseOrder_t)s->order_d);
    if (status) return status;
    p->has_d = 1;
    *what = "cusparseLtMatmulDescriptorInit";
    status = t->cusparseLtMatmulDescriptorInit(h, &p->product, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                               turned ? CUSPARSE_OPERATION_TRANSPOSE : CUSPARSE_OPERATION_NON_TRANSPOSE,
                                               &p->a, &p->b, &p->d, &p->d, (cusparseComputeType)s->compute);
    *what = "cusparseLtMatmulDescSetAttribute";
    if (!status && s->relu) status = set(p, CUSPARSELT_MATMUL_ACTIVATION_RELU, &yes, sizeof yes);
    if (!status && s->alpha_at >= 0) status = set(p, CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING, &yes, sizeof yes);
    if (!status && s->beta_at >= 0) status = set(p, CUSPARSELT_MATMUL_BETA_VECTOR_SCALING, &yes, sizeof yes);
    if (!status && s->bias >= 0) {
        p->bias = (const void *)(uintptr_t)s->nowhere; /* the library looks whose memory it is */
        status = set(p, CUSPARSELT_MATMUL_BIAS_POINTER, &p->bias, sizeof p->bias);
    }
    if (status) return status;
    *what = "cusparseLtMatmulAlgSelectionInit";
    status = t->cusparseLtMatmulAlgSelectionInit(h, &p->selection, &p->product, CUSPARSELT_MATMUL_ALG_DEFAULT);
    if (status) return status;
    p->has_selection = 1;
    *what = "cusparseLtMatmulAlgGetAttribute";
    status = t->cusparseLtMatmulAlgGetAttribute(h, &p->selection, CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID,
                                                &p->configurations, sizeof p->configurations);
    const int wanted = (int)s->configuration;
    if (!status && wanted >= 0)
        status = t->cusparseLtMatmulAlgSetAttribute(h, &p->selection, CUSPARSELT_MATMUL_ALG_CONFIG_ID, &wanted,
                                                    sizeof wanted);
    if (status) return status;
    *what = "cusparseLtMatmulPlanInit";
    status = plan_anew(p);
    if (status) return status;
    *what = "cusparseLtMatmulGetWorkspace";
    size_t size = 0;
    status = t->cusparseLtMatmulGetWorkspace(h, &p->plan, &size);
    p->workspace = size;
    return status;
}

void atomr_structured_delete(atomr_structured *p) {
    if (!p) return;
    const atomr_cusparselt_table *const t = p->owner->t;
    if (p->has_plan) t->cusparseLtMatmulPlanDestroy(&p->plan);
    if (p->has_selection) t->cusparseLtMatmulAlgSelectionDestroy(&p->selection);
    if (p->has_d) t->cusparseLtMatDescriptorDestroy(&p->d);
    if (p->has_b) t->cusparseLtMatDescriptorDestroy(&p->b);
    if (p->has_a) t->cusparseLtMatDescriptorDestroy(&p->a);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int atomr_structured_new(atomr_cuda *cuda, const atomr_structured_spec *s, atomr_structured **made,
                         atomr_failure *failure) {
    if (malformed(s))
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a call of cuSPARSELt");
    void *handle = NULL;
    const int code = atomr_device_handle(cuda, &of_device, &handle, failure);
    if (code != ATOMR_OK) return code;
    atomr_structured *const p = aligned_alloc(ALIGNMENT, (sizeof *p + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!p) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a plan of cuSPARSELt");
    memset(p, 0, sizeof *p);
    p->owner = handle;
    p->cuda = cuda;
    p->spec = *s;
    pthread_mutex_init(&p->lock, NULL);
    const atomr_cusparselt_table *const t = p->owner->t;
    const char *what = "cusparseLtStructuredDescriptorInit";
    const int64_t step = s->routine == ATOMR_STRUCTURED_COMPRESS ? s->step_a : s->k;
    size_t size = 0, buffer = 0;
    cusparseStatus_t status =
        t->cusparseLtStructuredDescriptorInit(&p->owner->handle, &p->a, s->m, s->k, step, ALIGNMENT,
                                              (cudaDataType)s->type, CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT);
    p->has_a = status == CUSPARSE_STATUS_SUCCESS;
    if (!status) {
        what = "cusparseLtSpMMACompressedSize2";
        status = t->cusparseLtSpMMACompressedSize2(&p->owner->handle, &p->a, &size, &buffer);
        p->workspace = buffer;
    }
    if (!status && s->routine == ATOMR_STRUCTURED_MATMUL) status = describe_product(p, &what);
    int result = status ? fail(status, what, failure) : ATOMR_OK;
    if (!status && size > (uint64_t)s->compressed_bytes)
        result = atomr_unsupported(failure, "sparse", "cusparselt",
                                   "this cuSPARSELt compresses a matrix of %lld x %lld to %llu bytes, and %lld are known "
                                   "to do; another version of cuSPARSELt may",
                                   (long long)s->m, (long long)s->k, (unsigned long long)size,
                                   (long long)s->compressed_bytes);
    else if (!status && p->workspace > (uint64_t)s->workspace_bytes)
        result = atomr_unsupported(failure, "sparse", "workspace_limit",
                                   "cuSPARSELt needs %llu bytes of workspace, and may have %lld; raise "
                                   "System(workspace_limit=)",
                                   (unsigned long long)p->workspace, (long long)s->workspace_bytes);
    if (result != ATOMR_OK) {
        atomr_structured_delete(p);
        return result;
    }
    *made = p;
    return ATOMR_OK;
}

uint64_t atomr_structured_workspace(const atomr_structured *p) {
    return p->workspace ? (uint64_t)p->spec.scratch + p->workspace : 0;
}

int64_t atomr_structured_configurations(const atomr_structured *p) { return p->configurations; }

/* ---- Running them. */

static float number(const atomr_call *call, int64_t index, float otherwise) {
    double value = otherwise;
    if (index >= 0) memcpy(&value, &call->scalars[index], sizeof value);
    return (float)value;
}

/* With the lock held. */
static int launch(atomr_structured *p, void *const *at, const float *alpha, const float *beta, void *workspace,
                  CUstream stream, atomr_failure *failure) {
    const atomr_cusparselt_table *const t = p->owner->t;
    const atomr_structured_spec *const s = &p->spec;
    const cusparseLtHandle_t *const h = &p->owner->handle;
    if (s->routine == ATOMR_STRUCTURED_COMPRESS) {
        const cusparseStatus_t status = t->cusparseLtSpMMACompress2(
            h, &p->a, 1, CUSPARSE_OPERATION_NON_TRANSPOSE, at[s->b], at[s->a], workspace, stream);
        return status ? fail(status, "cusparseLtSpMMACompress2", failure) : ATOMR_OK;
    }
    if (s->bias >= 0 && (at[s->bias] != p->bias || !p->has_plan)) {
        const void *const bias = at[s->bias];
        cusparseStatus_t status = set(p, CUSPARSELT_MATMUL_BIAS_POINTER, &bias, sizeof bias);
        if (!status) status = plan_anew(p);
        if (status) {
            p->bias = NULL;
            return fail(status, "another bias for a plan", failure);
        }
        p->bias = bias;
    }
    cudaStream_t streams[] = {stream};
    const cusparseStatus_t status = t->cusparseLtMatmul(
        h, &p->plan, s->alpha_at >= 0 ? at[s->alpha_at] : (const void *)alpha, at[s->a], at[s->b],
        s->beta_at >= 0 ? at[s->beta_at] : (const void *)beta, at[s->d], at[s->d], workspace, streams, 1);
    return status ? fail(status, "cusparseLtMatmul", failure) : ATOMR_OK;
}

int atomr_structured_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_structured *const p = context;
    const atomr_structured_spec *const s = &p->spec;
    const int64_t operands[] = {s->a, s->b, s->d, s->bias, s->alpha_at, s->beta_at};
    const int last = s->routine == ATOMR_STRUCTURED_COMPRESS ? 2 : 6;
    for (int i = 0; i < last; i++) {
        const uint64_t at = operands[i] < 0 ? 0 : (uint64_t)(uintptr_t)call->pointers[operands[i]];
        if (at % ALIGNMENT)
            return atomr_unsupported(failure, "sparse", "alignment",
                                     "an operand starts at an address aligned to %llu bytes only; allowed: views that "
                                     "start at multiples of 16 bytes",
                                     (unsigned long long)(at & (~at + 1)));
    }
    if (atomr_structured_workspace(p) > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the workspace of the lane is too small for this call");
    const CUstream stream = atomr_cuda_stream(p->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(p->cuda), "", "the lane has no stream");
    const float alpha = number(call, s->alpha, 1), beta = number(call, s->beta, 0);
    void *const workspace = p->workspace ? (char *)call->workspace + s->scratch : NULL;
    pthread_mutex_lock(&p->lock);
    const int code = launch(p, call->pointers, &alpha, &beta, workspace, stream, failure);
    pthread_mutex_unlock(&p->lock);
    return code;
}

int atomr_structured_time(atomr_structured *p, const atomr_structured_timing *timing, float *microseconds,
                          atomr_failure *failure) {
    const atomr_driver *const d = atomr_cuda_driver(p->cuda);
    const float alpha = 1, beta = 0;
    CUstream stream = NULL;
    CUevent start = NULL, end = NULL;
    CUresult r = d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!r) r = d->cuEventCreate(&start, 0);
    if (!r) r = d->cuEventCreate(&end, 0);
    int code = ATOMR_OK;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i <= timing->launches && !r && code == ATOMR_OK; i++) { /* the first one warms up */
        void *pointers[ATOMR_MAX_ARGUMENTS];
        const uint64_t *at = timing->addresses + (size_t)(i % timing->sets) * (size_t)p->spec.n_operands;
        for (int64_t j = 0; j < p->spec.n_operands; j++) pointers[j] = (void *)(uintptr_t)at[j];
        if (p->spec.bias >= 0) pointers[p->spec.bias] = (void *)(uintptr_t)timing->addresses[p->spec.bias];
        if (i == 1) r = d->cuEventRecord(start, stream);
        if (!r) code = launch(p, pointers, &alpha, &beta, (void *)(uintptr_t)timing->workspace, stream, failure);
    }
    pthread_mutex_unlock(&p->lock);
    float milliseconds = 0;
    if (!r && code == ATOMR_OK) r = d->cuEventRecord(end, stream);
    if (!r && stream) r = d->cuStreamSynchronize(stream); /* also after a failure: nothing of it may go on */
    if (!r && code == ATOMR_OK) r = d->cuEventElapsedTime(&milliseconds, start, end);
    if (end) d->cuEventDestroy_v2(end);
    if (start) d->cuEventDestroy_v2(start);
    if (stream) d->cuStreamDestroy_v2(stream);
    if (r) return atomr_cuda_fail(p->cuda, r, "measuring a product of a structured matrix", failure);
    *microseconds = milliseconds * 1000 / (float)timing->launches;
    return code;
}
