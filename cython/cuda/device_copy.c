#include "cuda/device_copy.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "cuda/cuda_runs.h"
#include "runtime/failure.h"

enum { FIRST_ROUND = 2 /* 1 is the vote */, WRITTEN = 2, SPINS = 4000, NAP_US = 20 };

static int stopped(atomr_failure *failure) {
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "rank", 0, "stopped", "the worker stops");
}

/* What became of a wait for the other rank, as the outcome of this one's message. */
static int outcome_of(int met, const atomr_error *why, atomr_failure *failure) {
    if (met == ATOMR_MET) return ATOMR_OK;
    if (met == ATOMR_LEFT) return stopped(failure);
    failure->status = why->status;
    memcpy(failure->lib, why->lib, sizeof failure->lib);
    memcpy(failure->name, why->name, sizeof failure->name);
    memcpy(failure->text, why->text, sizeof failure->text);
    return (int)why->code;
}

/* Wait until the lane's work is done: other ranks act on it. */
static int finish(const atomr_between *b, CUstream stream, atomr_failure *failure) {
    const atomr_driver *const d = atomr_cuda_driver(b->cuda);
    for (unsigned i = 0;; i++) {
        const CUresult r = d->cuStreamQuery(stream);
        if (r == CUDA_SUCCESS) return ATOMR_OK;
        if (r != CUDA_ERROR_NOT_READY) return atomr_cuda_fail(b->cuda, r, "cuStreamQuery", failure);
        if (atomic_load(b->stopping)) return stopped(failure);
        if (i >= SPINS) usleep(NAP_US);
        else if (i % 8 == 7) sched_yield();
        else atomr_pause();
    }
}

static int copy(const atomr_between *b, CUstream stream, const void *from, void *to, uint64_t nbytes,
                atomr_failure *failure) {
    const CUresult r = atomr_cuda_driver(b->cuda)->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                                                 nbytes, stream);
    return r == CUDA_SUCCESS ? finish(b, stream, failure) : atomr_cuda_fail(b->cuda, r, "cuMemcpyAsync", failure);
}

static uint64_t sequence_of(const _Atomic int32_t *info) {
    return (uint64_t)(uint32_t)atomic_load(&info[1]) << 32 | (uint32_t)atomic_load(&info[0]);
}

/* When the lane has come past the message: whether the target's rank has copied the bytes. */
static int judge_source(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    const atomr_between *const b = context;
    atomr_error why;
    const int met = atomr_page_has_copied(b->page, b->target, sequence_of(info), &why);
    if (met != ATOMR_PENDING) return outcome_of(met, &why, failure);
    return atomic_load(b->stopping) ? stopped(failure) : ATOMR_UNDECIDED;
}

/* When the copy is done. */
static int judge_target(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    const atomr_between *const b = context;
    atomr_error why;
    return outcome_of(atomr_page_note_copied(b->page, b->rank, b->source, sequence_of(info), &why), &why, failure);
}

static void judge_late(const atomr_between *b, const atomr_call *call, uint64_t sequence) {
    atomic_store(&call->info[0], (int32_t)(uint32_t)sequence);
    atomic_store(&call->info[1], (int32_t)(uint32_t)(sequence >> 32));
    *call->late = (atomr_late){b->rank == b->source ? judge_source : judge_target, (void *)(uintptr_t)b, 0};
}

static int copy_directly(const atomr_between *b, CUstream stream, const atomr_call *call, uint64_t sequence,
                         atomr_failure *failure) {
    atomr_error why;
    int met;
    if (b->rank == b->source) {
        const int code = finish(b, stream, failure); /* what has written the bytes is done */
        if (code != ATOMR_OK) return code;
        met = atomr_page_conclude(b->page, b->rank, b->target, sequence, WRITTEN, &why);
        if (met != ATOMR_MET) return outcome_of(met, &why, failure);
        judge_late(b, call, sequence);
        *call->holds = 1;
        return ATOMR_OK;
    }
    met = atomr_page_follow(b->page, b->source, sequence, WRITTEN, b->stopping, &why);
    if (met != ATOMR_MET) return outcome_of(met, &why, failure);
    const CUresult r = atomr_cuda_driver(b->cuda)->cuMemcpyAsync((CUdeviceptr)(uintptr_t)call->pointers[1],
                                                                 (CUdeviceptr)(uintptr_t)call->pointers[0], b->nbytes, stream);
    if (r == CUDA_SUCCESS) {
        judge_late(b, call, sequence);
        return ATOMR_OK;
    }
    const int code = atomr_cuda_fail(b->cuda, r, "cuMemcpyAsync", failure);
    atomr_failure second; /* the source's rank waits for the copies before, which are done by then, and for this one */
    if (finish(b, stream, &second) == ATOMR_OK) {
        /* First: who sees the note knows that this copy is none. */
        atomr_page_fail(b->page, b->rank, sequence, failure->lib, failure->status, failure->name, failure->text);
        atomr_page_note_copied(b->page, b->rank, b->source, sequence, &why);
    }
    return code;
}

static int copy_in_pieces(const atomr_between *b, CUstream stream, const atomr_call *call, uint64_t sequence,
                          atomr_failure *failure) {
    atomr_error why;
    uint64_t round = 0;
    int code = ATOMR_OK;
    for (uint64_t at = 0; at < b->nbytes && code == ATOMR_OK; at += ATOMR_PIECE, round++) {
        const uint64_t n = b->nbytes - at < ATOMR_PIECE ? b->nbytes - at : ATOMR_PIECE;
        char *const area = atomr_page_stage(b->page, b->source, (unsigned)(round & 1));
        char *const own = (char *)call->pointers[0] + at;
        if (b->rank == b->source) code = copy(b, stream, own, area, n, failure);
        if (code != ATOMR_OK) return code;
        code = outcome_of(atomr_page_meet(b->page, b->rank, sequence, FIRST_ROUND + round, b->stopping, &why), &why, failure);
        if (code == ATOMR_OK && b->rank == b->target) code = copy(b, stream, area, own, n, failure);
    }
    return code;
}

int atomr_between_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_between *const b = context;
    const CUstream stream = atomr_cuda_stream(b->cuda, call->lane);
    if (!stream) return atomr_cuda_fail(b->cuda, atomr_cuda_error(b->cuda), "a copy between devices", failure);
    const uint64_t sequence = call->scalars[ATOMR_KEY_SEQUENCE];
    return b->direct ? copy_directly(b, stream, call, sequence, failure)
                     : copy_in_pieces(b, stream, call, sequence, failure);
}
