/* cublasLtMatmul in a loop: N x N x N bfloat16 with a bias, row-major as NumPy has it, for N = 32 and 512; layers of M = 8
 * and 64 rows with weights as (14336, 4096) and no bias; and the same calls captured once, their graphs launched in a loop.
 *
 * As good as C can: descriptors and bias pointer are set once, the algorithm is chosen once, by the same question that
 * the library's plans ask (cython/libraries/cublaslt/plan.c: operands aligned to 256 bytes, 32 MiB of workspace), and the workspace
 * is there.  D = X W + bias is, column by column, D' = W' X' + bias.  "best" measures the algorithms that the library
 * lists for that question, and takes the fastest.
 */
#include "libraries/cublaslt/table.h"
#include "loops.h"

#include <stdio.h>

enum { ALIGNED = 256, WORKSPACE = 32 << 20, CANDIDATES = 8, ELEMENT = 2 };

static const atomr_cublaslt *lt;
static cublasLtHandle_t handle;
static CUdeviceptr workspaces[THREADS];

typedef struct {
    const int m, n, k;
    const int is_layer; /* w is (N, K), and there is no bias */
    const int races;    /* the algorithm is the fastest, not the first */
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t w_layout, x_layout, layout;
    cublasLtMatmulHeuristicResult_t best;
    CUdeviceptr x, w, bias, outputs[THREADS];
    CUgraphExec graph; /* of one call, in the first stream */
} product;
static product small = {.m = 32, .n = 32, .k = 32}, large = {.m = 512, .n = 512, .k = 512};
static product layer_8 = {.m = 8, .n = 14336, .k = 4096, .is_layer = 1};
static product layer_64 = {.m = 64, .n = 14336, .k = 4096, .is_layer = 1};
static product best_8 = {.m = 8, .n = 14336, .k = 4096, .is_layer = 1, .races = 1};
static product best_64 = {.m = 64, .n = 14336, .k = 4096, .is_layer = 1, .races = 1};

static void lt_ok(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS) die(what, status);
}

static void set(const product *p, int attribute, const void *value, size_t size) {
    lt_ok(lt->cublasLtMatmulDescSetAttribute(p->description, attribute, value, size), "cublasLtMatmulDescSetAttribute");
}

static void enqueue(const product *p, int stream) {
    const float one = 1.0F, zero = 0.0F;
    void *const d = (void *)(uintptr_t)p->outputs[stream];
    lt_ok(lt->cublasLtMatmul(handle, p->description, &one, (void *)(uintptr_t)p->w, p->w_layout,
                             (void *)(uintptr_t)p->x, p->x_layout, &zero, d, p->layout, d, p->layout, &p->best.algo,
                             (void *)(uintptr_t)workspaces[stream], p->best.workspaceSize, streams[stream]),
          "cublasLtMatmul");
}

/* Milliseconds of ROUND calls with the algorithm that is set: the least of three rounds. */
static float measure(const product *p) {
    enum { ROUND = 50, ROUNDS = 3 };
    CUevent begin, end;
    float least = 0;
    ok(driver->cuEventCreate(&begin, 0), "cuEventCreate");
    ok(driver->cuEventCreate(&end, 0), "cuEventCreate");
    for (int round = 0; round < ROUNDS; round++) {
        float taken = 0;
        enqueue(p, 0);
        ok(driver->cuEventRecord(begin, streams[0]), "cuEventRecord");
        for (int i = 0; i < ROUND; i++) enqueue(p, 0);
        ok(driver->cuEventRecord(end, streams[0]), "cuEventRecord");
        synchronize();
        ok(driver->cuEventElapsedTime(&taken, begin, end), "cuEventElapsedTime");
        if (!round || taken < least) least = taken;
    }
    return least;
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
    lt_ok(lt->cublasLtMatmulAlgoGetHeuristic(handle, p->description, p->w_layout, p->x_layout, p->layout,
                                             p->layout, preference, CANDIDATES, found, &n), "cublasLtMatmulAlgoGetHeuristic");
    lt->cublasLtMatmulPreferenceDestroy(preference);
    float least = 0;
    int which = -1;
    for (int i = 0; i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > WORKSPACE) continue;
        p->best = found[i];
        const float taken = p->races ? measure(p) : 0;
        if (which < 0 || taken < least) which = i, least = taken;
        if (!p->races) break;
    }
    if (which < 0) die("cublasLtMatmulAlgoGetHeuristic: no algorithm", n);
    p->best = found[which];
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

static CUdeviceptr matrix(int rows, int columns) {
    return device_memory((uint64_t)rows * (uint64_t)columns * ELEMENT);
}

static cublasLtMatrixLayout_t layout_of(int rows, int columns) {
    cublasLtMatrixLayout_t made;
    lt_ok(lt->cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, (uint64_t)rows, (uint64_t)columns, (int64_t)rows),
          "cublasLtMatrixLayoutCreate");
    return made;
}

static const char *prepare(product *p) {
    const char *why = open_library();
    if (why || p->graph) return why;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t turned = CUBLAS_OP_T;
    p->x = matrix(p->m, p->k);
    p->w = matrix(p->k, p->n);
    for (int i = 0; i < THREADS; i++) p->outputs[i] = matrix(p->m, p->n);
    lt_ok(lt->cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    if (p->is_layer) {
        set(p, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
    } else {
        p->bias = matrix(p->n, 1);
        set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    }
    p->w_layout = p->is_layer ? layout_of(p->k, p->n) : layout_of(p->n, p->k);
    p->x_layout = layout_of(p->k, p->m);
    p->layout = layout_of(p->n, p->m);
    choose(p);
    capture(p);
    return NULL;
}

static void quarter(int thread, int n) {
    for (int i = thread; i < n; i += THREADS) enqueue(&small, thread);
    ok(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
}

static void four_threads(int n) { in_threads(quarter, n); }

/* The loops over one product: calls until the last is done; and its graph. */
#define LOOPS(p)                                                                                                      \
    static const char *prepare_##p(void) { return prepare(&p); }                                                      \
    static void enqueue_##p(int n) {                                                                                  \
        for (int i = 0; i < n; i++) enqueue(&p, 0);                                                                   \
    }                                                                                                                 \
    static void sustained_##p(int n) {                                                                                \
        enqueue_##p(n);                                                                                               \
        ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");                                           \
    }
#define GRAPH_LOOPS(p)                                                                                                \
    static void graph_sustained_##p(int n) {                                                                          \
        for (int i = 0; i < n; i++) ok(driver->cuGraphLaunch(p.graph, streams[0]), "cuGraphLaunch");                  \
        ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");                                           \
    }
/* With a synchronize each. */
#define SYNCHRONIZED_LOOPS(p)                                                                                         \
    static void synchronized_##p(int n) {                                                                             \
        for (int i = 0; i < n; i++) sustained_##p(1);                                                                 \
    }                                                                                                                 \
    static void graph_synchronized_##p(int n) {                                                                       \
        for (int i = 0; i < n; i++) graph_sustained_##p(1);                                                           \
    }
LOOPS(small)
GRAPH_LOOPS(small)
SYNCHRONIZED_LOOPS(small)
LOOPS(large)
GRAPH_LOOPS(large)
SYNCHRONIZED_LOOPS(large)
LOOPS(layer_8)
GRAPH_LOOPS(layer_8)
LOOPS(layer_64)
GRAPH_LOOPS(layer_64)
LOOPS(best_8)
LOOPS(best_64)

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
    {"layer-8-sustained", prepare_layer_8, sustained_layer_8, synchronize},
    {"layer-8-graph-sustained", prepare_layer_8, graph_sustained_layer_8, synchronize},
    {"layer-64-sustained", prepare_layer_64, sustained_layer_64, synchronize},
    {"layer-64-graph-sustained", prepare_layer_64, graph_sustained_layer_64, synchronize},
    {"layer-8-best", prepare_best_8, sustained_best_8, synchronize},
    {"layer-64-best", prepare_best_64, sustained_best_64, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
