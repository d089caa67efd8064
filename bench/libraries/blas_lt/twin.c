/* cublasLtMatmul in a loop: N x N x N bfloat16 with a bias, row-major as NumPy has it, for N = 32 and 512; and the same
 * call captured once, its graph launched in a loop.
 *
 * As good as C can: descriptors and bias pointer are set once, the algorithm is chosen once, by the same question that
 * the library's plans ask (cython/libraries/cublaslt/plan.c: operands aligned to 256 bytes, 32 MiB of workspace), and the workspace
 * is there.  D = X W + bias is, column by column, D' = W' X' + bias.
 */
#include "libraries/cublaslt/table.h"
#include "loops.h"

#include <stdio.h>

enum { ALIGNED = 256, WORKSPACE = 32 << 20, CANDIDATES = 8, ELEMENT = 2 };

static const atomr_cublaslt *lt;
static cublasLtHandle_t handle;
static CUdeviceptr workspaces[THREADS];

typedef struct {
    const int extent;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t square;
    cublasLtMatmulHeuristicResult_t best;
    CUdeviceptr x, w, bias, outputs[THREADS];
    CUgraphExec graph; /* of one call, in the first stream */
} product;
static product small = {.extent = 32}, large = {.extent = 512};

static void lt_ok(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS) die(what, status);
}

static void set(const product *p, int attribute, const void *value, size_t size) {
    lt_ok(lt->cublasLtMatmulDescSetAttribute(p->description, attribute, value, size), "cublasLtMatmulDescSetAttribute");
}

static void choose(product *p) {
    static const int alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t limit = WORKSPACE;
    const uint32_t aligned = ALIGNED;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0;
    lt_ok(lt->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    lt_ok(lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                                   sizeof limit), "cublasLtMatmulPreferenceSetAttribute");
    for (unsigned i = 0; i < sizeof alignments / sizeof *alignments; i++)
        lt_ok(lt->cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &aligned, sizeof aligned),
              "cublasLtMatmulPreferenceSetAttribute");
    lt_ok(lt->cublasLtMatmulAlgoGetHeuristic(handle, p->description, p->square, p->square, p->square, p->square,
                                             preference, CANDIDATES, found, &n), "cublasLtMatmulAlgoGetHeuristic");
    lt->cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= WORKSPACE) {
            p->best = found[i];
            return;
        }
    die("cublasLtMatmulAlgoGetHeuristic: no algorithm", n);
}

static void enqueue(const product *p, int stream) {
    const float one = 1.0F, zero = 0.0F;
    void *const d = (void *)(uintptr_t)p->outputs[stream];
    lt_ok(lt->cublasLtMatmul(handle, p->description, &one, (void *)(uintptr_t)p->w, p->square, (void *)(uintptr_t)p->x,
                             p->square, &zero, d, p->square, d, p->square, &p->best.algo,
                             (void *)(uintptr_t)workspaces[stream], p->best.workspaceSize, streams[stream]),
          "cublasLtMatmul");
}

static void capture(product *p) {
    CUgraph graph;
    enqueue(p, 0);
    synchronize();
    ok(driver->cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    enqueue(p, 0);
    ok(driver->cuStreamEndCapture(streams[0], &graph), "cuStreamEndCapture");
    ok(driver->cuGraphInstantiateWithFlags(&p->graph, graph, 0), "cuGraphInstantiate");
    ok(driver->cuGraphDestroy(graph), "cuGraphDestroy");
}

static const char *open_library(void) {
    static char why[512];
    if (lt) return NULL;
    lt = atomr_cublaslt_load(NULL, why, sizeof why);
    if (!lt) {
        for (char *c = why; *c; c++)
            if (*c == '"' || *c == '\\') *c = '\''; /* it goes into JSON */
        return why;
    }
    lt_ok(lt->cublasLtCreate(&handle), "cublasLtCreate");
    for (int i = 0; i < THREADS; i++) workspaces[i] = device_memory(WORKSPACE);
    return NULL;
}

static const char *prepare(product *p) {
    const char *why = open_library();
    if (why || p->graph) return why;
    const uint64_t bytes = (uint64_t)p->extent * (uint64_t)p->extent * ELEMENT, n = (uint64_t)p->extent;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    p->x = device_memory(bytes);
    p->w = device_memory(bytes);
    p->bias = device_memory(bytes);
    for (int i = 0; i < THREADS; i++) p->outputs[i] = device_memory(bytes);
    lt_ok(lt->cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    lt_ok(lt->cublasLtMatrixLayoutCreate(&p->square, CUDA_R_16BF, n, n, (int64_t)n), "cublasLtMatrixLayoutCreate");
    choose(p);
    capture(p);
    return NULL;
}

static void quarter(int thread, int n) {
    for (int i = thread; i < n; i += THREADS) enqueue(&small, thread);
    ok(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
}

static void four_threads(int n) { in_threads(quarter, n); }

/* The loops over one product: calls for the caller, until the last is done, with a synchronize each; and its graph. */
#define LOOPS(p)                                                                                                      \
    static const char *prepare_##p(void) { return prepare(&p); }                                                      \
    static void enqueue_##p(int n) {                                                                                  \
        for (int i = 0; i < n; i++) enqueue(&p, 0);                                                                   \
    }                                                                                                                 \
    static void sustained_##p(int n) {                                                                                \
        enqueue_##p(n);                                                                                               \
        ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");                                           \
    }                                                                                                                 \
    static void synchronized_##p(int n) {                                                                             \
        for (int i = 0; i < n; i++) sustained_##p(1);                                                                 \
    }                                                                                                                 \
    static void graph_sustained_##p(int n) {                                                                          \
        for (int i = 0; i < n; i++) ok(driver->cuGraphLaunch(p.graph, streams[0]), "cuGraphLaunch");                  \
        ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");                                           \
    }                                                                                                                 \
    static void graph_synchronized_##p(int n) {                                                                       \
        for (int i = 0; i < n; i++) graph_sustained_##p(1);                                                           \
    }
LOOPS(small)
LOOPS(large)

static const contender loops[] = {
    {"matmul", prepare_small, enqueue_small, synchronize},
    {"matmul-sustained", prepare_small, sustained_small, synchronize},
    {"matmul-synchronize", prepare_small, synchronized_small, synchronize},
    {"matmul-four-threads", prepare_small, four_threads, synchronize},
    {"matmul-graph-sustained", prepare_small, graph_sustained_small, synchronize},
    {"matmul-graph-synchronize", prepare_small, graph_synchronized_small, synchronize},
    {"matmul-512-sustained", prepare_large, sustained_large, synchronize},
    {"matmul-512-synchronize", prepare_large, synchronized_large, synchronize},
    {"matmul-512-graph-sustained", prepare_large, graph_sustained_large, synchronize},
    {"matmul-512-graph-synchronize", prepare_large, graph_synchronized_large, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
