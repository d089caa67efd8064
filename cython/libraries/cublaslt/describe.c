#include "libraries/cublaslt/private.h"

/* The builder is ours, but an index out of range would read beyond a message. */
int atomr_matmul_check(const atomr_matmul_spec *s, atomr_failure *failure) {
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
    if (s->pointers >= 0) { /* runs of operands; nothing but the product */
        const int64_t runs[] = {s->a, s->b, s->d, s->c};
        good = good && s->pointers < s->n_operands && s->batch > 1 && s->members > 0 && s->members <= s->n_operands;
        good = good && (s->members == s->batch || s->members == 1) && s->apart >= 0;
        for (unsigned i = 0; i < 4; i++) good = good && runs[i] + s->members <= s->n_operands;
        for (unsigned i = 1; i < 8; i++) good = good && optional[i] < 0;
    }
    good = good && !(s->bias >= 0 && s->bias_grad >= 0); /* cuBLASLt has one pointer for both */
    good = good && element_size(s->type_a) && element_size(s->type_b) && element_size(s->type_c);
    good = good && element_size(s->type_d) && s->batch >= 0 && s->batch <= INT32_MAX;
    good = good && element_size(s->scale) > 1 && s->workspace_bytes >= 0 && s->clear_aux >= 0;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed matmul specification");
}

static cublasStatus_t make_layout(const atomr_cublaslt *lt, cublasLtMatrixLayout_t *layout, int64_t type,
                                  int64_t order, int64_t rows, int64_t columns, int64_t ld, int64_t step,
                                  int64_t count, int by_pointers) {
    cublasStatus_t r =
        lt->cublasLtMatrixLayoutCreate(layout, (cudaDataType)type, (uint64_t)rows, (uint64_t)columns, ld);
    const int32_t order32 = (int32_t)order, count32 = (int32_t)count, mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    if (r == CUBLAS_STATUS_SUCCESS && order != CUBLASLT_ORDER_COL)
        r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order32, sizeof order32);
    if (r == CUBLAS_STATUS_SUCCESS && count != 1) {
        r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count32,
                                                 sizeof count32);
        if (r == CUBLAS_STATUS_SUCCESS && !by_pointers)
            r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                     sizeof step);
        if (r == CUBLAS_STATUS_SUCCESS && by_pointers) {
            r = lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode);
            if (r == CUBLAS_STATUS_INVALID_VALUE) r = CUBLAS_STATUS_NOT_SUPPORTED; /* the library is older than that */
        }
    }
    return r;
}

static cublasStatus_t make_desc(atomr_matmul *p) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const int32_t trans_a = (int32_t)s->trans_a, trans_b = (int32_t)s->trans_b;
    const uint32_t epilogue = (uint32_t)s->epilogue;
    cublasStatus_t r =
        lt->cublasLtMatmulDescCreate(&p->desc, (cublasComputeType_t)s->compute, (cudaDataType_t)s->scale);
    if (r == CUBLAS_STATUS_SUCCESS) r = set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof trans_a);
    if (r == CUBLAS_STATUS_SUCCESS) r = set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof trans_b);
    if (r == CUBLAS_STATUS_SUCCESS) r = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (r == CUBLAS_STATUS_SUCCESS && p->vector >= 0)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &s->step_bias, sizeof s->step_bias);
    const int32_t bias_type = (int32_t)s->type_bias, aux_type = (int32_t)s->type_aux;
    const int32_t mode_a = (int32_t)s->mode_a, mode_b = (int32_t)s->mode_b, on_device = CUBLASLT_POINTER_MODE_DEVICE;
    const int8_t fast = 1;
    if (r == CUBLAS_STATUS_SUCCESS && p->vector >= 0 && s->type_bias >= 0)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    if (r == CUBLAS_STATUS_SUCCESS && s->aux >= 0 && s->type_aux >= 0)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &aux_type, sizeof aux_type);
    if (r == CUBLAS_STATUS_SUCCESS && s->fast_accum)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (r == CUBLAS_STATUS_SUCCESS && s->mode_a)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode_a, sizeof mode_a);
    if (r == CUBLAS_STATUS_SUCCESS && s->mode_b)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode_b, sizeof mode_b);
    if (r == CUBLAS_STATUS_SUCCESS && s->alpha_at >= 0)
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_POINTER_MODE, &on_device, sizeof on_device);
    if (r == CUBLAS_STATUS_SUCCESS && s->aux >= 0) {
        r = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ld_aux, sizeof s->ld_aux);
        if (r == CUBLAS_STATUS_SUCCESS)
            r = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &s->step_aux, sizeof s->step_aux);
    }
    return r;
}

static cublasStatus_t make_layouts(atomr_matmul *p) {
    const atomr_cublaslt *lt = p->owner->lt;
    const atomr_matmul_spec *s = &p->spec;
    const int ta = s->trans_a != CUBLAS_OP_N, tb = s->trans_b != CUBLAS_OP_N, by = s->pointers >= 0;
    cublasStatus_t r = make_layout(lt, &p->a, s->type_a, s->order_a, ta ? s->k : s->m, ta ? s->m : s->k, s->ld_a,
                                   s->step_a, s->batch, by);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->b, s->type_b, s->order_b, tb ? s->n : s->k, tb ? s->k : s->n, s->ld_b, s->step_b,
                        s->batch, by);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->d, s->type_d, CUBLASLT_ORDER_COL, s->m, s->n, s->ld_d, s->step_d, s->batch, by);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = make_layout(lt, &p->c, s->type_c, CUBLASLT_ORDER_COL, s->m, s->n, s->ld_c, s->step_c, s->batch, by);
    return r;
}

static void add_pointer(atomr_matmul *p, int attribute, int64_t operand, int aligned, int blocks) {
    if (operand >= 0) p->pointers[p->n_pointers++] = (pointer){attribute, aligned, blocks, operand, NULL};
}

static void add_scales(atomr_matmul *p, int attribute, int64_t operand, int64_t mode) {
    add_pointer(p, attribute, operand, mode != 0, mode >= CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
}

static void list_pointers(atomr_matmul *p) {
    const atomr_matmul_spec *s = &p->spec;
    add_pointer(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->vector, 1, 0);
    add_pointer(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, s->aux, 1, 0);
    add_scales(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, s->a_scale, s->mode_a);
    add_scales(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, s->b_scale, s->mode_b);
    add_pointer(p, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, s->d_scale, 0, 0);
    add_pointer(p, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, s->amax, 0, 0);
}

cublasStatus_t atomr_matmul_describe(atomr_matmul *p) {
    list_pointers(p);
    const cublasStatus_t r = make_desc(p);
    return r == CUBLAS_STATUS_SUCCESS ? make_layouts(p) : r;
}
