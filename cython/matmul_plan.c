#include "matmul_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages may bring views that start anywhere, and an algorithm is chosen for a least alignment of its operands: so a
 * plan has one for each of these, best first.  The last one is the size of an element. */
enum { ALIGNMENTS = 3, CANDIDATES = 8, POINTERS = 6 };

struct atomr_blas_lt {
    const atomr_cublaslt *lt;
    atomr_cuda *cuda;
    cublasLtHandle_t handle;
    atomr_meter meter;
};

typedef struct {
    uint64_t alignment;
    int found;
    size_t workspace;
    cublasLtMatmulAlgo_t algo;
} choice;

/* A pointer of the descriptor: which attribute, whose address, and what is there now. */
typedef struct {
    int attribute, aligned; /* aligned: its address counts for the choice of the algorithm */
    int64_t operand;
    const void *set;
} pointer;

struct atomr_matmul {
    atomr_blas_lt *owner;
    atomr_matmul_spec spec;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    choice choices[ALIGNMENTS];
    size_t workspace; /* that the choices need */
    int64_t vector;   /* the operand behind the bias pointer: bias or bias gradient; -1: none */
    unsigned n_pointers;
    pointer pointers[POINTERS];
};

static const char *status_name(const atomr_cublaslt *lt, cublasStatus_t status) {
    const char *name = lt->cublasLtGetStatusName(status);
    return name ? name : "unknown status";
}

static int code_of(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ? ATOMR_UNSUPPORTED
                                                                                          : ATOMR_LIBRARY_ERROR;
}

static int fail(const atomr_cublaslt *lt, cublasStatus_t status, const char *what, atomr_failure *failure) {
    failure->status = status;
    snprintf(failure->lib, sizeof failure->lib, "cublaslt");
    snprintf(failure->name, sizeof failure->name, "%s", status_name(lt, status));
    snprintf(failure->text, sizeof failure->text, "%s: %s", what, lt->cublasLtGetStatusString(status));
    return code_of(status);
}

static int refuse(int code, const char *text, atomr_failure *failure) {
    failure->status = 0;
    failure->lib[0] = 0;
    failure->name[0] = 0;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return code;
}

/* The same, about the matmul itself: a bare NOT_SUPPORTED leaves its reader guessing. */
static int fail_matmul(const atomr_matmul *p, cublasStatus_t status, const char *what, atomr_failure *failure) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const int code = fail(lt, status, what, failure);
    snprintf(failure->text, sizeof failure->text,
             "%s: %s (cuBLASLt %zu.%zu.%zu; column-major m=%lld n=%lld k=%lld batch=%lld, types %lld %lld to %lld, "
             "compute %lld, trans %lld%lld, order %lld%lld, ld %lld %lld %lld %lld, epilogue %lld, aux ld %lld, "
             "workspace %lld; "
             "CUBLASLT_LOG_LEVEL=5 in the environment makes the library say more)",
             what, status == CUBLAS_STATUS_SUCCESS ? "no algorithm" : lt->cublasLtGetStatusString(status),
             lt->version / 10000, lt->version / 100 % 100, lt->version % 100, (long long)s->m, (long long)s->n,
             (long long)s->k, (long long)s->batch, (long long)s->type_a, (long long)s->type_b,
             (long long)s->type_d, (long long)s->compute, (long long)s->trans_a, (long long)s->trans_b, (long long)s->order_a,
             (long long)s->order_b, (long long)s->ld_a, (long long)s->ld_b, (long long)s->ld_c, (long long)s->ld_d,
             (long long)s->epilogue, (long long)s->ld_aux, (long long)s->workspace_bytes);
    return code;
}

int atomr_blas_lt_open(atomr_cuda *cuda, const char *path, atomr_blas_lt **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    const atomr_cublaslt *lt = atomr_cublaslt_load(path, why, sizeof why);
    if (!lt) return refuse(ATOMR_UNSUPPORTED, why, failure);
    atomr_blas_lt *l = calloc(1, sizeof *l);
    if (!l) return refuse(ATOMR_OUT_OF_MEMORY, "no host memory for a cuBLASLt handle", failure);
    l->lt = lt;
    l->cuda = cuda;
    const cublasStatus_t status = lt->cublasLtCreate(&l->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(l);
        return fail(lt, status, "cublasLtCreate", failure);
    }
    *made = l;
    return ATOMR_OK;
}

const atomr_cublaslt *atomr_blas_lt_library(const atomr_blas_lt *l) { return l->lt; }

void atomr_blas_lt_close(atomr_blas_lt *l) {
    if (!l) return;
    l->lt->cublasLtDestroy(l->handle);
    free(l);
}

static size_t element_size(int64_t type) {
    switch (type) {
    case CUDA_C_64F: return 16;
    case CUDA_C_32F:
    case CUDA_R_64F: return 8;
    case CUDA_R_32I:
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

/* The builder is ours, but an index out of range would read beyond a message. */
static int check_spec(const atomr_matmul_spec *s, atomr_failure *failure) {
    const int64_t needed[] = {s->a, s->b, s->d};
    const int64_t optional[] = {s->c,       s->bias,    s->aux,  s->bias_grad, s->a_scale,
                                s->b_scale, s->d_scale, s->amax, s->alpha_at,  s->beta_at};
    const int64_t scalars[] = {s->alpha, s->beta};
    const int complex = s->scale == CUDA_C_32F || s->scale == CUDA_C_64F;
    int good = 1;
    for (unsigned i = 0; i < 2 && s->alpha_at < 0; i++) good = good && scalars[i] >= 0 && scalars[i] < s->n_scalars;
    good = good && s->alpha_imag < s->n_scalars && s->beta_imag < s->n_scalars;
    good = good && (!complex || s->alpha_at >= 0 || (s->alpha_imag >= 0 && s->beta_imag >= 0));
    good = good && (s->alpha_at < 0 || s->beta_at >= 0 || s->zero);
    for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++)
        good = good && needed[i] >= 0 && needed[i] < s->n_operands;
    for (unsigned i = 0; i < sizeof optional / sizeof *optional; i++)
        good = good && optional[i] >= -1 && optional[i] < s->n_operands;
    good = good && !(s->bias >= 0 && s->bias_grad >= 0); /* cuBLASLt has one pointer for both */
    good = good && element_size(s->type_a) && element_size(s->type_b) && element_size(s->type_c);
    good = good && element_size(s->type_d) && s->batch >= 0 && s->batch <= INT32_MAX;
    good = good && element_size(s->scale) > 1 && s->workspace_bytes >= 0 && s->clear_aux >= 0;
    return good ? ATOMR_OK : refuse(ATOMR_INVALID_REQUEST, "malformed matmul specification", failure);
}

static cublasStatus_t make_layout(const atomr_cublaslt *lt, cublasLtMatrixLayout_t *layout, int64_t type,
                                  int64_t order, int64_t rows, int64_t columns, int64_t ld, int64_t step,
                                  int64_t count) {
    cublasStatus_t r =
        lt->cublasLtMatrixLayoutCreate(layout, (cudaDataType)type, (uint64_t)rows, (uint64_t)columns, ld);
    const int32_t order32 = (int32_t)order, count32 = (int32_t)count;
    if (r == CUBLAS_STATUS_SUCCESS && order != CUBLASLT_ORDER_COL)
        r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order32, sizeof order32);
    if (r == CUBLAS_STATUS_SUCCESS && count != 1) {
        r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count32,
                                                 sizeof count32);
        if (r == CUBLAS_STATUS_SUCCESS)
            r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                     sizeof step);
    }
    return r;
}

static cublasStatus_t set(const atomr_matmul *p, int attribute, const void *value, size_t size) {
    return p->owner->lt->cublasLtMatmulDescSetAttribute(p->desc, attribute, value, size);
}

static cublasStatus_t make_desc(atomr_matmul *p) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const int32_t trans_a = (int32_t)s->trans_a, trans_b = (int32_t)s->trans_b;
    const uint32_t epilogue = (uint32_t)s->epilogue;
    cublasStatus_t r =
        lt->cublasLtMatmulDescCreate(&p->desc, (cublasComputeType_t)s->compute, (cudaDataType_t)s->scale);
    if (r == CUBLAS_STATUS_SUCCESS) r = set(p, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof trans_a);
    if (r == CUBLAS_STATUS_SUCCESS) r = set(p, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof trans_b);
    if (r == CUBLAS_STATUS_SUCCESS) r = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (r == CUBLAS_STATUS_SUCCESS && p->vector >= 0)
        r = set(p, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &s->step_bias, sizeof s->step_bias);
    const int32_t bias_type = (int32_t)s->type_bias, aux_type = (int32_t)s->type_aux;
    const int32_t mode_a = (int32_t)s->mode_a, mode_b = (int32_t)s->mode_b, on_device = CUBLASLT_POINTER_MODE_DEVICE;
    const int8_t fast = 1;
    if (r == CUBLAS_STATUS_SUCCESS && p->vector >= 0 && s->type_bias >= 0)
        r = set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    if (r == CUBLAS_STATUS_SUCCESS && s->aux >= 0 && s->type_aux >= 0)
        r = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &aux_type, sizeof aux_type);
    if (r == CUBLAS_STATUS_SUCCESS && s->fast_accum) r = set(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (r == CUBLAS_STATUS_SUCCESS && s->mode_a)
        r = set(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode_a, sizeof mode_a);
    if (r == CUBLAS_STATUS_SUCCESS && s->mode_b)
        r = set(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode_b, sizeof mode_b);
    if (r == CUBLAS_STATUS_SUCCESS && s->alpha_at >= 0)
        r = set(p, CUBLASLT_MATMUL_DESC_POINTER_MODE, &on_device, sizeof on_device);
    if (r == CUBLAS_STATUS_SUCCESS && s->aux >= 0) {
        r = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ld_aux, sizeof s->ld_aux);
        if (r == CUBLAS_STATUS_SUCCESS)
            r = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &s->step_aux, sizeof s->step_aux);
    }
    return r;
}

static cublasStatus_t make_layouts(atomr_matmul *p) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const int ta = s->trans_a != CUBLAS_OP_N, tb = s->trans_b != CUBLAS_OP_N;
    cublasStatus_t r = make_layout(lt, &p->a, s->type_a, s->order_a, ta ? s->k : s->m, ta ? s->m : s->k, s->ld_a,
                                   s->step_a, s->batch);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->b, s->type_b, s->order_b, tb ? s->n : s->k, tb ? s->k : s->n, s->ld_b, s->step_b,
                        s->batch);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->d, s->type_d, CUBLASLT_ORDER_COL, s->m, s->n, s->ld_d, s->step_d, s->batch);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->c, s->type_c, CUBLASLT_ORDER_COL, s->m, s->n, s->ld_c, s->step_c, s->batch);
    return r;
}

static void add_pointer(atomr_matmul *p, int attribute, int64_t operand, int aligned) {
    if (operand >= 0) p->pointers[p->n_pointers++] = (pointer){attribute, aligned, operand, NULL};
}

static void list_pointers(atomr_matmul *p) {
    const atomr_matmul_spec *s = &p->spec;
    add_pointer(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->vector, 1);
    add_pointer(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, s->aux, 1);
    add_pointer(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, s->a_scale, s->mode_a != 0);
    add_pointer(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, s->b_scale, s->mode_b != 0);
    add_pointer(p, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, s->d_scale, 0);
    add_pointer(p, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, s->amax, 0);
}

/* Point the descriptor's pointer somewhere; nothing is called where it points there already. */
static cublasStatus_t point(atomr_matmul *p, pointer *at, const void *address) {
    if (address == at->set) return CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t r = set(p, at->attribute, &address, sizeof address);
    at->set = r == CUBLAS_STATUS_SUCCESS ? address : NULL;
    return r;
}

/* The heuristic reads no memory: from the addresses it takes the alignment to expect. */
static cublasStatus_t point_somewhere(atomr_matmul *p, uint64_t alignment) {
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    for (unsigned i = 0; i < p->n_pointers && r == CUBLAS_STATUS_SUCCESS; i++) {
        pointer *at = &p->pointers[i];
        r = point(p, at, (const void *)(uintptr_t)(at->aligned ? alignment : 256));
    }
    return r;
}

/* Ask for algorithms whose operands are aligned to `alignment` at least, and that need at most `limit` bytes. */
static cublasStatus_t ask(atomr_matmul *p, uint32_t alignment, uint64_t limit, int wanted,
                          cublasLtMatmulHeuristicResult_t *results, int *n) {
    static const int alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const atomr_cublaslt *lt = p->owner->lt;
    cublasLtMatmulPreference_t preference = NULL;
    *n = 0;
    cublasStatus_t r = point_somewhere(p, alignment);
    if (r == CUBLAS_STATUS_SUCCESS) r = lt->cublasLtMatmulPreferenceCreate(&preference);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                                     sizeof limit);
    for (unsigned i = 0; i < sizeof alignments / sizeof *alignments && r == CUBLAS_STATUS_SUCCESS; i++)
        r = lt->cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = lt->cublasLtMatmulAlgoGetHeuristic(p->owner->handle, p->desc, p->a, p->b, p->c, p->d, preference, wanted,
                                               results, n);
    if (preference) lt->cublasLtMatmulPreferenceDestroy(preference);
    return r;
}

/* Ask for the best algorithm whose operands are aligned to `c->alignment` at least.  Finding none is no failure of
 * the call; then `*status` is what the library said. */
static void choose(atomr_matmul *p, choice *c, cublasStatus_t *status) {
    const uint64_t limit = (uint64_t)p->spec.workspace_bytes;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int n = 0;
    const cublasStatus_t r = ask(p, (uint32_t)c->alignment, limit, CANDIDATES, results, &n);
    for (int i = 0; i < n && r == CUBLAS_STATUS_SUCCESS && !c->found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= limit) {
            c->found = 1;
            c->algo = results[i].algo;
            c->workspace = results[i].workspaceSize;
        }
    *status = r;
}

int atomr_matmul_candidates(atomr_matmul *p, uint64_t limit, cublasLtMatmulHeuristicResult_t *out, int most) {
    int n = 0, kept = 0;
    if (!p->desc || ask(p, 256, limit, most, out, &n) != CUBLAS_STATUS_SUCCESS) return 0;
    for (int i = 0; i < n; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= limit) out[kept++] = out[i];
    return kept;
}

/* What tuning chose, if it still fits this library and device. */
static cublasStatus_t adopt(atomr_matmul *p, choice *c) {
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof result);
    memcpy(&c->algo, p->spec.algo, sizeof c->algo);
    cublasStatus_t r = point_somewhere(p, c->alignment);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = p->owner->lt->cublasLtMatmulAlgoCheck(p->owner->handle, p->desc, p->a, p->b, p->c, p->d, &c->algo,
                                                  &result);
    if (r == CUBLAS_STATUS_SUCCESS && result.workspaceSize > (uint64_t)p->spec.workspace_bytes)
        r = CUBLAS_STATUS_NOT_SUPPORTED;
    c->found = r == CUBLAS_STATUS_SUCCESS;
    c->workspace = result.workspaceSize;
    return r;
}

static int choose_all(atomr_matmul *p, atomr_failure *failure) {
    const atomr_matmul_spec *s = &p->spec;
    const size_t sizes[] = {element_size(s->type_b), element_size(s->type_c), element_size(s->type_d)};
    size_t least = element_size(s->type_a);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) least = sizes[i] < least ? sizes[i] : least;
    const uint64_t alignments[ALIGNMENTS] = {256, 16, least};
    for (int i = 0; i < ALIGNMENTS; i++) {
        choice *c = &p->choices[i];
        c->alignment = alignments[i];
        cublasStatus_t status;
        if (i == 0 && s->has_algo) {
            status = adopt(p, c);
            if (!c->found) return fail_matmul(p, status, "the tuned algorithm does not fit", failure);
        } else {
            choose(p, c, &status);
        }
        if (i == 0 && !c->found) {
            const int code = fail_matmul(p, status, "cublasLtMatmulAlgoGetHeuristic", failure);
            return status == CUBLAS_STATUS_SUCCESS ? ATOMR_UNSUPPORTED : code;
        }
        if (c->found && c->workspace > p->workspace) p->workspace = c->workspace;
    }
    return ATOMR_OK;
}

int atomr_matmul_new(atomr_blas_lt *owner, const atomr_matmul_spec *spec, atomr_matmul **made,
                     atomr_failure *failure) {
    int code = check_spec(spec, failure);
    if (code != ATOMR_OK) return code;
    atomr_matmul *p = calloc(1, sizeof *p);
    if (!p) return refuse(ATOMR_OUT_OF_MEMORY, "no host memory for a matmul plan", failure);
    p->owner = owner;
    p->spec = *spec;
    p->vector = spec->bias >= 0 ? spec->bias : spec->bias_grad;
    list_pointers(p);
    if (spec->m && spec->n && spec->batch) { /* else a run does nothing, and cuBLASLt knows no empty matrix */
        cublasStatus_t status = make_desc(p);
        if (status == CUBLAS_STATUS_SUCCESS) status = make_layouts(p);
        code = status == CUBLAS_STATUS_SUCCESS ? choose_all(p, failure)
                                               : fail_matmul(p, status, "cuBLASLt descriptors", failure);
    }
    if (code != ATOMR_OK) {
        atomr_matmul_delete(p);
        return code;
    }
    *made = p;
    return ATOMR_OK;
}

uint64_t atomr_matmul_workspace(const atomr_matmul *p) { return p->workspace; }

const cublasLtMatmulAlgo_t *atomr_matmul_algo(const atomr_matmul *p) { return &p->choices[0].algo; }

void atomr_matmul_delete(atomr_matmul *p) {
    if (!p) return;
    const atomr_cublaslt *lt = p->owner->lt;
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c, p->d};
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i]) lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->desc) lt->cublasLtMatmulDescDestroy(p->desc);
    free(p);
}

/* A factor in the type that cuBLASLt wants. */
typedef union {
    double z[2];
    float c[2];
    int32_t i;
    uint16_t h;
} factor;

/* To the nearest float16, ties to even. */
static uint16_t half(double value) {
    const float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* subnormal: the sum has their place value */
        float magnitude, magic = 0.5f;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magic += magnitude;
        memcpy(&bits, &magic, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

static double scalar(const atomr_call *call, int64_t index) {
    double value = 0;
    if (index >= 0) memcpy(&value, &call->scalars[index], sizeof value);
    return value;
}

static factor convert(int64_t scale, double real, double imag) {
    factor f = {{real, imag}};
    switch (scale) {
    case CUDA_R_32F:
    case CUDA_C_32F:
        f.c[0] = (float)real;
        f.c[1] = (float)imag;
        break;
    case CUDA_R_32I: f.i = (int32_t)real; break;
    case CUDA_R_16F: f.h = half(real); break;
    default: break;
    }
    return f;
}

/* Refuse factors that the plan does not take. */
static int check_factors(const atomr_matmul_spec *s, double alpha, double beta, double imag, atomr_failure *failure) {
    char text[160];
    if (s->c < 0 && (beta != 0 || imag != 0)) {
        snprintf(text, sizeof text, "beta=%g, but the plan was made with beta=0 and has no c; allowed: 0", beta);
        return refuse(ATOMR_INVALID_REQUEST, text, failure);
    }
    if (s->scale == CUDA_R_32I && ((alpha != 0 && alpha != 1) || (beta != 0 && beta != 1))) {
        snprintf(text, sizeof text, "alpha=%g and beta=%g with D of dtype int32; allowed: 0, 1 (or D of float32)", alpha,
                 beta);
        return refuse(ATOMR_INVALID_REQUEST, text, failure);
    }
    return ATOMR_OK;
}

/* The best algorithm for operands at these addresses, whose bits are ORed in `bits`. */
static const choice *choice_for(const atomr_matmul *p, uint64_t bits) {
    for (int i = 0; i < ALIGNMENTS; i++)
        if ((bits & (p->choices[i].alignment - 1)) == 0 && p->choices[i].found) return &p->choices[i];
    return NULL;
}

const atomr_matmul_spec *atomr_matmul_spec_of(const atomr_matmul *p) { return &p->spec; }

atomr_cuda *atomr_matmul_device(const atomr_matmul *p) { return p->owner->cuda; }

const atomr_cublaslt *atomr_matmul_library(const atomr_matmul *p) { return p->owner->lt; }

atomr_meter *atomr_matmul_meter(const atomr_matmul *p) { return &p->owner->meter; }

int atomr_matmul_launch(atomr_matmul *p, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t nbytes,
                        void *const *pointers, const void *alpha, const void *beta, CUstream stream,
                        atomr_failure *failure) {
    const atomr_matmul_spec *s = &p->spec;
    const atomr_cublaslt *lt = p->owner->lt;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (unsigned i = 0; i < p->n_pointers && status == CUBLAS_STATUS_SUCCESS; i++)
        status = point(p, &p->pointers[i], pointers[p->pointers[i].operand]);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmul(p->owner->handle, p->desc, alpha, pointers[s->a], p->a, pointers[s->b], p->b, beta,
                                    pointers[s->c >= 0 ? s->c : s->d], p->c, pointers[s->d], p->d, algo, workspace,
                                    nbytes, stream);
    return status == CUBLAS_STATUS_SUCCESS ? ATOMR_OK : fail_matmul(p, status, "cublasLtMatmul", failure);
}

int atomr_matmul_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_matmul *p = context;
    const atomr_matmul_spec *s = &p->spec;
    atomr_cuda *cuda = p->owner->cuda;
    factor alpha, beta;
    const void *alpha_at = &alpha, *beta_at = &beta;
    if (s->alpha_at >= 0) {
        alpha_at = call->pointers[s->alpha_at];
        beta_at = s->beta_at >= 0 ? call->pointers[s->beta_at] : (const void *)(uintptr_t)s->zero;
    } else {
        const double re = scalar(call, s->alpha), beta_re = scalar(call, s->beta), im = scalar(call, s->beta_imag);
        const int code = check_factors(s, re, beta_re, im, failure);
        if (code != ATOMR_OK) return code;
        alpha = convert(s->scale, re, scalar(call, s->alpha_imag));
        beta = convert(s->scale, beta_re, im);
    }
    if (!p->desc) return ATOMR_OK;

    void *const a = call->pointers[s->a], *const b = call->pointers[s->b], *const d = call->pointers[s->d];
    void *const c = s->c >= 0 ? call->pointers[s->c] : d;
    uint64_t bits = (uint64_t)((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d);
    for (unsigned i = 0; i < p->n_pointers; i++)
        if (p->pointers[i].aligned) bits |= (uint64_t)(uintptr_t)call->pointers[p->pointers[i].operand];
    const choice *best = choice_for(p, bits);
    if (!best) {
        char text[200];
        snprintf(text, sizeof text,
                 "an operand starts at an address aligned to %llu bytes only, and cuBLASLt has no algorithm of this "
                 "matmul for it; allowed: views that start at multiples of 16 bytes",
                 (unsigned long long)(bits & (~bits + 1)));
        return refuse(ATOMR_UNSUPPORTED, text, failure);
    }
    if (best->workspace > call->workspace_bytes)
        return refuse(ATOMR_INVALID_REQUEST, "the workspace of the lane is too small for this matmul", failure);

    const CUstream stream = atomr_cuda_stream(cuda, call->lane);
    if (!stream) { /* NULL would be the default stream, which orders with nothing of ours */
        failure->status = atomr_cuda_error(cuda);
        snprintf(failure->lib, sizeof failure->lib, "cuda");
        snprintf(failure->text, sizeof failure->text, "the lane has no stream");
        return ATOMR_LIBRARY_ERROR;
    }
    if (s->clear_aux) {
        const CUresult r = atomr_cuda_driver(cuda)->cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->pointers[s->aux], 0,
                                                                    (size_t)s->clear_aux, stream);
        if (r != CUDA_SUCCESS) {
            const char *name = "unknown error";
            atomr_cuda_driver(cuda)->cuGetErrorName(r, &name);
            failure->status = r;
            snprintf(failure->lib, sizeof failure->lib, "cuda");
            snprintf(failure->name, sizeof failure->name, "%s", name);
            snprintf(failure->text, sizeof failure->text, "cuMemsetD8Async");
            return ATOMR_LIBRARY_ERROR;
        }
    }
    return atomr_matmul_launch(p, &best->algo, call->workspace, best->workspace, call->pointers, alpha_at, beta_at, stream,
                               failure);
}
