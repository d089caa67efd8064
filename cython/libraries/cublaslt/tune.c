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

/* What the launches of a measurement have in common. */
typedef struct {
    atomr_matmul *p;
    const cublasLtMatmulAlgo_t *algo;
    const atomr_timing *timing;
    const void *alpha, *beta;
} measured;

/* Enqueue one launch, with the operands of the next set. */
static int launch_one(const measured *x, unsigned i, CUstream stream, atomr_failure *failure) {
    const atomr_matmul_spec *s = &x->p->spec;
    const atomr_timing *t = x->timing;
    const void *alpha = x->alpha, *beta = x->beta;
    void *pointers[ATOMR_MAX_ARGUMENTS];
    const uint64_t *at = t->addresses + (size_t)(i % t->sets) * (size_t)s->n_operands;
    for (int64_t j = 0; j < s->n_operands; j++) pointers[j] = (void *)(uintptr_t)at[j];
    if (s->alpha_at >= 0) {
        alpha = pointers[s->alpha_at];
        beta = s->beta_at >= 0 ? pointers[s->beta_at] : (const void *)(uintptr_t)s->zero;
    }
    return atomr_matmul_launch(x->p, x->algo, (void *)(uintptr_t)t->workspace, t->workspace_bytes, pointers, alpha, beta,
                               stream, failure);
}

/* All launches as one graph, so that the host does not take part in what is measured; NULL: they cannot be captured. */
static CUgraphExec graph_of(const measured *x) {
    const atomr_driver *d = atomr_cuda_driver(x->p->owner->cuda);
    const CUstream stream = x->p->owner->meter.stream;
    atomr_failure ignored;
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    int code = ATOMR_OK;
    if (d->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) return NULL;
    for (unsigned i = 0; i < x->timing->launches && code == ATOMR_OK; i++) code = launch_one(x, i, stream, &ignored);
    if (d->cuStreamEndCapture(stream, &graph) || !graph) return NULL;
    if (code != ATOMR_OK || d->cuGraphInstantiateWithFlags(&made, graph, 0)) made = NULL;
    d->cuGraphDestroy(graph);
    return made;
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
    const measured x = {p, algo, timing, one, s->c >= 0 ? one : nothing};
    meter *const m = &p->owner->meter;
    CUresult r = open_meter(d, m);
    int code = r ? ATOMR_OK : launch_one(&x, 0, m->stream, failure); /* loads what the library has of it */
    CUgraphExec graph = NULL;
    if (!r && code == ATOMR_OK && timing->launches > 1) graph = graph_of(&x);
    if (!r && code == ATOMR_OK && graph) r = d->cuGraphLaunch(graph, m->stream); /* the first launch of it is slower */
    if (!r && code == ATOMR_OK) r = d->cuEventRecord(m->start, m->stream);
    if (!r && code == ATOMR_OK && graph) r = d->cuGraphLaunch(graph, m->stream);
    for (unsigned i = 0; !graph && i < timing->launches && !r && code == ATOMR_OK; i++)
        code = launch_one(&x, i, m->stream, failure);
    float milliseconds = 0;
    if (!r && code == ATOMR_OK) r = d->cuEventRecord(m->end, m->stream);
    if (!r) r = d->cuStreamSynchronize(m->stream); /* also after a failure: nothing of it may go on */
    if (!r && code == ATOMR_OK) r = d->cuEventElapsedTime(&milliseconds, m->start, m->end);
    if (graph) d->cuGraphExecDestroy(graph);
    if (r) return atomr_cuda_fail(p->owner->cuda, r, "measuring a matmul", failure);
    *microseconds = milliseconds * 1000 / (float)timing->launches;
    return code;
}
