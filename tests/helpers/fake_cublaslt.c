/* A cuBLASLt without a GPU: it keeps descriptors as the real one does, refuses what that one refuses, and hands each
 * matmul to a callback of the test, which computes it.  Beside it, the two functions of the CUDA backend that plans
 * call.  Built twice: as the library that is opened, and, with -DBACKEND, as part of what is tested. */
#include <stdlib.h>
#include <string.h>

#ifdef BACKEND
#include "cuda/cuda_backend.h"

static CUresult clear(CUdeviceptr at, unsigned char value, size_t n, CUstream stream) {
    (void)stream;
    memset((void *)(uintptr_t)at, value, n);
    return CUDA_SUCCESS;
}
static CUresult name(CUresult error, const char **text) {
    (void)error;
    *text = "CUDA_ERROR";
    return CUDA_SUCCESS;
}
static atomr_driver driver = {.cuMemsetD8Async = clear, .cuGetErrorName = name};

const atomr_driver *atomr_cuda_driver(const atomr_cuda *c) { return c ? NULL : &driver; }
CUstream atomr_cuda_stream(atomr_cuda *c, unsigned lane) { return c ? NULL : (CUstream)(uintptr_t)(lane + 1); }
CUresult atomr_cuda_error(atomr_cuda *c) { return c ? 1 : 0; }
#else
#include "fake_cublaslt.h"

/* Knobs and counters of the tests. */
fake_matmul_function fake_matmul;
uint64_t fake_workspace, fake_least_alignment, fake_pointers_set, fake_heuristics, fake_live, fake_reductions;
int fake_heuristic_status, fake_pointer_arrays = 1;

size_t cublasLtGetVersion(void) { return 130102; }
size_t cublasLtGetCudartVersion(void) { return 13000; }
const char *cublasLtGetStatusName(int s) { return s == 15 ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OTHER"; }
const char *cublasLtGetStatusString(int s) { return s == 15 ? "not supported" : "something else"; }
int cublasLtCreate(cublasLtHandle_t *h) { *h = (cublasLtHandle_t)(uintptr_t)64; return 0; }
int cublasLtDestroy(cublasLtHandle_t h) { (void)h; return 0; }

static void *make(size_t size) {
    fake_live++;
    return calloc(1, size);
}
static int drop(void *p) {
    fake_live--;
    free(p);
    return 0;
}

int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, int compute, int scale) {
    desc *d = make(sizeof *d);
    d->compute = compute;
    d->scale = scale;
    d->epilogue = 1;
    d->bias_type = d->aux_type = -1;
    *out = (cublasLtMatmulDesc_t)d;
    return 0;
}
int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return drop(d); }
int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p, int attribute, const void *value, size_t size) {
    desc *d = (desc *)p;
    int32_t narrow = 0;
    int64_t wide = 0;
    if (size == 4) memcpy(&narrow, value, 4);
    else if (size == 8) memcpy(&wide, value, 8);
    else if (size == 1) narrow = *(const int8_t *)value;
    else return 7;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: d->on_device = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: d->bias_type = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: d->aux_type = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: d->fast = narrow; return size == 1 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: d->mode_a = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: d->mode_b = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: d->a_scale = (uint64_t)wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: d->b_scale = (uint64_t)wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER: d->d_scale = (uint64_t)wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER: d->amax = (uint64_t)wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_TRANSA: d->trans_a = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_TRANSB: d->trans_b = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: d->epilogue = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: d->bias = (uint64_t)wide; fake_pointers_set++; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: d->bias_step = wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        d->aux = (uint64_t)wide;
        fake_pointers_set++;
        return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: d->aux_ld = wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: d->aux_step = wide; return size == 8 ? 0 : 7;
    default: return 7;
    }
}
int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    layout *l = make(sizeof *l);
    *l = (layout){type, (int64_t)rows, (int64_t)columns, ld, 0, 1, 0, 0};
    *out = (cublasLtMatrixLayout_t)l;
    return 0;
}
int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return drop(l); }
int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t p, int attribute, const void *value, size_t size) {
    layout *l = (layout *)p;
    int32_t narrow = 0;
    int64_t wide = 0;
    if (size == 4) memcpy(&narrow, value, 4);
    else if (size == 8) memcpy(&wide, value, 8);
    else return 7;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: l->order = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: l->count = narrow; return size == 4 ? 0 : 7;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: l->step = wide; return size == 8 ? 0 : 7;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
        if (!fake_pointer_arrays) return 7; /* as libraries that are older */
        l->mode = narrow;
        return size == 4 ? 0 : 7;
    default: return 7;
    }
}
int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    preference *const p = make(sizeof *p);
    p->reductions = 7;
    *out = (cublasLtMatmulPreference_t)p;
    return 0;
}
int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return drop(p); }
int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t q, int attribute, const void *value, size_t size) {
    preference *p = (preference *)q;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == 8) {
        memcpy(&p->workspace, value, 8);
    } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && size == 4) {
        memcpy(&p->reductions, value, 4);
    } else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && size == 4) {
        uint32_t alignment;
        memcpy(&alignment, value, 4);
        p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = alignment;
    } else {
        return 7;
    }
    return 0;
}

static int fits(const layout *l) {
    return l->rows > 0 && l->columns > 0 && l->count > 0 && l->ld >= (l->order ? l->columns : l->rows);
}

/* What the header says must hold. */
static int check(const desc *o, const layout *a, const layout *b, const layout *c, const layout *d) {
    const int64_t m = d->rows, n = d->columns, k = o->trans_a ? a->rows : a->columns;
    if (!fits(a) || !fits(b) || !fits(c) || !fits(d) || c->order || d->order) return 7;
    if ((o->trans_a ? a->columns : a->rows) != m || (o->trans_b ? b->rows : b->columns) != n) return 7;
    if ((o->trans_b ? b->columns : b->rows) != k || c->rows != m || c->columns != n) return 7;
    if (a->count != d->count || b->count != d->count || c->count != d->count) return 7;
    if (a->mode != d->mode || b->mode != d->mode || c->mode != d->mode) return 15;
    if (d->mode && (o->epilogue != 1 || o->mode_a || o->mode_b)) return 15;
    /* Results lie one after the other; or the columns of all beside each other, unless $FAKE_CUDA_LT_APART is set. */
    const int beside = d->step >= m && d->step * (d->count - 1) + m <= d->ld && !getenv("FAKE_CUDA_LT_APART");
    const int apart = beside || d->step >= d->ld * (n - 1) + m;
    if (!d->mode && d->count > 1 && !apart) return 7;
    if (o->epilogue & 128) {
        const int64_t unit = o->epilogue & (2 | 8) ? 128 : 8;
        if (!o->aux || o->aux_ld < m || o->aux_ld % unit || o->aux_step % unit) return 7;
    }
    if (o->epilogue & (4 | 16 | 256 | 512) && !o->bias) return 7;
    if (o->epilogue != 1 && o->scale != CUDA_R_32F) return 15;
    if (d->type == CUDA_R_8F_E4M3 && c->type != CUDA_R_16BF && c->type != CUDA_R_16F) return 15;
    if ((o->d_scale || o->amax) && d->type != CUDA_R_8F_E4M3 && d->type != CUDA_R_8F_E5M2) return 7;
    if (a->type >= CUDA_R_8F_E4M3 && (!o->trans_a || o->trans_b || a->ld % 16 || b->ld % 16)) return 15;
    if (o->epilogue == 256 && o->trans_a && a->order) return 15;
    if (o->epilogue == 512 && !o->trans_b) return 15;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t q, int wanted, cublasLtMatmulHeuristicResult_t out[],
                                   int *n) {
    const preference *p = (preference *)q;
    (void)h;
    fake_heuristics++;
    fake_reductions = p->reductions;
    *n = 0;
    if (fake_heuristic_status) return fake_heuristic_status;
    const int status = check((desc *)o, (layout *)a, (layout *)b, (layout *)c, (layout *)d);
    if (status) return status;
    uint64_t least = p->alignment[0];
    for (int i = 1; i < 4; i++)
        if (p->alignment[i] < least) least = p->alignment[i];
    if (least < fake_least_alignment || wanted < 2) return 0; /* no algorithm */
    memset(out, 0, 2 * sizeof *out);
    out[0].state = 15; /* the first of the list may be unusable */
    out[1].algo.data[0] = least;
    out[1].workspaceSize = fake_workspace;
    *n = 2;
    return 0;
}
int cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *out) {
    (void)h;
    out->workspaceSize = fake_workspace;
    return algo->data[0] == 999 ? 7 : check((desc *)o, (layout *)a, (layout *)b, (layout *)c, (layout *)d);
}
int cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo, int attribute, void *buffer, size_t size,
                                         size_t *written) {
    if (size != 4) return 7;
    const int32_t value = (int32_t)(algo->data[0] + (uint64_t)attribute);
    memcpy(buffer, &value, 4);
    *written = 4;
    return 0;
}

/* A part of a factor; float16 ones are 0, 0.5 or 1 in these tests. */
static double part(const void *factor, int64_t type, int which) {
    double wide[2] = {0, 0};
    float narrow[2] = {0, 0};
    int32_t whole = 0;
    uint16_t half = 0;
    switch (type) {
    case CUDA_R_32F:
    case CUDA_C_32F: memcpy(narrow, factor, type == CUDA_R_32F ? 4 : 8); return narrow[which];
    case CUDA_R_32I: memcpy(&whole, factor, 4); return which ? 0 : whole;
    case CUDA_R_16F: memcpy(&half, factor, 2); return which ? 0 : half == 0x3c00 ? 1 : half == 0x3800 ? 0.5 : 0;
    default: memcpy(wide, factor, type == CUDA_R_64F ? 8 : 16); return wide[which];
    }
}

void fake_factors(int64_t type, const void *alpha, const void *beta, double factors[4]) {
    for (int i = 0; i < 2; i++) {
        factors[2 * i] = part(alpha, type, i);
        factors[2 * i + 1] = part(beta, type, i);
    }
}

int cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t o, const void *alpha, const void *A,
                   cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta, const void *C,
                   cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                   void *workspace, size_t nbytes, cudaStream_t stream) {
    (void)h;
    record r = {*(layout *)a, *(layout *)b, *(layout *)c, *(layout *)d, *(desc *)o, (uint64_t)A, (uint64_t)B,
                (uint64_t)C, (uint64_t)D, (uint64_t)workspace, nbytes, algo->data[0], (uint64_t)stream, 0, 0,
                {0, 0, 0, 0}};
    const int status = check(&r.op, &r.a, &r.b, &r.c, &r.d);
    if (status) return status;
    const uint64_t bits = r.A | r.B | r.C | r.D | (r.op.epilogue == 1 ? 0 : r.op.bias | r.op.aux);
    if (C && C == D && r.c.type != r.d.type) return 7; /* as the library does: in place means of one type */
    if (algo->data[0] <= 256 && algo->data[0] && bits & (algo->data[0] - 1)) return 7;
    if (r.op.on_device) {
        r.alpha_at = (uint64_t)alpha;
        r.beta_at = (uint64_t)beta;
    } else {
        fake_factors(r.op.scale, alpha, beta, r.factors);
    }
    return fake_matmul ? fake_matmul(&r) : 14;
}
#endif
