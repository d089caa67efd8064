/* Modules and launches: a module is a shared library that kernel_shim.py has compiled. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MODULE = 0x6d6f6475, MOST_THREADS = 1024, MOST_SHARED = 232448 };

/* As shim.h has them. */
struct fake_hooks {
    void (*fault)(int error);
    void (*sleep)(unsigned int nanoseconds);
    void (*condition)(unsigned long long handle, unsigned int value);
};
struct fake_kernel {
    const char *name;
    void (*launch)(void **arguments, const unsigned int *grid, const unsigned int *block);
    unsigned int n;
    const unsigned int *sizes;
};

struct CUfunc_st {
    const struct fake_kernel *kernel;
    CUmodule module;
    unsigned shared; /* dynamic, which it may have: none before it is asked for, as if its own arrays took all there is */
};

struct CUmod_st {
    uint32_t magic;
    void *library;
    pthread_mutex_t turn; /* one launch at a time: see shim.h */
    unsigned count;
    struct CUfunc_st functions[];
};

static void on_fault(int error) { fake_raise(error); }

/* A kernel that never ends does so when the context is gone. */
static void on_sleep(unsigned int nanoseconds) {
    const struct timespec nap = {0, (long)(nanoseconds % 1000000000u)};
    nanosleep(&nap, NULL);
    if (fake_error()) fake_raise(fake_error());
}

static const struct fake_hooks hooks = {on_fault, on_sleep, fake_set_condition};

static void *open_file(const void *image, size_t size) {
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/atomr-fake-module-XXXXXX", folder ? folder : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return NULL;
    void *library = write(fd, image, size) == (ssize_t)size ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    close(fd);
    unlink(path);
    return library;
}

/* The loader takes a library whose name it knows for the one that it has, so that each needs a name of its own, although
 * all are descriptors of memory with few numbers: slashes and dots spell another number in front. */
void *fake_open_image(const void *image, size_t size) {
    static uint32_t counter;
    char path[128];
    const int fd = memfd_create("atomr-fake-module", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    void *library = NULL;
    if (write(fd, image, size) == (ssize_t)size) {
        const uint32_t number = __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
        int used = snprintf(path, sizeof path, "/proc/self");
        for (int bit = 0; bit < 24; bit++)
            used += snprintf(path + used, sizeof path - (size_t)used, number >> bit & 1 ? "//." : "/.");
        snprintf(path + used, sizeof path - (size_t)used, "/fd/%d", fd);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_file(image, size); /* some kernels forbid to run what lies in memory only */
        if (!library) fprintf(stderr, "fake CUDA: %s\n", dlerror());
    }
    close(fd);
    return library;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    const Elf64_Ehdr *elf = image;
    if (!module || !image) return ERROR_INVALID_VALUE;
    if (memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return ERROR_INVALID_IMAGE;
    /* The linker puts the section headers last. */
    void *library = fake_open_image(image, elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize);
    const struct fake_kernel *kernels = library ? dlsym(library, "fake_kernels") : NULL;
    const struct fake_hooks **into = library ? dlsym(library, "fake_hooks") : NULL;
    if (!kernels || !into) {
        if (library) dlclose(library);
        return ERROR_INVALID_IMAGE;
    }
    *into = &hooks;
    unsigned n = 0;
    while (kernels[n].name) n++;
    CUmodule m = calloc(1, sizeof *m + n * sizeof *m->functions);
    if (!m) return dlclose(library), CUDA_ERROR_OUT_OF_MEMORY;
    m->magic = MODULE;
    m->library = library;
    m->count = n;
    pthread_mutex_init(&m->turn, NULL);
    for (unsigned i = 0; i < n; i++) m->functions[i] = (struct CUfunc_st){.kernel = &kernels[i], .module = m};
    *module = m;
    return CUDA_SUCCESS;
}

/* Waits for the device, as the real one does. */
CUresult cuModuleUnload(CUmodule module) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!module || module->magic != MODULE) return ERROR_INVALID_HANDLE;
    r = cuCtxSynchronize();
    if (r) return r;
    module->magic = 0;
    dlclose(module->library);
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!function || !name) return ERROR_INVALID_VALUE;
    if (!module || module->magic != MODULE) return ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < module->count; i++)
        if (strcmp(module->functions[i].kernel->name, name) == 0) {
            *function = &module->functions[i];
            return CUDA_SUCCESS;
        }
    return ERROR_NOT_FOUND;
}

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3];
    _Alignas(16) char values[]; /* of the arguments, each at a multiple of 16 bytes */
} launch;

static void run_launch(void *argument) {
    launch *l = argument;
    const struct fake_kernel *k = l->function->kernel;
    void *arguments[k->n + 1];
    char *at = l->values;
    for (unsigned i = 0; i < k->n; i++) {
        arguments[i] = at;
        at += (k->sizes[i] + 15) & ~15u;
    }
    pthread_mutex_lock(&l->function->module->turn);
    k->launch(arguments, l->grid, l->block);
    pthread_mutex_unlock(&l->function->module->turn);
}

CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!f || f->module->magic != MODULE) return ERROR_INVALID_HANDLE;
    const int largest = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES       ? (int)MOST_SHARED
                        : attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ? 1
                                                                                           : -1;
    if (value < 0 || value > largest) return ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) f->shared = (unsigned)value;
    return CUDA_SUCCESS;
}

/* What `run_launch` gets, and its size; NULL: the launch is refused, or there is no memory. */
static CUresult pack(CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared, void **arguments,
                     void **extra, launch **made, size_t *size) {
    if (!f || f->module->magic != MODULE) return ERROR_INVALID_HANDLE;
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 || !threads ||
        threads > MOST_THREADS || block[2] > 64 || shared > f->shared || (f->kernel->n && !arguments) || extra)
        return ERROR_INVALID_VALUE;
    *size = sizeof(launch);
    for (unsigned i = 0; i < f->kernel->n; i++) *size += (f->kernel->sizes[i] + 15) & ~15u;
    launch *l = calloc(1, *size);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    *l = (launch){f, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}};
    char *at = l->values;
    for (unsigned i = 0; i < f->kernel->n; i++) {
        memcpy(at, arguments[i], f->kernel->sizes[i]);
        at += (f->kernel->sizes[i] + 15) & ~15u;
    }
    *made = l;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **arguments, void **extra) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    launch *l;
    size_t size;
    r = pack(f, grid, block, shared, arguments, extra, &l, &size);
    if (r) return r;
    r = fake_enqueue(stream, run_launch, l, size, 0);
    free(l);
    return r;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!given || given->kern || given->ctx) return ERROR_INVALID_VALUE; /* which nobody gives */
    const unsigned grid[] = {given->gridDimX, given->gridDimY, given->gridDimZ};
    const unsigned block[] = {given->blockDimX, given->blockDimY, given->blockDimZ};
    launch *l;
    size_t size;
    r = pack(given->func, grid, block, given->sharedMemBytes, given->kernelParams, given->extra, &l, &size);
    if (r) return r;
    r = fake_set_node(exec, node, run_launch, l, size);
    free(l);
    return r;
}

/* As of a multiprocessor with 2048 threads and 227 KiB of shared memory, and kernels that use few registers. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!f || f->module->magic != MODULE) return ERROR_INVALID_HANDLE;
    if (!blocks || threads < 1 || threads > MOST_THREADS) return ERROR_INVALID_VALUE;
    const int by_threads = 2048 / threads, by_shared = shared ? (int)(MOST_SHARED / shared) : 32;
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32) *blocks = 32;
    return CUDA_SUCCESS;
}

/* Clusters and overlaps change nothing here, and cooperation only what fits: blocks run one after the other. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra) {
    MAY_REFUSE();
    if (!config || (config->numAttrs && !config->attrs)) return ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        int blocks, count;
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE) continue;
        const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
        const CUresult r =
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, (int)threads, config->sharedMemBytes);
        if (r) return r;
        cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
        if ((uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ > (uint64_t)blocks * (unsigned)count)
            return ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                          config->blockDimZ, config->sharedMemBytes, config->hStream, arguments, extra);
}
