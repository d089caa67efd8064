#include "cublas_grouped.h"

#include <stdio.h>

#include "cublas_private.h"

enum { R_32F = 0, R_64F = 1, COMPUTE_32F_FAST_TF32 = 77 };

int atomr_grouped_check(const atomr_grouped *g, atomr_failure *failure) {
    const atomr_grouped_spec *s = &g->spec;
    int64_t members = 0;
    int good = s->n_groups > 0 && s->n_members >= s->n_groups && s->n_operands == 3 * s->n_members + 2;
    good = good && s->alpha >= 0 && s->alpha < s->n_scalars && s->beta >= 0 && s->beta < s->n_scalars;
    for (int64_t i = 0; good && i < ATOMR_GROUP_NUMBERS * s->n_groups; i++) good = g->numbers[i] >= 0;
    for (int64_t i = 0; good && i < s->n_groups; i++) members += g->numbers[ATOMR_GROUP_SIZE * s->n_groups + i];
    good = good && members == s->n_members;
    return good ? ATOMR_OK : atomr_blas_refuse(ATOMR_INVALID_REQUEST, "malformed specification of a group", failure);
}

/* What the library asks of addresses where tensor cores read them: 16 bytes where rows along K have them, else 4. */
static int check_addresses(const atomr_grouped *g, const atomr_call *call, atomr_failure *failure) {
    const atomr_grouped_spec *s = &g->spec;
    const int64_t size = s->type == R_64F ? 8 : s->type == R_32F ? 4 : 2, groups = s->n_groups;
    int64_t member = 0;
    if (size > 2 && s->compute != COMPUTE_32F_FAST_TF32) return ATOMR_OK;
    for (int64_t i = 0; i < groups; i++) {
        const int64_t row = g->numbers[ATOMR_GROUP_K * groups + i] * size, count = g->numbers[ATOMR_GROUP_SIZE * groups + i];
        const uintptr_t least = row % 16 == 0 ? 16 : row % 4 == 0 ? 4 : (uintptr_t)size;
        for (const int64_t end = member + count; member < end; member++)
            for (int64_t j = 0; j < 3; j++) {
                if (((uintptr_t)call->pointers[j * s->n_members + member] & (least - 1)) == 0) continue;
                char text[200];
                snprintf(text, sizeof text,
                         "%s of member %lld starts at an address that is no multiple of %llu bytes, which cuBLAS's "
                         "grouped kernels need; copy it, or pass way='each'",
                         j == 0 ? "an operand" : j == 1 ? "the other operand" : "the output", (long long)member,
                         (unsigned long long)least);
                return atomr_blas_refuse(ATOMR_UNSUPPORTED, text, failure);
            }
    }
    return ATOMR_OK;
}

static cublasStatus_t multiply(atomr_grouped *g, const atomr_call *call, CUstream stream) {
    const atomr_grouped_spec *s = &g->spec;
    const int64_t n = s->n_groups;
    const atomr_cublas_table *t = &g->owner->t;
    const cublasHandle_t h = g->owner->handle;
    char *const arrays = call->pointers[3 * s->n_members];
    const uint64_t run = ATOMR_POINTER_RUN(s->n_members);
    const double alpha = atomr_blas_scalar(call, s->alpha), beta = atomr_blas_scalar(call, s->beta);
    void *const alphas = g->factors, *const betas = g->factors + n;
    for (int64_t i = 0; i < n; i++) {
        if (s->type == R_64F) {
            ((double *)alphas)[i] = alpha;
            ((double *)betas)[i] = beta;
        } else {
            ((float *)alphas)[i] = (float)alpha;
            ((float *)betas)[i] = (float)beta;
        }
    }
    const int *const numbers = g->numbers;
    cublasStatus_t status = t->cublasSetStream_v2(h, stream); /* which forgets the workspace */
    if (status == 0)
        status = t->cublasSetWorkspace_v2(h, call->pointers[3 * s->n_members + 1], (size_t)g->workspace_bytes);
    if (status == 0) status = t->cublasSetPointerMode_v2(h, CUBLAS_POINTER_MODE_HOST);
    if (status == 0)
        status = t->cublasGemmGroupedBatchedEx(
            h, numbers + ATOMR_GROUP_TRANS_A * n, numbers + ATOMR_GROUP_TRANS_B * n, numbers + ATOMR_GROUP_M * n,
            numbers + ATOMR_GROUP_N * n, numbers + ATOMR_GROUP_K * n, alphas, (const void *const *)(void *)arrays,
            (cudaDataType_t)s->type, numbers + ATOMR_GROUP_LD_A * n, (const void *const *)(void *)(arrays + run),
            (cudaDataType_t)s->type, numbers + ATOMR_GROUP_LD_B * n, betas, (void *const *)(void *)(arrays + 2 * run),
            (cudaDataType_t)s->type, numbers + ATOMR_GROUP_LD_C * n, (int)n, numbers + ATOMR_GROUP_SIZE * n,
            (cublasComputeType_t)s->compute);
    return status;
}

int atomr_grouped_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_grouped *g = context;
    const int code = check_addresses(g, call, failure);
    if (code != ATOMR_OK) return code;
    const CUstream stream = atomr_cuda_stream(g->owner->cuda, call->lane);
    if (!stream) return atomr_blas_refuse(ATOMR_LIBRARY_ERROR, "the lane has no stream", failure);
    pthread_mutex_lock(&g->owner->busy);
    const cublasStatus_t status = multiply(g, call, stream);
    pthread_mutex_unlock(&g->owner->busy);
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "cublasGemmGroupedBatchedEx", failure);
}
