#include "sequence.h"

#include <stdio.h>
#include <string.h>

int atomr_sequence_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_sequence *s = context;
    if (s->workspace_bytes > call->workspace_bytes) {
        memset(failure, 0, sizeof *failure);
        snprintf(failure->text, sizeof failure->text, "the workspace of the lane is too small for these steps");
        return ATOMR_INVALID_REQUEST;
    }
    for (unsigned i = 0; i < s->n_steps; i++) {
        const atomr_step *step = &s->steps[i];
        void *pointers[ATOMR_STEP_OPERANDS];
        uint64_t scalars[ATOMR_STEP_SCALARS];
        for (unsigned j = 0; j < step->n_operands; j++) {
            const atomr_source from = step->operands[j];
            pointers[j] = from.own ? (char *)call->workspace + from.value : call->pointers[from.value];
        }
        for (unsigned j = 0; j < step->n_scalars; j++) {
            const atomr_source from = step->scalars[j];
            scalars[j] = from.own ? from.value : call->scalars[from.value];
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
