#include "libraries/cublaslt/private.h"

#include <stdlib.h>
#include <string.h>

/* How many algorithms of the heuristic are looked at. */
enum { CANDIDATES = 8 };

static const char *status_name(const atomr_cublaslt *lt, cublasStatus_t status) {
    const char *name = lt->cublasLtGetStatusName(status);
    return name ? name : "unknown status";
}

static int code_of(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ? ATOMR_UNSUPPORTED
                                                                                          : ATOMR_LIBRARY_ERROR;
}

int atomr_matmul_fail(const atomr_matmul *p, cublasStatus_t status, const char *what, atomr_failure *failure) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const size_t version = atomr_cublaslt_library.version;
    const int none = status == CUBLAS_STATUS_SUCCESS; /* the library had no objection, and no algorithm */
    return atomr_failed(
        failure, none ? ATOMR_UNSUPPORTED : code_of(status), "cublaslt", status,
        none ? "no_algorithm" : status_name(lt, status),
        "%s: %s (cuBLASLt %zu.%zu.%zu; column-major m=%lld n=%lld k=%lld batch=%lld, types %lld %lld to %lld, compute "
        "%lld, trans %lld%lld, order %lld%lld, ld %lld %lld %lld %lld, epilogue %lld, aux ld %lld, workspace %lld; "
        "CUBLASLT_LOG_LEVEL=5 in the environment makes the library say more)",
        what, none ? "no algorithm" : lt->cublasLtGetStatusString(status), version / 10000,
        version / 100 % 100, version % 100, (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->batch,
        (long long)s->type_a, (long long)s->type_b, (long long)s->type_d, (long long)s->compute, (long long)s->trans_a,
        (long long)s->trans_b, (long long)s->order_a, (long long)s->order_b, (long long)s->ld_a, (long long)s->ld_b,
        (long long)s->ld_c, (long long)s->ld_d, (long long)s->epilogue, (long long)s->ld_aux,
        (long long)s->workspace_bytes);
}

int atomr_blas_lt_open(atomr_cuda *cuda, atomr_blas_lt **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    const atomr_cublaslt *lt = atomr_cublaslt_load(NULL, why, sizeof why);
    if (!lt) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_blas_lt *l = calloc(1, sizeof *l);
    if (!l) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuBLASLt handle");
    l->lt = lt;
    l->cuda = cuda;
    const cublasStatus_t status = lt->cublasLtCreate(&l->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(l);
        return atomr_failed(failure, code_of(status), "cublaslt", status, status_name(lt, status), "cublasLtCreate: %s",
                            lt->cublasLtGetStatusString(status));
    }
    *made = l;
    return ATOMR_OK;
}

void atomr_blas_lt_close(atomr_blas_lt *l) {
    if (!l) return;
    const atomr_driver *d = l->meter.stream ? atomr_cuda_driver(l->cuda) : NULL;
    if (l->meter.start) d->cuEventDestroy_v2(l->meter.start);
    if (l->meter.end) d->cuEventDestroy_v2(l->meter.end);
    if (l->meter.stream) d->cuStreamDestroy_v2(l->meter.stream);
    l->lt->cublasLtDestroy(l->handle);
    free(l);
}

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    atomr_blas_lt *made = NULL;
    const int code = atomr_blas_lt_open(cuda, &made, failure);
    *handle = made;
    return code;
}

static void destroy(void *handle) { atomr_blas_lt_close(handle); }

const atomr_handle_kind atomr_blas_lt_kind = {"cublaslt", create, NULL, destroy};

const atomr_field atomr_matmul_fields[] = {
    ATOMR_MATMUL_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

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
    const uint32_t in_compute_type = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const atomr_cublaslt *lt = p->owner->lt;
    cublasLtMatmulPreference_t preference = NULL;
    *n = 0;
    cublasStatus_t r = point_somewhere(p, alignment);
    if (r == CUBLAS_STATUS_SUCCESS) r = lt->cublasLtMatmulPreferenceCreate(&preference);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                                     sizeof limit);
    if (r == CUBLAS_STATUS_SUCCESS && !p->spec.reduced_precision) /* the others add up what is rounded to D's type */
        r = lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                     &in_compute_type, sizeof in_compute_type);
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
            if (!c->found) return atomr_matmul_fail(p, status, "the tuned algorithm does not fit", failure);
        } else {
            choose(p, c, &status);
        }
        if (i == 0 && !c->found) return atomr_matmul_fail(p, status, "cublasLtMatmulAlgoGetHeuristic", failure);
        if (c->found && c->workspace > p->workspace) p->workspace = c->workspace;
    }
    return ATOMR_OK;
}

int atomr_matmul_new(atomr_blas_lt *owner, const atomr_matmul_spec *spec, atomr_matmul **made,
                     atomr_failure *failure) {
    int code = atomr_matmul_check(spec, failure);
    if (code != ATOMR_OK) return code;
    atomr_matmul *p = calloc(1, sizeof *p);
    if (!p) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a matmul plan");
    p->owner = owner;
    p->spec = *spec;
    p->vector = spec->bias >= 0 ? spec->bias : spec->bias_grad;
    if (spec->m && spec->n && spec->batch) { /* else a run does nothing, and cuBLASLt knows no empty matrix */
        const cublasStatus_t status = atomr_matmul_describe(p);
        code = status == CUBLAS_STATUS_SUCCESS ? choose_all(p, failure)
                                               : atomr_matmul_fail(p, status, "cuBLASLt descriptors", failure);
    }
    if (code != ATOMR_OK) {
        atomr_matmul_delete(p);
        return code;
    }
    *made = p;
    return ATOMR_OK;
}

uint64_t atomr_matmul_workspace(const atomr_matmul *p) { return p->workspace; }

void atomr_matmul_delete(atomr_matmul *p) {
    if (!p) return;
    const atomr_cublaslt *lt = p->owner->lt;
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c, p->d};
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i]) lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->desc) lt->cublasLtMatmulDescDestroy(p->desc);
    free(p);
}
