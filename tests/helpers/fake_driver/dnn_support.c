/* Which graphs the fake cuDNN has engines for: those for which the real one has them on an H200, as far as this project
 * uses them. */
#include "fake_dnn.h"

static bool dense(const dnn_tensor *t, bool channels_last) {
    int64_t step = 1;
    for (int64_t i = t->rank; i-- > 0;) {
        const int64_t axis = !channels_last ? i : i == 0 ? 0 : i == t->rank - 1 ? 1 : i + 1;
        if (t->shape[axis] != 1 && t->strides[axis] != step) return false;
        step *= t->shape[axis];
    }
    return true;
}

static bool is_convolution(const dnn_node *n) {
    return n->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           n->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           n->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

bool dnn_has_float_products(const dnn_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const dnn_node *const n = &g->nodes[i];
        if (!is_convolution(n) && n->kind != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
        for (int p = 0; p < n->n_ports; p++)
            if (g->tensors[n->port_tensors[p]].dtype == CUDNN_DATA_FLOAT) return true;
    }
    return false;
}

const char *dnn_refusal(const dnn_graph *g) {
    int convolutions = 0, pointwise = 0, plain = 0;
    bool last = true, wide = false, images = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const dnn_node *const n = &g->nodes[i];
        const bool image = is_convolution(n) || n->kind == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
                           n->kind == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
        images = images || image;
        convolutions += is_convolution(n);
        pointwise += n->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
        plain += n->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
                 (n->mode == CUDNN_POINTWISE_ADD || n->mode == CUDNN_POINTWISE_RELU_FWD);
        for (int p = 0; p < n->n_ports; p++) {
            const dnn_tensor *const t = &g->tensors[n->port_tensors[p]];
            if (image && !dense(t, true) && !dense(t, false)) return "a tensor that is dense in no order";
            last = last && (dense(t, true) || t->by_value);
            wide = wide || t->dtype == CUDNN_DATA_DOUBLE;
        }
    }
    if (images && !convolutions && (!last || wide)) return "pooling of tensors whose channels are not innermost";
    if (convolutions && pointwise > plain && (!last || wide)) return "a fusion with tensors whose channels are not innermost";
    if (!images && pointwise == g->n_nodes && wide) return "pointwise operations in double precision";
    return NULL;
}
