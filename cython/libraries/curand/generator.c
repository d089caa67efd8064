#include "libraries/curand/generator.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/failure.h"

const atomr_field atomr_draw_fields[] = {ATOMR_DRAW_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
const atomr_constant atomr_draw_constants[] = {
    ATOMR_CURAND_CONSTANTS(ATOMR_CONSTANT) ATOMR_DRAW_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

enum { PARAMETERS = 2 };

struct atomr_generator {
    atomr_cuda *cuda; /* NULL: of the host */
    const atomr_curand_table *t;
    atomr_draw_spec spec;
    curandGenerator_t state;
    CUstream stream;
    uint64_t seed, next; /* where the state is */
    int used, seeded, placed; /* whether it was ever drawn from; whether these are known */
};

static const char *constant(int64_t value, const char *prefix) {
    for (const atomr_constant *c = atomr_draw_constants; c->name; c++)
        if (c->value == value && strncmp(c->name, prefix, strlen(prefix)) == 0) return c->name;
    return "unknown";
}
static const char *name_of(curandStatus_t status) { return constant(status, "CURAND_STATUS_"); }
static const char *kind_of(const atomr_draw_spec *s) { return constant(s->kind, "CURAND_RNG_"); }

/* Write down an error of the library's; returns its atomr_code. */
static int fail(const atomr_draw_spec *s, curandStatus_t status, const char *function, atomr_failure *failure) {
    const long long count = s->count;
    if (status == CURAND_STATUS_ALLOCATION_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "%s: no memory for %lld numbers of %s", function, count,
                             kind_of(s));
    const int refused = status == CURAND_STATUS_TYPE_ERROR || status == CURAND_STATUS_OUT_OF_RANGE ||
                        status == CURAND_STATUS_LENGTH_NOT_MULTIPLE || status == CURAND_STATUS_ARCH_MISMATCH ||
                        status == CURAND_STATUS_DOUBLE_PRECISION_REQUIRED;
    if (refused)
        return atomr_unsupported(failure, "random", "curand", "%s refuses %lld numbers of %s: %s (%d)", function, count,
                                 kind_of(s), name_of(status), status);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "curand", status, name_of(status), "%s, %lld numbers of %s",
                        function, count, kind_of(s));
}

static int is_quasi(const atomr_draw_spec *s) { return s->kind >= CURAND_RNG_QUASI_SOBOL32; }
/* The Mersenne Twisters have no offsets. */
static int has_offsets(const atomr_draw_spec *s) {
    return s->kind != CURAND_RNG_PSEUDO_MTGP32 && s->kind != CURAND_RNG_PSEUDO_MT19937;
}

static int malformed(const atomr_draw_spec *s) {
    int good = s->routine >= ATOMR_DRAW_WORDS && s->routine <= ATOMR_DRAW_POISSON && s->count >= 1 && s->step >= 0;
    good = good && s->n_parameters >= 0 && s->n_parameters <= PARAMETERS;
    good = good && (is_quasi(s) ? s->dimensions >= 1 : s->dimensions == 0);
    const int64_t needed = s->routine == ATOMR_DRAW_POISSON ? 1 : s->routine >= ATOMR_DRAW_NORMAL ? 2 : 0;
    return !good || s->n_parameters != needed;
}

static void destroy(atomr_generator *g) {
    if (g->state) g->t->curandDestroyGenerator(g->state);
    g->state = NULL;
}

/* Wait for what the lane has enqueued, and for the library's copies of states, which may be on the default stream. */
static curandStatus_t settle(const atomr_generator *g) {
    if (!g->cuda) return CURAND_STATUS_SUCCESS;
    const atomr_driver *const d = atomr_cuda_driver(g->cuda);
    CUresult r = g->stream ? d->cuStreamSynchronize(g->stream) : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS) r = d->cuStreamSynchronize(NULL);
    return r == CUDA_SUCCESS ? CURAND_STATUS_SUCCESS : CURAND_STATUS_PREEXISTING_FAILURE;
}

/* Make the library's generator, in the place of one that may be there. */
static curandStatus_t renew(atomr_generator *g, const char **function) {
    const atomr_draw_spec *const s = &g->spec;
    const atomr_curand_table *const t = g->t;
    destroy(g);
    g->seeded = g->placed = 0;
    *function = g->cuda ? "curandCreateGenerator" : "curandCreateGeneratorHost";
    curandStatus_t status =
        (g->cuda ? t->curandCreateGenerator : t->curandCreateGeneratorHost)(&g->state, (curandRngType_t)s->kind);
    if (status != CURAND_STATUS_SUCCESS) {
        g->state = NULL;
        return status;
    }
    if (s->ordering) {
        *function = "curandSetGeneratorOrdering";
        status = t->curandSetGeneratorOrdering(g->state, (curandOrdering_t)s->ordering);
    }
    if (status == CURAND_STATUS_SUCCESS && s->dimensions) {
        *function = "curandSetQuasiRandomGeneratorDimensions";
        status = t->curandSetQuasiRandomGeneratorDimensions(g->state, (unsigned)s->dimensions);
    }
    if (status == CURAND_STATUS_SUCCESS && g->stream) {
        *function = "curandSetStream";
        status = t->curandSetStream(g->state, g->stream);
    }
    if (status != CURAND_STATUS_SUCCESS) destroy(g);
    return status;
}

int atomr_generator_new(atomr_cuda *cuda, const atomr_draw_spec *s, atomr_generator **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    if (malformed(s)) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of random numbers");
    const atomr_curand_table *const t = atomr_curand_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_generator *const g = calloc(1, sizeof *g);
    if (!g) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a generator of cuRAND");
    g->cuda = cuda;
    g->t = t;
    g->spec = *s;
    const char *function = "";
    const curandStatus_t status = renew(g, &function);
    if (status != CURAND_STATUS_SUCCESS) {
        atomr_generator_delete(g);
        return fail(s, status, function, failure);
    }
    *made = g;
    return ATOMR_OK;
}

void atomr_generator_delete(atomr_generator *g) {
    if (!g) return;
    if (!g->cuda || atomr_cuda_enter(g->cuda) == CUDA_SUCCESS) destroy(g);
    free(g);
}

/* Set seed and offset, unless the state is there.  The library takes a seed that it has already for no change, so that only
 * a new generator begins again where there are no offsets. */
static curandStatus_t place(atomr_generator *g, uint64_t seed, uint64_t offset, const char **function) {
    const atomr_draw_spec *const s = &g->spec;
    curandStatus_t status = CURAND_STATUS_SUCCESS;
    if (g->state && g->used && !has_offsets(s)) {
        *function = "cuStreamSynchronize";
        status = settle(g); /* kernels that run read the state, which is freed with its generator */
        if (status == CURAND_STATUS_SUCCESS) destroy(g);
    }
    if (status == CURAND_STATUS_SUCCESS && !g->state) status = renew(g, function);
    if (status == CURAND_STATUS_SUCCESS && !is_quasi(s) && !(g->seeded && g->seed == seed)) {
        *function = "curandSetPseudoRandomGeneratorSeed";
        status = g->t->curandSetPseudoRandomGeneratorSeed(g->state, seed);
        g->placed = 0;
        if (status == CURAND_STATUS_SUCCESS && !has_offsets(s)) { /* tables are copied from the host */
            *function = "curandGenerateSeeds";
            status = g->t->curandGenerateSeeds(g->state);
            if (status == CURAND_STATUS_SUCCESS) status = settle(g);
        }
    }
    g->used = 1;
    if (status == CURAND_STATUS_SUCCESS && has_offsets(s) && !(g->placed && g->next == offset)) {
        *function = "curandSetGeneratorOffset";
        status = g->t->curandSetGeneratorOffset(g->state, offset);
    }
    g->placed = 0;
    g->seeded = status == CURAND_STATUS_SUCCESS;
    g->seed = seed;
    return status;
}

static double number(uint64_t word) {
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static curandStatus_t generate(atomr_generator *g, const atomr_draw_spec *s, void *out, const uint64_t *scalars,
                               const char **function) {
    const atomr_curand_table *const t = g->t;
    const size_t n = (size_t)s->count;
    const double a = s->n_parameters > 0 ? number(scalars[0]) : 0, b = s->n_parameters > 1 ? number(scalars[1]) : 0;
#define CALL(name, ...) (*function = #name, t->name(g->state, out, __VA_ARGS__))
    switch (2 * s->routine + !!s->wide) {
    case 2 * ATOMR_DRAW_WORDS: return CALL(curandGenerate, n);
    case 2 * ATOMR_DRAW_WORDS + 1: return CALL(curandGenerateLongLong, n);
    case 2 * ATOMR_DRAW_UNIFORM: return CALL(curandGenerateUniform, n);
    case 2 * ATOMR_DRAW_UNIFORM + 1: return CALL(curandGenerateUniformDouble, n);
    case 2 * ATOMR_DRAW_NORMAL: return CALL(curandGenerateNormal, n, (float)a, (float)b);
    case 2 * ATOMR_DRAW_NORMAL + 1: return CALL(curandGenerateNormalDouble, n, a, b);
    case 2 * ATOMR_DRAW_LOGNORMAL: return CALL(curandGenerateLogNormal, n, (float)a, (float)b);
    case 2 * ATOMR_DRAW_LOGNORMAL + 1: return CALL(curandGenerateLogNormalDouble, n, a, b);
    case 2 * ATOMR_DRAW_POISSON: return CALL(curandGeneratePoisson, n, a);
    }
#undef CALL
    *function = "curandGenerate";
    return CURAND_STATUS_TYPE_ERROR;
}

int atomr_generator_draw(atomr_generator *g, const atomr_draw_spec *s, void *out, const uint64_t *scalars,
                         atomr_failure *failure) {
    if (malformed(s)) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of random numbers");
    const uint64_t seed = scalars[s->n_parameters], offset = scalars[s->n_parameters + 1];
    if (!has_offsets(s) && offset)
        return atomr_unsupported(failure, "random", "curand_offset",
                                 "offset=%llu of numbers of %s, which has no offsets; allowed: 0",
                                 (unsigned long long)offset, kind_of(s));
    const char *function = "";
    curandStatus_t status = place(g, seed, offset, &function);
    if (status == CURAND_STATUS_SUCCESS) status = generate(g, s, out, scalars, &function);
    if (status != CURAND_STATUS_SUCCESS) {
        g->seeded = 0;
        return fail(s, status, function, failure);
    }
    g->placed = s->step > 0;
    g->next = offset + (uint64_t)s->step;
    return ATOMR_OK;
}

int atomr_generator_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_generator *const g = context;
    const CUstream stream = atomr_cuda_stream(g->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(g->cuda), "", "the lane has no stream");
    if (stream != g->stream) {
        const curandStatus_t status = g->state ? g->t->curandSetStream(g->state, stream) : CURAND_STATUS_SUCCESS;
        if (status != CURAND_STATUS_SUCCESS) return fail(&g->spec, status, "curandSetStream", failure);
        g->stream = stream;
    }
    return atomr_generator_draw(g, &g->spec, call->pointers[0], call->scalars, failure);
}
