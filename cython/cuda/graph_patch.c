/* Other addresses and numbers for an instance, kernel by kernel, without a capture. */
#include <string.h>

#include "cuda/cuda_runs.h"
#include "cuda/graph.h"

/* Whether a message has another address or number for a step than the instance. */
static int concerns(const atomr_graph *g, const atomr_program_step *step, const atomr_call *call, int workspace) {
    for (unsigned i = 0; i < step->n_operands; i++) {
        const unsigned at = step->operands[i].operand;
        if (g->key[at] != g->wanted[at]) return 1;
    }
    for (unsigned i = 0; i < step->n_scalars; i++) {
        const uint64_t at = call->n_operands + step->scalars[i].value;
        if (step->scalars[i].given && g->key[at] != g->wanted[at]) return 1;
    }
    return workspace;
}

int atomr_graph_patch(atomr_graph *g, const atomr_call *call) {
    const atomr_program *p = &g->program;
    if (!g->exec || !atomr_cuda_driver(g->cuda)->cuGraphExecKernelNodeSetParams_v2) return 0;
    const int workspace = g->key[g->n_key - 1] != g->wanted[g->n_key - 1];
    for (unsigned i = 0; i < p->n_steps; i++)
        if (!g->nodes[i] && concerns(g, &p->steps[i], call, workspace)) return 0;
    for (unsigned i = 0; i < p->n_steps; i++) {
        const atomr_program_step *step = &p->steps[i];
        if (!concerns(g, step, call, workspace)) continue;
        atomr_failure failure;
        memset(&failure, 0, sizeof failure);
        void *pointers[ATOMR_MESSAGE_OPERANDS];
        uint64_t scalars[ATOMR_MAX_SCALARS];
        const atomr_call part = atomr_program_part(step, call, pointers, scalars);
        if (atomr_cuda_set(step->context, g->exec, g->nodes[i], &part, &failure) != ATOMR_OK) return 0;
    }
    return 1;
}
