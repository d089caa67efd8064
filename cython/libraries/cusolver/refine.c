#include "libraries/cusolver/refine.h"
#include "libraries/cusolver/private.h"

const atomr_field atomr_refinement_fields[] = {
    ATOMR_REFINEMENT_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

/* What the library keeps of one call.  Lanes share a plan, so each call makes its own. */
typedef struct {
    cusolverDnIRSParams_t params;
    cusolverDnIRSInfos_t infos;
} kept;

static int check(const atomr_refinement_spec *s, atomr_failure *failure) {
    const int64_t operands[] = {s->a, s->b, s->x, s->iterations, s->info, s->scratch};
    const int64_t extents[] = {s->n,       s->k,       s->most,    s->step[0], s->step[1],
                               s->step[2], s->jump[0], s->jump[1], s->jump[2]};
    int good = s->batch >= 1 && s->n >= 1 && s->k >= 1 && s->most >= 1;
    for (unsigned i = 0; i < 6; i++) good = good && operands[i] >= 0 && operands[i] < s->n_operands;
    for (unsigned i = 0; i < 9; i++) good = good && extents[i] >= 0 && (i > 5 || extents[i] <= INT32_MAX);
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed specification of a refined solve");
}

static void end(const atomr_solver *o, kept *k) {
    if (k->infos) o->t->cusolverDnIRSInfosDestroy(k->infos);
    if (k->params) o->t->cusolverDnIRSParamsDestroy(k->params);
}

static cusolverStatus_t begin(const atomr_solver *o, const atomr_refinement_spec *s, kept *k) {
    cusolverStatus_t status = o->t->cusolverDnIRSParamsCreate(&k->params);
    if (status == 0) status = o->t->cusolverDnIRSParamsSetRefinementSolver(k->params, (int)s->solver);
    if (status == 0) status = o->t->cusolverDnIRSParamsSetSolverPrecisions(k->params, (int)s->main, (int)s->lowest);
    if (status == 0) status = o->t->cusolverDnIRSParamsSetMaxIters(k->params, (int)s->most);
    if (status == 0) status = o->t->cusolverDnIRSInfosCreate(&k->infos);
    return status;
}

int atomr_refinement_prepare(atomr_refinement *c, atomr_failure *failure) {
    const atomr_refinement_spec *s = &c->spec;
    int code = check(s, failure);
    if (code != ATOMR_OK) return code;
    atomr_solver *o = NULL;
    code = atomr_solver_ask(c->cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    kept k = {NULL, NULL};
    size_t bytes = 0;
    cusolverStatus_t status = begin(o, s, &k);
    if (status == 0)
        status = o->t->cusolverDnIRSXgesv_bufferSize(o->handle, k.params, (int)s->n, (int)s->k, &bytes);
    end(o, &k);
    if (status != 0) return atomr_solver_fail(status, "asking for the size of a workspace", failure);
    c->scratch_bytes = bytes;
    return atomr_host_memory_make(&c->memory, c->cuda, sizeof(int32_t), s->batch, failure);
}

void atomr_refinement_release(atomr_refinement *c) { atomr_host_memory_release(&c->memory, c->cuda); }

int atomr_refinement_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_refinement *c = context;
    const atomr_refinement_spec *s = &c->spec;
    atomr_solver *o = NULL;
    const int code = atomr_solver_take(c->cuda, call->lane, &o, failure);
    if (code != ATOMR_OK) return code;
    char *a = call->pointers[s->a], *b = call->pointers[s->b], *x = call->pointers[s->x];
    int32_t *iterations = call->pointers[s->iterations], *info = call->pointers[s->info];
    char *host = atomr_host_memory_next(&c->memory);
    const CUstream stream = atomr_cuda_stream(c->cuda, call->lane);
    for (int64_t i = 0; i < s->batch; i++) {
        kept k = {NULL, NULL};
        int32_t *const taken = (int32_t *)host;
        cusolverStatus_t status = begin(o, s, &k);
        if (status == 0)
            status = o->t->cusolverDnIRSXgesv(o->handle, k.params, k.infos, (int)s->n, (int)s->k, a, (int)s->step[0], b,
                                              (int)s->step[1], x, (int)s->step[2], call->pointers[s->scratch],
                                              c->scratch_bytes, taken, info);
        end(o, &k);
        if (status != 0) return atomr_solver_fail(status, "a refined solve of cuSOLVER", failure);
        const atomr_driver *const d = atomr_cuda_driver(c->cuda);
        const CUresult r = d->cuMemcpyAsync((CUdeviceptr)(uintptr_t)(iterations + i), (CUdeviceptr)(uintptr_t)taken,
                                            sizeof *taken, stream);
        if (r != CUDA_SUCCESS)
            return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, "cuMemcpyAsync", "copying numbers of iterations");
        a += s->jump[0];
        b += s->jump[1];
        x += s->jump[2];
        host += c->memory.step;
        info++;
    }
    return ATOMR_OK;
}
