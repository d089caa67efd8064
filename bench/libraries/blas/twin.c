/* cuBLAS in a loop: y += x of 1024 float32, and a unit triangular solve of 64 x 64 with 16 right sides, as row-major
 * arrays have it: column by column, op(A) X = B is X' op(A') = B', with A' upper and on the right. */
#include "libraries/cublas/call.h"
#include "loops.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 1024, ROWS = 64, COLUMNS = 16, ELEMENT = 4 };

static struct {
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*axpy)(cublasHandle_t, int, const float *, const float *, int, float *, int);
    cublasStatus_t (*trsm)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int,
                           int, const float *, const float *, int, float *, int);
} blas;
static cublasHandle_t handle;
static CUdeviceptr x, y, triangle, sides;

static void blas_ok(cublasStatus_t status, const char *what) {
    if (status) die(what, status);
}

static int bind(void *library, const char *name, void *into) {
    void *symbol = dlsym(library, name);
    memcpy(into, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *prepare(void) {
    if (handle) return NULL;
    const char *path = getenv("ATOMR_NATIVE_CUBLAS");
    void *library = dlopen(path && *path ? path : "libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "cuBLAS does not load: neither libcublas.so.13 nor libcublas.so.12";
    if (!bind(library, "cublasCreate_v2", &blas.create) || !bind(library, "cublasSetStream_v2", &blas.set_stream) ||
        !bind(library, "cublasSaxpy_v2", &blas.axpy) || !bind(library, "cublasStrsm_v2", &blas.trsm))
        return "this cuBLAS lacks a function";
    x = device_memory(ELEMENTS * ELEMENT);
    y = device_memory(ELEMENTS * ELEMENT);
    triangle = device_memory(ROWS * ROWS * ELEMENT);
    sides = device_memory(ROWS * COLUMNS * ELEMENT);
    blas_ok(blas.create(&handle), "cublasCreate");
    blas_ok(blas.set_stream(handle, (cudaStream_t)streams[0]), "cublasSetStream");
    return NULL;
}

static void axpy(int n) {
    const float one = 1.0F;
    for (int i = 0; i < n; i++)
        blas_ok(blas.axpy(handle, ELEMENTS, &one, (const float *)(uintptr_t)x, 1, (float *)(uintptr_t)y, 1),
                "cublasSaxpy");
}

static void trsm(int n) {
    const float one = 1.0F;
    for (int i = 0; i < n; i++)
        blas_ok(blas.trsm(handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, 0, CUBLAS_DIAG_UNIT, COLUMNS, ROWS, &one,
                          (const float *)(uintptr_t)triangle, ROWS, (float *)(uintptr_t)sides, COLUMNS),
                "cublasStrsm");
}

static void wait_for_stream(void) { ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize"); }

static void axpy_sustained(int n) {
    axpy(n);
    wait_for_stream();
}

static void trsm_sustained(int n) {
    trsm(n);
    wait_for_stream();
}

static void axpy_synchronize(int n) {
    for (int i = 0; i < n; i++) axpy_sustained(1);
}

static void trsm_synchronize(int n) {
    for (int i = 0; i < n; i++) trsm_sustained(1);
}

static const contender loops[] = {
    {"saxpy", prepare, axpy, synchronize},
    {"saxpy-sustained", prepare, axpy_sustained, synchronize},
    {"saxpy-synchronize", prepare, axpy_synchronize, synchronize},
    {"strsm", prepare, trsm, synchronize},
    {"strsm-sustained", prepare, trsm_sustained, synchronize},
    {"strsm-synchronize", prepare, trsm_synchronize, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
