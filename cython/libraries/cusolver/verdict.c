#include <stdio.h>
#include <string.h>

#include "libraries/cusolver/private.h"

const atomr_field atomr_verdict_fields[] = {
    ATOMR_VERDICT_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

enum { AXES = 8, ANY_WORD = 0, FIRST_WORD, INFO_WORD, COUNT_WORD, WORDS };
_Static_assert(WORDS <= ATOMR_INFO_WORDS, "the info words of a message");

int atomr_verdict_check(const atomr_verdict_spec *s, atomr_failure *failure) {
    int good = s->kind >= ATOMR_SOLVER_ANY && s->kind <= ATOMR_SOLVER_UNCONVERGED && s->axes >= 0 && s->axes <= AXES &&
               s->form >= ATOMR_VERDICT_SUMMARY && s->form <= ATOMR_VERDICT_RECORD;
    for (int64_t i = 0; good && i < s->axes; i++) good = s->extents[i] > 0;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed verdict of a solver");
}

static int judge(void *context, const _Atomic int32_t *words, atomr_failure *failure) {
    const atomr_verdict *v = context;
    int32_t said[WORDS];
    for (unsigned i = 0; i < WORDS; i++) said[i] = atomic_load_explicit(&words[i], memory_order_acquire);
    if (v->spec.form == ATOMR_VERDICT_RECORD) {
        const int32_t info = said[0], down = said[1], count = said[2];
        said[ANY_WORD] = count != 0;
        said[FIRST_WORD] = (int32_t)(UINT32_MAX - (uint32_t)down);
        said[INFO_WORD] = info;
        said[COUNT_WORD] = count;
    }
    const int32_t info = said[INFO_WORD];
    if (!said[ANY_WORD]) return ATOMR_OK;
    if (info < 0) /* LAPACK's sign of a bad argument: ours, or a broken library's */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cusolver", info, "INVALID_ARGUMENT",
                            "argument %d of a routine is invalid", -info);
    if (v->spec.kind == ATOMR_SOLVER_ANY) return ATOMR_OK;
    long long places[AXES] = {0}, left = said[FIRST_WORD];
    for (int64_t axis = v->spec.axes; axis-- > 0; left /= v->spec.extents[axis])
        places[axis] = left % v->spec.extents[axis];
    char index[AXES * 24] = "";
    for (int64_t axis = 0; axis < v->spec.axes; axis++) {
        const size_t end = strlen(index);
        snprintf(index + end, sizeof index - end, "%s%lld", axis ? "," : "", places[axis]);
    }
    static const char *const names[] = {"", "SingularMatrix", "NotPositiveDefinite", "NotConverged"};
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "solver", info, names[v->spec.kind], "%s\n%s\n%d", v->operation,
                        index, said[COUNT_WORD]);
}

int atomr_verdict_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_verdict *v = context;
    return atomr_cuda_judge_late(v->cuda, call, 0, 0, (atomr_late){judge, v, 0}, failure);
}
