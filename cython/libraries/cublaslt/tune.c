#include "libraries/cublaslt/tune.h"

#include "cuda/cuda_runs.h"
#include "libraries/cublaslt/private.h"

int atomr_matmul_config(const atomr_matmul *p, const cublasLtMatmulAlgo_t *algo, int values[5]) {
    static const int attributes[] = {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
                                     CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                     CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
    const atomr_cublaslt *lt = p->owner->lt;
    for (unsigned i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        int32_t value = 0; /* the cluster shape has 16 bits */
        size_t written = 0;
        cublasStatus_t r =
            lt->cublasLtMatmulAlgoConfigGetAttribute(algo, attributes[i], &value, sizeof value, &written);
        if (r != CUBLAS_STATUS_SUCCESS)
            r = lt->cublasLtMatmulAlgoConfigGetAttribute(algo, attributes[i], &value, sizeof(uint16_t), &written);
        values[i] = r == CUBLAS_STATUS_SUCCESS ? value : -1;
    }
    return 0;
}

static CUresult open_meter(const atomr_driver *d, meter *m) {
    CUresult r = CUDA_SUCCESS;
    if (!m->stream) r = d->cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING);
    if (!r && !m->start) r = d->cuEventCreate(&m->start, 0);
    if (!r && !m->end) r = d->cuEventCreate(&m->end, 0);
    return r;
}

int atomr_matmul_time(atomr_matmul *p, const cublasLtMatmulAlgo_t *algo, const atomr_timing *timing, float *microseconds,
                      atomr_failure *failure) {
    const atomr_matmul_spec *s = &p->spec;
    const atomr_driver *d = atomr_cuda_driver(p->owner->cuda);
    const double ones[2] = {1, 0};
    const float narrow[2] = {1, 0};
    const int32_t whole = 1;
    const uint16_t half = 0x3c00;
    static const char nothing[16];
    const void *one = ones;
    if (s->scale == CUDA_R_32F || s->scale == CUDA_C_32F) one = narrow;
    if (s->scale == CUDA_R_32I) one = &whole;
    if (s->scale == CUDA_R_16F) one = &half;
    const void *alpha = one, *beta = s->c >= 0 ? one : nothing;
    meter *const m = &p->owner->meter;
    CUresult r = open_meter(d, m);
    int code = ATOMR_OK;
    for (unsigned i = 0; i <= timing->launches && !r && code == ATOMR_OK; i++) { /* the first one warms up */
        void *pointers[ATOMR_MAX_ARGUMENTS];
        const uint64_t *at = timing->addresses + (size_t)(i % timing->sets) * (size_t)s->n_operands;
        for (int64_t j = 0; j < s->n_operands; j++) pointers[j] = (void *)(uintptr_t)at[j];
        if (s->alpha_at >= 0) {
            alpha = pointers[s->alpha_at];
            beta = s->beta_at >= 0 ? pointers[s->beta_at] : (const void *)(uintptr_t)s->zero;
        }
        if (i == 1) r = d->cuEventRecord(m->start, m->stream);
        if (!r)
            code = atomr_matmul_launch(p, algo, (void *)(uintptr_t)timing->workspace, timing->workspace_bytes, pointers,
                                       alpha, beta, m->stream, failure);
    }
    float milliseconds = 0;
    if (!r && code == ATOMR_OK) r = d->cuEventRecord(m->end, m->stream);
    if (!r) r = d->cuStreamSynchronize(m->stream); /* also after a failure: nothing of it may go on */
    if (!r && code == ATOMR_OK) r = d->cuEventElapsedTime(&milliseconds, m->start, m->end);
    if (r) return atomr_cuda_fail(p->owner->cuda, r, "measuring a matmul", failure);
    *microseconds = milliseconds * 1000 / (float)timing->launches;
    return code;
}
