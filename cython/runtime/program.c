#include "runtime/program.h"

#include <stdio.h>
#include <string.h>

static void name_step(const atomr_program *p, unsigned at, atomr_failure *failure) {
    char text[sizeof failure->text];
    memcpy(text, failure->text, sizeof text);
    text[sizeof text - 1] = 0;
    const int n = snprintf(failure->text, sizeof failure->text, "step %u of %u, %s: ", at, p->n_steps, p->steps[at].name);
    if (n > 0 && (size_t)n < sizeof failure->text)
        memccpy(failure->text + n, text, 0, sizeof failure->text - 1 - (size_t)n);
    failure->text[sizeof failure->text - 1] = 0;
}

int atomr_program_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_program *p = context;
    void *pointers[ATOMR_MAX_OPERANDS];
    uint64_t scalars[ATOMR_MAX_SCALARS];
    for (unsigned i = 0; i < p->n_steps; i++) {
        const atomr_program_step *step = &p->steps[i];
        for (unsigned j = 0; j < step->n_operands; j++)
            pointers[j] = (char *)call->pointers[step->operands[j].operand] + step->operands[j].offset;
        for (unsigned j = 0; j < step->n_scalars; j++)
            scalars[j] = step->scalars[j].given ? call->scalars[step->scalars[j].value] : step->scalars[j].value;
        atomr_call part = *call;
        part.n_operands = step->n_operands;
        part.n_scalars = step->n_scalars;
        part.pointers = pointers;
        part.scalars = scalars;
        const int code = step->run(step->context, &part, failure);
        if (code != ATOMR_OK) {
            name_step(p, i, failure);
            return code;
        }
    }
    return ATOMR_OK;
}
