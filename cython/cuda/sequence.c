#include "cuda/sequence.h"

#include <string.h>

#include "runtime/failure.h"

/* Whether a message runs a step. */
static int concerns(const atomr_step *step, const atomr_call *call) {
    uint64_t bits = 0;
    int any = 0;
    for (unsigned i = 0; i < call->n_operands && step->alignment; i++) bits |= (uint64_t)(uintptr_t)call->pointers[i];
    if (step->alignment && step->apart != ((bits & (step->alignment - 1)) != 0)) return 0;
    for (unsigned i = 0; i < step->n_factors; i++) {
        int zero = 1;
        for (unsigned j = 0; j < 2; j++) {
            double part = 0;
            if (step->factors[i][j] >= 0) memcpy(&part, &call->scalars[step->factors[i][j]], sizeof part);
            zero &= part == 0;
        }
        any |= zero;
    }
    return step->when == ATOMR_ALWAYS || any == (step->when == ATOMR_IF_ZERO);
}

int atomr_sequence_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_sequence *s = context;
    if (s->workspace_bytes > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and these steps need %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)s->workspace_bytes);
    for (unsigned i = 0; i < s->n_steps; i++) {
        const atomr_step *step = &s->steps[i];
        if (!concerns(step, call)) continue;
        void *pointers[ATOMR_STEP_OPERANDS];
        uint64_t scalars[ATOMR_STEP_SCALARS];
        for (unsigned j = 0; j < step->n_operands; j++) {
            const atomr_source from = step->operands[j];
            char *const base = from.origin == ATOMR_FROM_MESSAGE     ? call->pointers[from.value]
                               : from.origin == ATOMR_FROM_WORKSPACE ? (char *)call->workspace + from.value
                               : from.origin == ATOMR_FROM_INFO      ? atomr_cuda_info(s->cuda, call) + from.value
                                                                     : (char *)(uintptr_t)from.value;
            pointers[j] = base + from.offset;
        }
        for (unsigned j = 0; j < step->n_scalars; j++) {
            const atomr_source from = step->scalars[j];
            scalars[j] = from.origin == ATOMR_FROM_MESSAGE ? call->scalars[from.value]
                         : from.origin == ATOMR_FROM_LANE  ? call->lane
                                                           : from.value;
        }
        atomr_call part = *call;
        part.n_operands = step->n_operands;
        part.n_scalars = step->n_scalars;
        part.pointers = pointers;
        part.scalars = scalars;
        const int code = step->run(step->context, &part, failure);
        if (code != ATOMR_OK) return code;
    }
    return ATOMR_OK;
}
