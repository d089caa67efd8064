/* cublasLtMatmul in a loop: 32 x 32 x 32 bfloat16 with a bias, row-major as NumPy has it.
 *
 * As good as C can: descriptors and bias pointer are set once, the algorithm is chosen once, by the same question that
 * the library's plans ask (cython/libraries/cublaslt/plan.c: operands aligned to 256 bytes, 32 MiB of workspace), and the workspace
 * is there.  D = X W + bias is, column by column, D' = W' X' + bias.
 */
#include "libraries/cublaslt/table.h"
#include "loops.h"

#include <stdio.h>

enum { EXTENT = 32, ALIGNED = 256, WORKSPACE = 32 << 20, CANDIDATES = 8, ELEMENT = 2 };

static const atomr_cublaslt *lt;
static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t description;
static cublasLtMatrixLayout_t square;
static cublasLtMatmulHeuristicResult_t best;
static CUdeviceptr x, w, bias, outputs[THREADS], workspaces[THREADS];

static void lt_ok(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS) die(what, status);
}

static void set(int attribute, const void *value, size_t size) {
    lt_ok(lt->cublasLtMatmulDescSetAttribute(description, attribute, value, size), "cublasLtMatmulDescSetAttribute");
}

static void choose(void) {
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
    lt_ok(lt->cublasLtMatmulAlgoGetHeuristic(handle, description, square, square, square, square, preference,
                                             CANDIDATES, found, &n), "cublasLtMatmulAlgoGetHeuristic");
    lt->cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= WORKSPACE) {
            best = found[i];
            return;
        }
    die("cublasLtMatmulAlgoGetHeuristic: no algorithm", n);
}

static const char *prepare(void) {
    static char why[512];
    if (lt) return NULL;
    lt = atomr_cublaslt_load(NULL, why, sizeof why);
    if (!lt) {
        for (char *c = why; *c; c++)
            if (*c == '"' || *c == '\\') *c = '\''; /* it goes into JSON */
        return why;
    }
    const uint64_t bytes = EXTENT * EXTENT * ELEMENT;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    lt_ok(lt->cublasLtCreate(&handle), "cublasLtCreate");
    x = device_memory(bytes);
    w = device_memory(bytes);
    bias = device_memory(bytes);
    for (int i = 0; i < THREADS; i++) {
        outputs[i] = device_memory(bytes);
        workspaces[i] = device_memory(WORKSPACE);
    }
    lt_ok(lt->cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    lt_ok(lt->cublasLtMatrixLayoutCreate(&square, CUDA_R_16BF, EXTENT, EXTENT, EXTENT), "cublasLtMatrixLayoutCreate");
    choose();
    return NULL;
}

static void enqueue(int stream) {
    const float one = 1.0F, zero = 0.0F;
    void *const d = (void *)(uintptr_t)outputs[stream];
    lt_ok(lt->cublasLtMatmul(handle, description, &one, (void *)(uintptr_t)w, square, (void *)(uintptr_t)x, square,
                             &zero, d, square, d, square, &best.algo, (void *)(uintptr_t)workspaces[stream],
                             best.workspaceSize, streams[stream]), "cublasLtMatmul");
}

static void enqueue_only(int n) {
    for (int i = 0; i < n; i++) enqueue(0);
}

static void sustained(int n) {
    enqueue_only(n);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static void with_synchronize(int n) {
    for (int i = 0; i < n; i++) sustained(1);
}

static void quarter(int thread, int n) {
    for (int i = thread; i < n; i += THREADS) enqueue(thread);
    ok(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
}

static void four_threads(int n) { in_threads(quarter, n); }

static const contender loops[] = {
    {"matmul", prepare, enqueue_only, synchronize},
    {"matmul-sustained", prepare, sustained, synchronize},
    {"matmul-synchronize", prepare, with_synchronize, synchronize},
    {"matmul-four-threads", prepare, four_threads, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
