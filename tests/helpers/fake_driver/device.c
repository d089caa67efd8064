/* Devices, contexts, errors. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

fake_options options;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_progress = PTHREAD_COND_INITIALIZER;

static struct CUctx_st contexts[MAX_DEVICES];
static __thread CUcontext current, below[16]; /* and those that it was pushed on */
static __thread unsigned depth;
static atomic_int owner; /* the process that called cuInit: it does not work in a forked child */
static atomic_int sticky;

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints"},
};

CUresult cuGetErrorName(CUresult error, const char **text) {
    if (!text) return ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *text = errors[i].name;
    return *text ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    if (!text) return ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *text = errors[i].text;
    return *text ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}

CUresult fake_error(void) { return atomic_load(&sticky); }

void fake_set_error(CUresult error) {
    int none = 0;
    pthread_mutex_lock(&fake_lock);
    atomic_compare_exchange_strong(&sticky, &none, error);
    pthread_cond_broadcast(&fake_progress);
    pthread_mutex_unlock(&fake_lock);
}

static unsigned long long number(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void make_uuid(unsigned physical, CUuuid *uuid) {
    for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(0xFA + 37 * i);
    uuid->bytes[15] = (char)physical;
}

static void print_uuid(unsigned physical, char text[64]) {
    CUuuid uuid;
    make_uuid(physical, &uuid);
    int used = snprintf(text, 64, "GPU-");
    for (int i = 0; i < 16; i++)
        used += snprintf(text + used, 64 - (size_t)used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                         (unsigned char)uuid.bytes[i]);
}

/* The device that an entry of CUDA_VISIBLE_DEVICES names, or -1. */
static int named(const char *entry, unsigned count) {
    char *end, uuid[64];
    const long index = strtol(entry, &end, 10);
    if (end != entry && !*end) return index >= 0 && index < (long)count ? (int)index : -1;
    for (unsigned i = 0; i < count && strlen(entry) >= 4; i++) {
        print_uuid(i, uuid);
        if (strncasecmp(uuid, entry, strlen(entry)) == 0) return (int)i;
    }
    return -1;
}

static void see_devices(void) {
    unsigned count = (unsigned)number("FAKE_CUDA_DEVICES", 1);
    if (count > MAX_DEVICES) count = MAX_DEVICES;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    options.devices = 0;
    if (!visible) {
        for (; options.devices < count; options.devices++) options.physical[options.devices] = options.devices;
        return;
    }
    char text[1024], *rest = text, *entry;
    snprintf(text, sizeof text, "%s", visible);
    while ((entry = strsep(&rest, ",")) && options.devices < MAX_DEVICES) {
        const int found = named(entry, count);
        if (found < 0) break; /* the real one, too, forgets what comes after one that it does not know */
        options.physical[options.devices++] = (unsigned)found;
    }
}

CUresult cuInit(unsigned int flags) {
    MAY_REFUSE();
    if (flags) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    if (!atomic_load(&owner)) {
        const char *machine = getenv("FAKE_CUDA_MACHINE");
        options.memory = number("FAKE_CUDA_MEMORY", 8ull << 30);
        options.delay_us = (unsigned)number("FAKE_CUDA_DELAY_US", 0);
        options.seed = number("FAKE_CUDA_SEED", 1);
        options.queue = (unsigned)number("FAKE_CUDA_QUEUE", 1024);
        options.meet = (unsigned)number("FAKE_CUDA_MEET", 1);
        options.peer = number("FAKE_CUDA_PEER", 1) != 0;
        options.protect = number("FAKE_CUDA_PROTECT", 1) != 0;
        if (machine && *machine)
            snprintf(options.machine, sizeof options.machine, "%s", machine);
        else
            snprintf(options.machine, sizeof options.machine, "user%u", (unsigned)getuid());
        see_devices();
        for (int i = 0; i < MAX_DEVICES; i++) contexts[i].device = i;
        fake_catch_signals();
        atomic_store(&owner, getpid());
    }
    pthread_mutex_unlock(&fake_lock);
    return options.devices ? CUDA_SUCCESS : ERROR_NO_DEVICE;
}

static CUresult ready(void) { return atomic_load(&owner) == getpid() ? CUDA_SUCCESS : ERROR_NOT_INITIALIZED; }

static CUresult check_device(CUdevice device) {
    const CUresult r = ready();
    if (r) return r;
    return device >= 0 && (unsigned)device < options.devices ? CUDA_SUCCESS : ERROR_INVALID_DEVICE;
}

CUresult fake_enter(CUcontext *context) {
    const CUresult r = ready();
    if (r) return r;
    if (!current) return ERROR_INVALID_CONTEXT;
    if (!current->retained) return ERROR_CONTEXT_IS_DESTROYED;
    *context = current;
    return atomic_load(&sticky);
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    const CUresult r = ready();
    if (r || !count) return r ? r : ERROR_INVALID_VALUE;
    *count = (int)options.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!device) return ERROR_INVALID_VALUE;
    const CUresult r = check_device(ordinal);
    if (!r) *device = ordinal;
    return r;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    const CUresult r = check_device(device);
    if (r || !name || size <= 0) return r ? r : ERROR_INVALID_VALUE;
    snprintf(name, (size_t)size, "Fake CUDA device");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    const CUresult r = check_device(device);
    if (r || !uuid) return r ? r : ERROR_INVALID_VALUE;
    make_uuid(options.physical[device], uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
    const CUresult r = check_device(device);
    if (r || !text || size < 13) return r ? r : ERROR_INVALID_VALUE;
    snprintf(text, (size_t)size, "0000:%02X:00.0", 0xF0 + options.physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    const CUresult r = check_device(device);
    if (r || !value) return r ? r : ERROR_INVALID_VALUE;
    static const struct {
        int attribute, value;
    } known[] = {
        {1, 1024},           /* MAX_THREADS_PER_BLOCK */
        {2, 1024},           /* MAX_BLOCK_DIM_X */
        {3, 1024},           /* MAX_BLOCK_DIM_Y */
        {4, 64},             /* MAX_BLOCK_DIM_Z */
        {5, 0x7fffffff},     /* MAX_GRID_DIM_X */
        {6, 65535},          /* MAX_GRID_DIM_Y */
        {7, 65535},          /* MAX_GRID_DIM_Z */
        {8, 49152},          /* MAX_SHARED_MEMORY_PER_BLOCK */
        {10, 32},            /* WARP_SIZE */
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2},
        {19, 1},             /* CAN_MAP_HOST_MEMORY */
        {31, 1},             /* CONCURRENT_KERNELS */
        {40, 3},             /* ASYNC_ENGINE_COUNT */
        {41, 1},             /* UNIFIED_ADDRESSING */
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {91, 1},             /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
        {97, 232448},        /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
        {102, 1},            /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
        {103, 1},            /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    };
    if (attribute <= 0 || attribute >= 150) return ERROR_INVALID_VALUE;
    *value = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) *value = known[i].value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CUresult r = check_device(device);
    if (!r) r = check_device(peer);
    if (r || !can) return r ? r : ERROR_INVALID_VALUE;
    *can = device != peer && options.peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    return peer && !flags && options.peer ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    const CUresult r = check_device(device);
    if (r || !bytes) return r ? r : ERROR_INVALID_VALUE;
    *bytes = options.memory;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    MAY_REFUSE();
    const CUresult r = check_device(device);
    if (r || !context) return r ? r : ERROR_INVALID_VALUE;
    if (atomic_load(&sticky)) return atomic_load(&sticky);
    pthread_mutex_lock(&fake_lock);
    contexts[device].retained++;
    pthread_mutex_unlock(&fake_lock);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    const CUresult r = check_device(device);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    const bool there = contexts[device].retained > 0;
    contexts[device].retained -= there;
    pthread_mutex_unlock(&fake_lock);
    return there ? CUDA_SUCCESS : ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    const CUresult r = ready();
    if (r) return r;
    if (context && (context < contexts || context >= contexts + options.devices || !context->retained))
        return ERROR_INVALID_CONTEXT;
    if (atomic_load(&sticky)) return atomic_load(&sticky);
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    const CUcontext before = current;
    if (!context || depth == sizeof below / sizeof *below) return ERROR_INVALID_CONTEXT;
    const CUresult r = cuCtxSetCurrent(context);
    if (!r) below[depth++] = before;
    return r;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    const CUresult r = ready();
    if (r || !current) return r ? r : ERROR_INVALID_CONTEXT;
    if (context) *context = current;
    current = depth ? below[--depth] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    const CUresult r = check_device(device);
    if (r || !flags || !active) return r ? r : ERROR_INVALID_VALUE;
    *flags = 0;
    *active = contexts[device].retained > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    const CUresult r = ready();
    if (r || !context) return r ? r : ERROR_INVALID_VALUE;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    CUcontext context;
    const CUresult r = fake_enter(&context);
    if (r || !device) return r ? r : ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}
