#include "libraries/cufft/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/failure.h"

const atomr_field atomr_fft_fields[] = {ATOMR_FFT_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};
const atomr_constant atomr_fft_constants[] = {ATOMR_CUFFT_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

struct atomr_fft {
    atomr_cuda *cuda;
    const atomr_cufft_table *t;
    atomr_fft_spec spec;
    cufftHandle plan;
    size_t work;
    CUstream stream; /* these two are what the plan is set to */
    void *area;
    int placed; /* whether it has been given an area, if only NULL */
};

static const char *name_of(cufftResult status) {
    static const char prefix[] = "CUFFT_";
    /* The statuses come first, and then the directions. */
    for (const atomr_constant *c = atomr_fft_constants; c->name && strcmp(c->name, "CUFFT_FORWARD") != 0; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

/* Write down an error of the library's, with the sizes of the plan; returns its atomr_code. */
static int fail(const atomr_fft_spec *s, cufftResult status, const char *function, atomr_failure *failure) {
    char n[80];
    int used = 0;
    for (int64_t i = 0; i < s->rank; i++)
        used += snprintf(n + used, sizeof n - (size_t)used, "%s%lld", i ? " x " : "", (long long)s->n[i]);
    if (status == CUFFT_ALLOC_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "%s: no device memory for the tables of %lld transforms of %s",
                             function, (long long)s->batch, n);
    const int refused = status == CUFFT_NOT_SUPPORTED || status == CUFFT_NOT_IMPLEMENTED || status == CUFFT_INVALID_SIZE;
    if (refused)
        return atomr_unsupported(failure, "fft", "library", "%s refuses %lld transforms of %s: %s (%d)", function,
                                 (long long)s->batch, n, name_of(status), status);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cufft", status, name_of(status), "%s, %lld transforms of %s",
                        function, (long long)s->batch, n);
}

static int malformed(const atomr_fft_spec *s) {
    int good = s->rank >= 1 && s->rank <= ATOMR_FFT_AXES && s->batch >= 1 && s->n_operands >= 2;
    good = good && s->input >= 0 && s->input < s->n_operands && s->output >= 0 && s->output < s->n_operands;
    good = good && s->stride_in >= 1 && s->dist_in >= 1 && s->stride_out >= 1 && s->dist_out >= 1;
    good = good && s->alignment >= 1 && (s->alignment & (s->alignment - 1)) == 0;
    good = good && s->scratch >= 0 && s->scratch % 256 == 0;
    for (int64_t i = 0; good && i < s->rank; i++) good = s->n[i] >= 1 && s->embed_in[i] >= 1 && s->embed_out[i] >= 1;
    for (int i = 0; good && i < ATOMR_FFT_LOOPS; i++) good = s->loop[i] >= 1 && s->step_in[i] >= 0 && s->step_out[i] >= 0;
    return !good;
}

/* Have the plan call functions; the library says while it makes the plan whether it links them. */
static cufftResult set_callbacks(atomr_fft *p, const atomr_fft_callback *callbacks, unsigned n, const char **function) {
    *function = "cufftXtSetJITCallback";
    const atomr_fft_setter set = n ? atomr_cufft_setter() : NULL;
    if (n && !set) return CUFFT_NOT_IMPLEMENTED;
    for (unsigned i = 0; i < n; i++) {
        const atomr_fft_callback *const c = &callbacks[i];
        void *info = c->info;
        const cufftResult status = set(p->plan, c->symbol, c->code, c->nbytes, (cufftXtCallbackType)c->type, &info);
        if (status != CUFFT_SUCCESS) return status;
    }
    return CUFFT_SUCCESS;
}

int atomr_fft_new(atomr_cuda *cuda, const atomr_fft_spec *s, const atomr_fft_callback *callbacks, unsigned n_callbacks,
                  atomr_fft **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    if (malformed(s)) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a transform");
    const atomr_cufft_table *const t = atomr_cufft_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_fft *const p = calloc(1, sizeof *p);
    if (!p) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a plan of cuFFT");
    p->cuda = cuda;
    p->t = t;
    p->spec = *s;
    const char *function = "cufftCreate";
    cufftResult status = t->cufftCreate(&p->plan);
    if (status != CUFFT_SUCCESS) {
        free(p);
        return fail(s, status, function, failure);
    }
    function = "cufftSetAutoAllocation";
    status = t->cufftSetAutoAllocation(p->plan, 0);
    if (status == CUFFT_SUCCESS) status = set_callbacks(p, callbacks, n_callbacks, &function);
    if (status == CUFFT_SUCCESS) {
        /* The library takes these as pointers to what it might write. */
        long long n[ATOMR_FFT_AXES], in[ATOMR_FFT_AXES], out[ATOMR_FFT_AXES];
        for (int i = 0; i < ATOMR_FFT_AXES; i++) n[i] = s->n[i], in[i] = s->embed_in[i], out[i] = s->embed_out[i];
        function = "cufftXtMakePlanMany";
        status = t->cufftXtMakePlanMany(p->plan, (int)s->rank, n, in, s->stride_in, s->dist_in,
                                        (cudaDataType)s->type_in, out, s->stride_out, s->dist_out,
                                        (cudaDataType)s->type_out, s->batch, &p->work, (cudaDataType)s->type_exec);
    }
    if (status != CUFFT_SUCCESS) {
        t->cufftDestroy(p->plan);
        free(p);
        if (n_callbacks && status != CUFFT_ALLOC_FAILED)
            return atomr_unsupported(failure, "fft", "callback", "%s with functions: %s (%d)", function, name_of(status),
                                     status);
        return fail(s, status, function, failure);
    }
    *made = p;
    return ATOMR_OK;
}

uint64_t atomr_fft_work(const atomr_fft *p) { return p->work; }

void atomr_fft_delete(atomr_fft *p) {
    if (!p) return;
    if (atomr_cuda_enter(p->cuda) == CUDA_SUCCESS) p->t->cufftDestroy(p->plan);
    free(p);
}

/* Have the plan use this stream and this work area. */
static cufftResult point(atomr_fft *p, CUstream stream, void *area, const char **function) {
    cufftResult status = CUFFT_SUCCESS;
    if (stream != p->stream) {
        *function = "cufftSetStream";
        status = p->t->cufftSetStream(p->plan, stream);
        if (status == CUFFT_SUCCESS) p->stream = stream;
    }
    if (status == CUFFT_SUCCESS && (!p->placed || area != p->area)) {
        *function = "cufftSetWorkArea";
        status = p->t->cufftSetWorkArea(p->plan, area);
        p->placed = status == CUFFT_SUCCESS;
        p->area = area;
    }
    return status;
}

int atomr_fft_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_fft *const p = context;
    const atomr_fft_spec *const s = &p->spec;
    char *const in = call->pointers[s->input], *const out = call->pointers[s->output];
    const uint64_t bits = (uint64_t)(uintptr_t)in | (uint64_t)(uintptr_t)out;
    if (bits & (uint64_t)(s->alignment - 1))
        return atomr_unsupported(failure, "fft", "alignment",
                                 "an operand starts at an address aligned to %llu bytes only, and this plan was made for "
                                 "multiples of %lld; make one for this array, by a request or a call",
                                 (unsigned long long)(bits & (~bits + 1)), (long long)s->alignment);
    if (p->work && (uint64_t)s->scratch + p->work > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and this transform needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)s->scratch + p->work);
    const CUstream stream = atomr_cuda_stream(p->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(p->cuda), "", "the lane has no stream");
    const char *function = "cufftXtExec";
    cufftResult status = point(p, stream, p->work ? (char *)call->workspace + s->scratch : NULL, &function);
    if (status != CUFFT_SUCCESS) return fail(s, status, function, failure);
    for (int64_t i = 0; i < s->loop[0]; i++)
        for (int64_t j = 0; j < s->loop[1]; j++) {
            status = p->t->cufftXtExec(p->plan, in + i * s->step_in[0] + j * s->step_in[1],
                                       out + i * s->step_out[0] + j * s->step_out[1], (int)s->direction);
            if (status != CUFFT_SUCCESS) return fail(s, status, "cufftXtExec", failure);
        }
    return ATOMR_OK;
}
