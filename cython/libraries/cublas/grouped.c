#include "libraries/cublas/grouped.h"

#include <stdlib.h>

#include "libraries/cublas/private.h"

/* The numbers of groups as the library takes them: one array for each member of atomr_group. */
enum { NUMBERS = sizeof(atomr_group) / sizeof(int64_t) };
#define ARRAY(g, member) ((g)->numbers + offsetof(atomr_group, member) / sizeof(int64_t) * (size_t)(g)->spec.n_groups)

struct atomr_grouped {
    atomr_cuda *cuda;
    atomr_grouped_spec spec;
    int *numbers;    /* NUMBERS arrays of n_groups */
    double *factors; /* 2 n_groups, for a run */
};

const atomr_field atomr_grouped_fields[] = {
    ATOMR_GROUPED_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
const atomr_field atomr_group_fields[] = {ATOMR_GROUP_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

static int check(const atomr_grouped_spec *s, const atomr_group *groups, atomr_failure *failure) {
    int64_t members = 0;
    int good = s->n_groups > 0 && s->n_members >= s->n_groups && s->n_operands == 3 * s->n_members + 2;
    good = good && s->alpha >= 0 && s->alpha < s->n_scalars && s->beta >= 0 && s->beta < s->n_scalars;
    good = good && s->workspace_bytes >= 0;
    for (int64_t i = 0; good && i < s->n_groups; i++) {
        const int64_t *numbers = (const int64_t *)&groups[i];
        for (int j = 0; j < NUMBERS; j++) good = good && numbers[j] >= 0 && numbers[j] <= INT32_MAX;
        members += groups[i].members;
    }
    good = good && members == s->n_members;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a group");
}

int atomr_grouped_new(atomr_cuda *cuda, const atomr_grouped_spec *spec, const atomr_group *groups, atomr_grouped **made,
                      atomr_failure *failure) {
    char why[sizeof failure->text];
    const int code = check(spec, groups, failure);
    if (code != ATOMR_OK) return code;
    const atomr_cublas_table *t = atomr_cublas_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    if (!t->cublasGemmGroupedBatchedEx)
        return atomr_unsupported(failure, "cublas", "version",
                                 "cublasGemmGroupedBatchedEx needs cuBLAS 12.5; this is %zu",
                                 atomr_cublas_library.version);
    atomr_grouped *g = calloc(1, sizeof *g);
    if (g) {
        g->numbers = calloc(NUMBERS * (size_t)spec->n_groups, sizeof *g->numbers);
        g->factors = calloc(2 * (size_t)spec->n_groups, sizeof *g->factors);
    }
    if (!g || !g->numbers || !g->factors) {
        atomr_grouped_delete(g);
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for the products of %lld groups",
                             (long long)spec->n_groups);
    }
    g->cuda = cuda;
    g->spec = *spec;
    for (int64_t i = 0; i < spec->n_groups; i++)
        for (int j = 0; j < NUMBERS; j++) g->numbers[j * spec->n_groups + i] = (int)((const int64_t *)&groups[i])[j];
    *made = g;
    return ATOMR_OK;
}

void atomr_grouped_delete(atomr_grouped *g) {
    if (!g) return;
    free(g->numbers);
    free(g->factors);
    free(g);
}

/* What the library asks of addresses where tensor cores read them: 16 bytes where rows along K have them, else 4. */
static int check_addresses(const atomr_grouped *g, const atomr_call *call, atomr_failure *failure) {
    const atomr_grouped_spec *s = &g->spec;
    const int64_t size = s->type == CUDA_R_64F ? 8 : s->type == CUDA_R_32F ? 4 : 2;
    int64_t member = 0;
    if (size > 2 && s->compute != CUBLAS_COMPUTE_32F_FAST_TF32) return ATOMR_OK;
    for (int64_t i = 0; i < s->n_groups; i++) {
        const int64_t row = ARRAY(g, k)[i] * size, count = ARRAY(g, members)[i];
        const uintptr_t least = row % 16 == 0 ? 16 : row % 4 == 0 ? 4 : (uintptr_t)size;
        for (const int64_t end = member + count; member < end; member++)
            for (int64_t j = 0; j < 3; j++) {
                if (((uintptr_t)call->pointers[j * s->n_members + member] & (least - 1)) == 0) continue;
                return atomr_unsupported(
                    failure, "blas_lt", "alignment",
                    "%s of member %lld starts at an address that is no multiple of %llu bytes, which cuBLAS's grouped "
                    "kernels need; copy it, or pass way='each'",
                    j == 0 ? "an operand" : j == 1 ? "the other operand" : "the output", (long long)member,
                    (unsigned long long)least);
            }
    }
    return ATOMR_OK;
}

static cublasStatus_t multiply(atomr_grouped *g, const atomr_call *call, const atomr_blas *b) {
    const atomr_grouped_spec *s = &g->spec;
    const int64_t n = s->n_groups;
    char *const arrays = call->pointers[3 * s->n_members];
    const uint64_t run = ATOMR_POINTER_RUN(s->n_members);
    const double alpha = atomr_blas_scalar(call, s->alpha), beta = atomr_blas_scalar(call, s->beta);
    void *const alphas = g->factors, *const betas = g->factors + n;
    for (int64_t i = 0; i < n; i++) {
        if (s->type == CUDA_R_64F) {
            ((double *)alphas)[i] = alpha;
            ((double *)betas)[i] = beta;
        } else {
            ((float *)alphas)[i] = (float)alpha;
            ((float *)betas)[i] = (float)beta;
        }
    }
    return b->t->cublasGemmGroupedBatchedEx(
        b->handle, ARRAY(g, trans_a), ARRAY(g, trans_b), ARRAY(g, m),
        ARRAY(g, n), ARRAY(g, k), alphas, (const void *const *)(void *)arrays,
        (cudaDataType_t)s->type, ARRAY(g, ld_a), (const void *const *)(void *)(arrays + run),
        (cudaDataType_t)s->type, ARRAY(g, ld_b), betas, (void *const *)(void *)(arrays + 2 * run),
        (cudaDataType_t)s->type, ARRAY(g, ld_c), (int)n, ARRAY(g, members),
        (cublasComputeType_t)s->compute);
}

int atomr_grouped_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_grouped *g = context;
    int code = check_addresses(g, call, failure);
    if (code != ATOMR_OK) return code;
    atomr_blas *b = NULL;
    void *const scratch = call->pointers[3 * g->spec.n_members + 1];
    code = atomr_blas_take(g->cuda, call->lane, scratch, (uint64_t)g->spec.workspace_bytes, CUBLAS_POINTER_MODE_HOST, &b,
                           failure);
    if (code != ATOMR_OK) return code;
    const cublasStatus_t status = multiply(g, call, b);
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "cublasGemmGroupedBatchedEx", failure);
}
