/* A cuRAND without a GPU: the host generators of the real one, whose file FAKE_CUDA_CURAND names, drawn from when a call
 * is made; the numbers reach device memory in the order of the generator's stream.  Without that file no generator is
 * made.
 *
 * It follows the documented rules, the unpleasant ones, too: a generator has a stream of its own to set, pseudo-random
 * ones make normal numbers in pairs, nothing is drawn while the thread captures, and a generator that is destroyed takes
 * the state away that its calls in the stream read: they fault. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "libraries/curand/table.h"

struct curandGenerator_st {
    curandGenerator_t real;
    curandRngType_t kind;
    int host;
    CUstream stream;
    unsigned long long seed, wanted; /* of a Mersenne Twister on a device, which looks at its seed when it draws */
    struct memory *memory;
};

/* The state in device memory, which its calls in the stream hold, too. */
struct memory {
    _Atomic unsigned holders;
    _Atomic int freed;
};

static void let_go(struct memory *memory) {
    if (memory && --memory->holders == 0) free(memory);
}

static atomr_curand_table real;
/* Generators of devices that are alive, and calls that set a state: for tests in this process. */
_Atomic unsigned fake_generators, fake_generator_states;

/* With the lock held. */
static void open_real(void) {
    if (real.curandCreateGeneratorHost) return;
    const char *const file = getenv("FAKE_CUDA_CURAND");
    void *const library = file && *file ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
    if (!library) {
        fprintf(stderr, "fake cuRAND: %s\n", file && *file ? dlerror() : "no library");
        return;
    }
    atomr_curand_table found;
#define F(result, name, arguments) found.name = (result(*) arguments)dlsym(library, #name);
    ATOMR_CURAND_FUNCTIONS(F)
#undef F
    if (found.curandCreateGeneratorHost) real = found;
}

#define MAY_FAIL()                                                                                                    \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return (curandStatus_t)refusal_;                                                                \
    } while (0)

curandStatus_t curandGetProperty(libraryPropertyType type, int *value) {
    static const int version[] = {10, 4, 0};
    if (type < MAJOR_VERSION || type > PATCH_LEVEL) return CURAND_STATUS_OUT_OF_RANGE;
    *value = version[type];
    return CURAND_STATUS_SUCCESS;
}

static curandStatus_t create(curandGenerator_t *made, curandRngType_t kind, int host) {
    pthread_mutex_lock(&fake_lock);
    open_real();
    pthread_mutex_unlock(&fake_lock);
    if (!real.curandCreateGeneratorHost) return CURAND_STATUS_INITIALIZATION_FAILED;
    struct curandGenerator_st *const g = calloc(1, sizeof *g);
    struct memory *const memory = calloc(1, sizeof *memory);
    const curandStatus_t status =
        g && memory ? real.curandCreateGeneratorHost(&g->real, kind) : CURAND_STATUS_ALLOCATION_FAILED;
    if (status) {
        free(memory);
        free(g);
        return status;
    }
    memory->holders = 1;
    g->memory = memory;
    g->kind = kind;
    g->host = host;
    fake_generators += !host;
    *made = g;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandCreateGenerator(curandGenerator_t *made, curandRngType_t kind) {
    MAY_FAIL();
    CUcontext context;
    if (fake_enter(&context)) return CURAND_STATUS_INITIALIZATION_FAILED;
    return create(made, kind, 0);
}
curandStatus_t curandCreateGeneratorHost(curandGenerator_t *made, curandRngType_t kind) {
    MAY_FAIL();
    return create(made, kind, 1);
}
curandStatus_t curandDestroyGenerator(curandGenerator_t g) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    fake_generators -= !g->host;
    real.curandDestroyGenerator(g->real);
    g->memory->freed = 1;
    let_go(g->memory);
    free(g);
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetStream(curandGenerator_t g, cudaStream_t stream) {
    MAY_FAIL();
    g->stream = stream;
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long seed) {
    MAY_FAIL();
    fake_generator_states++;
    g->wanted = seed;
    if (!g->host && (g->kind == CURAND_RNG_PSEUDO_MTGP32 || g->kind == CURAND_RNG_PSEUDO_MT19937))
        return CURAND_STATUS_SUCCESS;
    g->seed = seed;
    return real.curandSetPseudoRandomGeneratorSeed(g->real, seed);
}
curandStatus_t curandSetGeneratorOffset(curandGenerator_t g, unsigned long long offset) {
    MAY_FAIL();
    fake_generator_states++;
    return real.curandSetGeneratorOffset(g->real, offset);
}
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t g, curandOrdering_t order) {
    MAY_FAIL();
    /* Another one than those of the host is best for a GPU; a fake one has no order of its own. */
    return real.curandSetGeneratorOrdering(g->real, order);
}
curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t g, unsigned int n) {
    MAY_FAIL();
    return real.curandSetQuasiRandomGeneratorDimensions(g->real, n);
}

curandStatus_t curandGenerateSeeds(curandGenerator_t g) {
    MAY_FAIL();
    return g->host || g->stream ? CURAND_STATUS_SUCCESS : CURAND_STATUS_LAUNCH_FAILURE;
}

typedef struct {
    void *from, *to;
    size_t nbytes;
    struct memory *memory;
} delivery;

static void deliver(void *argument) {
    const delivery *const d = argument;
    const int freed = d->memory->freed;
    let_go(d->memory);
    if (!freed) memcpy(d->to, d->from, d->nbytes);
    free(d->from);
    if (freed) fake_raise(ERROR_ILLEGAL_ADDRESS);
}

/* Where numbers are drawn to: the host's array, or memory that is delivered later. */
static curandStatus_t begin(curandGenerator_t g, void *out, size_t nbytes, void **into) {
    *into = out;
    if (g->host) return CURAND_STATUS_SUCCESS;
    if (!g->stream) return CURAND_STATUS_LAUNCH_FAILURE; /* this project has streams of its own */
    if (fake_unsafe()) return CURAND_STATUS_LAUNCH_FAILURE;
    if (g->seed != g->wanted) {
        g->seed = g->wanted;
        const curandStatus_t status = real.curandSetPseudoRandomGeneratorSeed(g->real, g->seed);
        if (status) return status;
    }
    *into = malloc(nbytes ? nbytes : 1);
    return *into ? CURAND_STATUS_SUCCESS : CURAND_STATUS_ALLOCATION_FAILED;
}

static curandStatus_t end(curandGenerator_t g, curandStatus_t status, void *out, size_t nbytes, void *from) {
    if (g->host) return status;
    const delivery d = {from, out, nbytes, g->memory};
    g->memory->holders++;
    if (status == CURAND_STATUS_SUCCESS && fake_enqueue(g->stream, deliver, &d, sizeof d, 0) == 0) return status;
    let_go(g->memory);
    free(from);
    return status ? status : CURAND_STATUS_LAUNCH_FAILURE;
}

static int pairs(curandGenerator_t g, size_t n) { return g->kind < CURAND_RNG_QUASI_SOBOL32 && n % 2; }

#define DRAW(name, type, odd, parameters, ...)                                                                        \
    curandStatus_t name parameters {                                                                                  \
        MAY_FAIL();                                                                                                   \
        void *into = NULL;                                                                                            \
        if ((odd) && pairs(g, n)) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;                                           \
        curandStatus_t status = begin(g, out, n * sizeof(type), &into);                                               \
        if (status) return status;                                                                                    \
        status = real.name(g->real, into, __VA_ARGS__);                                                               \
        return end(g, status, out, n * sizeof(type), into);                                                           \
    }

DRAW(curandGenerate, unsigned, 0, (curandGenerator_t g, unsigned *out, size_t n), n)
DRAW(curandGenerateLongLong, unsigned long long, 0, (curandGenerator_t g, unsigned long long *out, size_t n), n)
DRAW(curandGenerateUniform, float, 0, (curandGenerator_t g, float *out, size_t n), n)
DRAW(curandGenerateUniformDouble, double, 0, (curandGenerator_t g, double *out, size_t n), n)
DRAW(curandGenerateNormal, float, 1, (curandGenerator_t g, float *out, size_t n, float mean, float std), n, mean, std)
DRAW(curandGenerateNormalDouble, double, 1, (curandGenerator_t g, double *out, size_t n, double mean, double std), n,
     mean, std)
DRAW(curandGenerateLogNormal, float, 1, (curandGenerator_t g, float *out, size_t n, float mean, float std), n, mean, std)
DRAW(curandGenerateLogNormalDouble, double, 1, (curandGenerator_t g, double *out, size_t n, double mean, double std), n,
     mean, std)
DRAW(curandGeneratePoisson, unsigned, 0, (curandGenerator_t g, unsigned *out, size_t n, double rate), n, rate)
