/* What the parts of the fake cuDNN share: operation graphs, and their computation in double precision. */
#ifndef FAKE_DNN_H
#define FAKE_DNN_H

#include "fake_driver.h"
#include "libraries/cudnn/table.h"

enum { DNN_RANK = 6, DNN_PORTS = 16, DNN_NUMBERS = 6, DNN_NODES = 64, DNN_TENSORS = 120 };

typedef struct {
    int64_t uid, rank, shape[DNN_RANK], strides[DNN_RANK], total;
    int dtype, is_virtual, by_value;
    int ragged; /* of packed sequences, the tensor of the elements at which they begin; else -1 */
} dnn_tensor;

/* A node: its ports by the attributes that name them, the attributes of its own descriptor by name. */
typedef struct {
    int kind, mode, compute, training;
    int n_ports, ports[DNN_PORTS], port_tensors[DNN_PORTS];
    int64_t before[3], after[3], stride[3], dilation[3], window[3], axis;
    double alpha, beta, number;
} dnn_node;

typedef struct {
    int n_tensors, n_nodes;
    dnn_tensor tensors[DNN_TENSORS];
    dnn_node nodes[DNN_NODES];
} dnn_graph;

/* The tensor at a port; NULL: there is none. */
const dnn_tensor *dnn_at(const dnn_graph *, const dnn_node *, int port);
/* Whether some engine supports the graph, else why not. */
const char *dnn_refusal(const dnn_graph *);
/* Whether it has products of float32, which engines on tensor cores round. */
bool dnn_has_float_products(const dnn_graph *);

/* A run in a stream's thread. */
typedef struct {
    const dnn_graph *graph;
    int rounds; /* operands of products are rounded to TensorFloat-32 */
    void *workspace;
    size_t workspace_bytes;
    void *pointers[DNN_TENSORS];
    uint64_t values[DNN_TENSORS]; /* of tensors that are passed by value, as they were at the call */
} dnn_run;
void dnn_compute(void *run);

/* A call of the older interface in a stream's thread: softmax or a local response norm along axis 1 of dense tensors. */
typedef struct {
    int norm, backward, dtype, algorithm;
    int64_t outer, channels, inner;
    unsigned size;
    double scale, power, k;
    const void *x, *y, *dy;
    void *to;
} dnn_call;
void dnn_compute_call(void *call);

/* An element of a tensor, and how it is stored. */
size_t dnn_size_of(int dtype);
double dnn_get(const void *, int dtype);
void dnn_put(void *, int dtype, double);

#endif
