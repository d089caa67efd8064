#include "runtime/program.h"

#include <stdio.h>
#include <string.h>

#include "runtime/failure.h"

static void name_step(const atomr_program *p, unsigned at, atomr_failure *failure) {
    char text[sizeof failure->text];
    memcpy(text, failure->text, sizeof text);
    text[sizeof text - 1] = 0;
    const int n = snprintf(failure->text, sizeof failure->text, "step %u of %u, %s: ", at, p->n_steps, p->steps[at].name);
    if (n > 0 && (size_t)n < sizeof failure->text)
        memccpy(failure->text + n, text, 0, sizeof failure->text - 1 - (size_t)n);
    failure->text[sizeof failure->text - 1] = 0;
}

int atomr_program_limit(const atomr_program *p, unsigned at, atomr_failure *failure) {
    /* What the parent makes an error of: see plans/failures.py. */
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "program", (int)p->steps[at].limit, "LoopLimitReached", "%u", at);
}

enum { RAN = ATOMR_INFO_ROOM - 1 }; /* the info word that says which steps have run, as bits; written by the lane */

/* Judge the steps that have run, in their order.  Their texts are for the parent, which makes errors of them. */
static int judge_steps(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    const atomr_program *p = context;
    const int32_t ran = atomic_load_explicit(&info[RAN], memory_order_acquire);
    for (unsigned i = 0; i < p->n_late; i++) {
        const atomr_program_late *one = &p->late[i];
        if (!(ran >> i & 1) || !atomic_load_explicit(&one->known, memory_order_acquire)) continue;
        const int code = one->late.judge(one->late.context, info + i * ATOMR_INFO_WORDS, failure);
        if (code != ATOMR_OK) return code;
    }
    return ATOMR_OK;
}

static void note_late(const atomr_program *p, const atomr_program_step *step, const atomr_call *call, atomr_late late) {
    atomr_program_late *one = &p->late[step->late - 1];
    if (!atomic_load_explicit(&one->known, memory_order_relaxed)) { /* by this lane, which alone runs the program */
        one->late = late;
        atomic_store_explicit(&one->known, 1, memory_order_release);
    }
    atomic_fetch_or_explicit(&call->info[RAN], 1 << (step->late - 1), memory_order_release);
    const int tied = !call->late->judge || call->late->meeting == late.meeting;
    *call->late = (atomr_late){judge_steps, (void *)p, tied ? late.meeting : 0};
}

atomr_call atomr_program_part(const atomr_program_step *step, const atomr_call *call, void **pointers, uint64_t *scalars) {
    for (unsigned j = 0; j < step->n_operands; j++)
        pointers[j] = (char *)call->pointers[step->operands[j].operand] + step->operands[j].offset;
    for (unsigned j = 0; j < step->n_scalars; j++)
        scalars[j] = step->scalars[j].given ? call->scalars[step->scalars[j].value] : step->scalars[j].value;
    atomr_call part = *call;
    part.n_operands = step->n_operands;
    part.n_scalars = step->n_scalars;
    part.pointers = pointers;
    part.scalars = scalars;
    if (step->workspace && step->workspace <= call->workspace_bytes) {
        part.workspace = (char *)call->workspace + step->workspace;
        part.workspace_bytes -= step->workspace;
    }
    return part;
}

int atomr_program_step_run(const atomr_program *p, unsigned at, const atomr_call *call, atomr_failure *failure) {
    const atomr_program_step *step = &p->steps[at];
    void *pointers[ATOMR_MESSAGE_OPERANDS];
    uint64_t scalars[ATOMR_MAX_SCALARS];
    atomr_call part = atomr_program_part(step, call, pointers, scalars);
    atomr_late late = {NULL, NULL, 0};
    if (step->late) {
        part.late = &late;
        part.info = call->info + (step->late - 1) * ATOMR_INFO_WORDS;
    }
    const int code = step->run(step->context, &part, failure);
    if (code != ATOMR_OK && strcmp(failure->lib, "rank") != 0) name_step(p, at, failure); /* what another rank says stays */
    if (late.judge) note_late(p, step, call, late);
    return code;
}

/* What decides about a step of control flow. */
static int decide(const atomr_program *p, unsigned at, const atomr_call *call, int64_t *value, atomr_failure *failure) {
    const atomr_program_step *step = &p->steps[at];
    const char *from = (const char *)call->pointers[step->operands[0].operand] + step->operands[0].offset;
    uint64_t bits = 0; /* little-endian */
    if (!p->fetch) {
        memcpy(&bits, from, step->width);
    } else {
        const int code = p->fetch(p->self, call, from, &bits, step->width, failure);
        if (code != ATOMR_OK) {
            name_step(p, at, failure);
            return code;
        }
    }
    const unsigned spare = 64 - 8 * step->width;
    *value = step->is_signed ? (int64_t)(bits << spare) >> spare : (int64_t)bits;
    return ATOMR_OK;
}

static int run_steps(const atomr_program *p, unsigned first, unsigned n, const atomr_call *call, atomr_failure *failure);

static int run_control(const atomr_program *p, unsigned at, const atomr_call *call, atomr_failure *failure) {
    const atomr_program_step *step = &p->steps[at];
    int64_t value;
    int code = decide(p, at, call, &value, failure);
    if (code != ATOMR_OK) return code;
    if (step->kind == ATOMR_WHILE) {
        for (uint64_t round = 0; value && code == ATOMR_OK; round++) {
            if (round == step->limit) return atomr_program_limit(p, at, failure);
            code = run_steps(p, at + 1, step->bodies[0], call, failure);
            if (code == ATOMR_OK) code = decide(p, at, call, &value, failure);
        }
        return code;
    }
    const uint64_t chosen = step->kind == ATOMR_IF ? !value : (uint64_t)value;
    if (chosen >= step->n_bodies) return ATOMR_OK;
    unsigned begin = at + 1;
    for (unsigned i = 0; i < chosen; i++) begin += step->bodies[i];
    return run_steps(p, begin, step->bodies[chosen], call, failure);
}

static int run_steps(const atomr_program *p, unsigned first, unsigned n, const atomr_call *call, atomr_failure *failure) {
    int code = ATOMR_OK;
    for (unsigned i = first; i < first + n && code == ATOMR_OK; i += 1 + p->steps[i].inside)
        code = p->steps[i].kind == ATOMR_RUNS ? atomr_program_step_run(p, i, call, failure)
                                              : run_control(p, i, call, failure);
    return code;
}

int atomr_program_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_program *p = context;
    if (p->n_late) atomic_store_explicit(&call->info[RAN], 0, memory_order_relaxed);
    return run_steps(p, 0, p->n_steps, call, failure);
}
