/* cuTENSOR in a loop: a product of 32 x 32 float32, and a chain of five matrices of 64 x 64, of which each step but the
 * last leaves its result in scratch memory. */
#include "libraries/cutensor/names.h"
#include "loops.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SINGLE = 32, CHAIN = 64, STEPS = 4, ELEMENT = 4, ALIGNMENT = 256, LIMIT = 32 << 20 };

static struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUTENSOR_FUNCTIONS(F)
#undef F
} t;
static cutensorHandle_t handle;

typedef struct {
    cutensorPlan_t plan;
    CUdeviceptr a, b, d, workspace;
    uint64_t nbytes;
} product;
static product single, steps[STEPS];

static void tensor_ok(cutensorStatus_t status, const char *what) {
    if (status) die(what, status);
}

static product make(int n, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, cutensorComputeDescriptor_t compute) {
    product p = {.a = a, .b = b, .d = d};
    const int64_t extents[] = {n, n}, strides[] = {n, 1};
    static const int32_t modes[3][2] = {{0, 1}, {1, 2}, {0, 2}};
    cutensorTensorDescriptor_t matrix;
    cutensorOperationDescriptor_t operation;
    cutensorPlanPreference_t preference;
    tensor_ok(t.cutensorCreateTensorDescriptor(handle, &matrix, 2, extents, strides, CUDA_R_32F, ALIGNMENT),
              "cutensorCreateTensorDescriptor");
    tensor_ok(t.cutensorCreateContraction(handle, &operation, matrix, modes[0], CUTENSOR_OP_IDENTITY, matrix, modes[1],
                                          CUTENSOR_OP_IDENTITY, matrix, modes[2], CUTENSOR_OP_IDENTITY, matrix, modes[2],
                                          compute),
              "cutensorCreateContraction");
    tensor_ok(t.cutensorCreatePlanPreference(handle, &preference, CUTENSOR_ALGO_DEFAULT, CUTENSOR_JIT_MODE_NONE),
              "cutensorCreatePlanPreference");
    const int32_t rank = 0;
    tensor_ok(t.cutensorPlanPreferenceSetAttribute(handle, preference, CUTENSOR_PLAN_PREFERENCE_KERNEL_RANK, &rank,
                                                   sizeof rank),
              "cutensorPlanPreferenceSetAttribute");
    tensor_ok(t.cutensorCreatePlan(handle, &p.plan, operation, preference, LIMIT), "cutensorCreatePlan");
    tensor_ok(t.cutensorPlanGetAttribute(handle, p.plan, CUTENSOR_PLAN_REQUIRED_WORKSPACE, &p.nbytes, sizeof p.nbytes),
              "cutensorPlanGetAttribute");
    t.cutensorDestroyPlanPreference(preference);
    t.cutensorDestroyOperationDescriptor(operation);
    t.cutensorDestroyTensorDescriptor(matrix);
    if (p.nbytes) p.workspace = device_memory(p.nbytes);
    return p;
}

static CUdeviceptr square(int n) { return device_memory((uint64_t)n * (uint64_t)n * ELEMENT); }

static const char *prepare(void) {
    if (handle) return NULL;
    const char *path = getenv("ATOMR_NATIVE_CUTENSOR");
    void *library = dlopen(path && *path ? path : "libcutensor.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "cuTENSOR does not load: no libcutensor.so.2";
#define F(result, name, arguments)                                                                                     \
    {                                                                                                                  \
        void *symbol = dlsym(library, #name);                                                                          \
        if (!symbol) return "this cuTENSOR lacks " #name;                                                              \
        memcpy(&t.name, &symbol, sizeof symbol);                                                                       \
    }
    ATOMR_CUTENSOR_FUNCTIONS(F)
#undef F
    cutensorComputeDescriptor_t compute = NULL;
    const void *at = dlsym(library, "CUTENSOR_COMPUTE_DESC_32F");
    if (!at) return "this cuTENSOR lacks CUTENSOR_COMPUTE_DESC_32F";
    memcpy(&compute, at, sizeof compute);
    tensor_ok(t.cutensorCreate(&handle), "cutensorCreate");
    single = make(SINGLE, square(SINGLE), square(SINGLE), square(SINGLE), compute);
    CUdeviceptr left = square(CHAIN);
    for (int i = 0; i < STEPS; i++) {
        steps[i] = make(CHAIN, left, square(CHAIN), square(CHAIN), compute);
        left = steps[i].d;
    }
    return NULL;
}

static void run(const product *p) {
    const float one = 1.0F, zero = 0.0F;
    tensor_ok(t.cutensorContract(handle, p->plan, &one, (const void *)(uintptr_t)p->a, (const void *)(uintptr_t)p->b, &zero,
                                 (const void *)(uintptr_t)p->d, (void *)(uintptr_t)p->d, (void *)(uintptr_t)p->workspace,
                                 p->nbytes, (cudaStream_t)streams[0]),
              "cutensorContract");
}

static void contract(int n) {
    for (int i = 0; i < n; i++) run(&single);
}

static void chain(int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < STEPS; j++) run(&steps[j]);
}

static void wait_for_stream(void) { ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize"); }

static void contract_sustained(int n) {
    contract(n);
    wait_for_stream();
}

static void chain_sustained(int n) {
    chain(n);
    wait_for_stream();
}

static void contract_synchronize(int n) {
    for (int i = 0; i < n; i++) contract_sustained(1);
}

static void chain_synchronize(int n) {
    for (int i = 0; i < n; i++) chain_sustained(1);
}

static const contender loops[] = {
    {"contract", prepare, contract, synchronize},
    {"contract-sustained", prepare, contract_sustained, synchronize},
    {"contract-synchronize", prepare, contract_synchronize, synchronize},
    {"chain", prepare, chain, synchronize},
    {"chain-sustained", prepare, chain_sustained, synchronize},
    {"chain-synchronize", prepare, chain_synchronize, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
