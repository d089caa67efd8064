/* cuLaunchKernel in a loop: alone, overlapping, with a synchronize each, from four threads, and on streams in turn; and
 * cuGraphLaunch of a graph of 100 kernels, with parameters that stay or change, and of one with four chains of 25.
 *
 * Settings: kernel, a file of machine code; function, in it; block, its number of threads. */
#include "loops.h"

#include <stdlib.h>

enum { KERNEL_ELEMENTS = 32 };

static CUfunction kernel;
static unsigned threads_of_block;
static CUdeviceptr arrays[THREADS]; /* one each; the loops of dependent kernels share the first */
static CUevent events[THREADS];

static const char *prepare(void) {
    enum { BYTES = 4096 };
    if (kernel) return NULL;
    const char *image = setting("kernel"), *function = setting("function"), *block = setting("block");
    if (!image || !function || !block) return "no kernel on the command line";
    kernel = load_kernel(driver, image, function);
    threads_of_block = (unsigned)atoi(block);
    for (int i = 0; i < THREADS; i++) {
        arrays[i] = device_memory(BYTES);
        ok(driver->cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    return NULL;
}

static void launch(int stream, int array) {
    double one = 1.0, zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[array], &one, &zero, &elements};
    ok(driver->cuLaunchKernel(kernel, 1, 1, 1, threads_of_block, 1, 1, 0, streams[stream], arguments, NULL),
       "cuLaunchKernel");
}

static void launch_only(int n) {
    for (int i = 0; i < n; i++) launch(0, 0);
}

static void sustained(int n) {
    launch_only(n);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static const char *prepare_overlapping(void) {
    const char *why = can_overlap();
    return why ? why : prepare();
}

static void overlapping(int n) {
    double one = 1.0, zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[0], &one, &zero, &elements};
    for (int i = 0; i < n; i++) launch_overlapping(kernel, threads_of_block, streams[0], arguments);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static void with_synchronize(int n) {
    for (int i = 0; i < n; i++) sustained(1);
}

static void quarter(int thread, int n) {
    for (int i = thread; i < n; i += THREADS) launch(thread, thread);
    ok(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
}

static void four_threads(int n) { in_threads(quarter, n); }

/* Each kernel waits for the last one, which ran on another stream. */
static void hop(int n, int over) {
    for (int i = 0; i < n; i++) {
        const int here = i % over, last = (i + over - 1) % over;
        if (i > 0) ok(driver->cuStreamWaitEvent(streams[here], events[last], 0), "cuStreamWaitEvent");
        launch(here, 0);
        ok(driver->cuEventRecord(events[here], streams[here]), "cuEventRecord");
    }
    if (n > 0) ok(driver->cuStreamSynchronize(streams[(n - 1) % over]), "cuStreamSynchronize");
}

static void two_streams(int n) { hop(n, 2); }
static void three_streams(int n) { hop(n, 3); }

/* ---- graphs of kernels, each of which depends on the last one that has the same array */

enum { GRAPH_KERNELS = 100 };

typedef struct {
    const int chains;
    CUgraph graph;
    CUgraphExec instance;
    CUgraphNode nodes[GRAPH_KERNELS];
} program;
static program chain = {.chains = 1}, branches = {.chains = THREADS};

static const char *capture(program *p) {
    const char *why = prepare();
    if (why || p->instance) return why;
    if (!driver->cuStreamBeginCaptureToGraph || !driver->cuGraphExecKernelNodeSetParams_v2)
        return "the driver has no captures into graphs: CUDA 12.3";
    ok(driver->cuGraphCreate(&p->graph, 0), "cuGraphCreate");
    for (int i = 0; i < GRAPH_KERNELS; i++) {
        CUstreamCaptureStatus status;
        const CUgraphNode *last;
        const CUgraphEdgeData *edges;
        CUgraph into;
        size_t n;
        const int first = i < p->chains;
        ok(driver->cuStreamBeginCaptureToGraph(streams[0], p->graph, first ? NULL : &p->nodes[i - p->chains], NULL,
                                               first ? 0 : 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
           "cuStreamBeginCaptureToGraph");
        launch(0, i % p->chains);
        ok(driver->cuStreamGetCaptureInfo_v3(streams[0], &status, NULL, NULL, &last, &edges, &n),
           "cuStreamGetCaptureInfo");
        p->nodes[i] = last[0];
        ok(driver->cuStreamEndCapture(streams[0], &into), "cuStreamEndCapture");
    }
    ok(driver->cuGraphInstantiateWithFlags(&p->instance, p->graph, 0), "cuGraphInstantiate");
    return NULL;
}

static const char *prepare_graph(void) { return capture(&chain); }
static const char *prepare_branches(void) { return capture(&branches); }

static void launch_program(const program *p) { ok(driver->cuGraphLaunch(p->instance, streams[0]), "cuGraphLaunch"); }
static void launch_graph(void) { launch_program(&chain); }

static void programs_sustained(const program *p, int n) {
    for (int i = 0; i < n; i++) launch_program(p);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static void programs_synchronized(const program *p, int n) {
    for (int i = 0; i < n; i++) programs_sustained(p, 1);
}

static void graphs(int n) {
    for (int i = 0; i < n; i++) launch_graph();
}

static void graphs_sustained(int n) { programs_sustained(&chain, n); }
static void graphs_synchronized(int n) { programs_synchronized(&chain, n); }
static void branches_sustained(int n) { programs_sustained(&branches, n); }
static void branches_synchronized(int n) { programs_synchronized(&branches, n); }

static void set(int node, int array, double factor) {
    double zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[array], &factor, &zero, &elements};
    const CUDA_KERNEL_NODE_PARAMS given = {.func = kernel,
                                           .gridDimX = 1,
                                           .gridDimY = 1,
                                           .gridDimZ = 1,
                                           .blockDimX = threads_of_block,
                                           .blockDimY = 1,
                                           .blockDimZ = 1,
                                           .kernelParams = arguments};
    ok(driver->cuGraphExecKernelNodeSetParams_v2(chain.instance, chain.nodes[node], &given), "cuGraphExecKernelNodeSetParams");
}

static void graphs_with_another_number(int n) {
    for (int i = 0; i < n; i++) {
        set(0, 0, i & 1);
        launch_graph();
    }
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static void graphs_with_another_array(int n) {
    for (int i = 0; i < n; i++) {
        for (int node = 0; node < GRAPH_KERNELS; node++) set(node, i & 1, 1.0);
        launch_graph();
    }
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static const contender loops[] = {
    {"launch", prepare, launch_only, synchronize},
    {"launch-sustained", prepare, sustained, synchronize},
    {"launch-overlapping", prepare_overlapping, overlapping, synchronize},
    {"launch-synchronize", prepare, with_synchronize, synchronize},
    {"launch-four-threads", prepare, four_threads, synchronize},
    {"launch-two-streams", prepare, two_streams, synchronize},
    {"launch-three-streams", prepare, three_streams, synchronize},
    {"graph-launch", prepare_graph, graphs, synchronize},
    {"graph-sustained", prepare_graph, graphs_sustained, synchronize},
    {"graph-synchronize", prepare_graph, graphs_synchronized, synchronize},
    {"graph-set-one", prepare_graph, graphs_with_another_number, synchronize},
    {"graph-set-all", prepare_graph, graphs_with_another_array, synchronize},
    {"branches-sustained", prepare_branches, branches_sustained, synchronize},
    {"branches-synchronize", prepare_branches, branches_synchronized, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
