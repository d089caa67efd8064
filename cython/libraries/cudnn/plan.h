/* Execution plans of cuDNN's backend: an operation graph becomes a plan, prepared once, run without the GIL.
 *
 * A graph comes as a list of descriptors in 64-bit words, so that all knowledge of operations and their attributes is
 * outside: this file knows tensors' pointers, heuristics, plans and variant packs.  A plan may run in any lane; each
 * lane has a handle of its own.
 */
#ifndef ATOMR_CUDNN_PLAN_H
#define ATOMR_CUDNN_PLAN_H

#include "cuda/cuda_backend.h"
#include "libraries/cudnn/table.h"

/* Descriptors, in words: for each its type, its number of attributes, and for each of these name, type, number of
 * elements and elements.  An element is a word, of fractions two: an integer; the bits of a double, for FLOAT and DOUBLE;
 * or the place of an earlier descriptor in the list.  The last descriptor is the operation graph, without its handle. */
typedef struct {
    const int64_t *words;
    size_t n;
} atomr_cudnn_words;

/* A tensor of the variant pack. */
typedef struct {
    int64_t uid;
    int64_t operand;   /* of a message; -1: the constant */
    int64_t alignment; /* bytes, a power of two, of the operand's address */
    uint64_t constant; /* the bytes of a number that is passed by value */
} atomr_cudnn_tensor;

/* The choice of an engine. */
typedef struct {
    uint64_t banned;    /* numerical notes that it must not have, a bit each */
    uint64_t workspace; /* bytes that it should do with */
    int64_t only;       /* the place in the heuristics' list of the one that is taken; -1: the first that is good */
} atomr_cudnn_choice;

/* A plan that was built before, as text, and its engine. */
typedef struct {
    const char *text;
    size_t n;       /* 0: there is none */
    int64_t engine;
} atomr_cudnn_saved;

typedef struct atomr_cudnn_plan atomr_cudnn_plan;

/* The constants of names.h, by name. */
extern const atomr_constant atomr_cudnn_constants[];

/* Build a plan.  cuDNN must be open.  With a device, whose context must be current in this thread, the plan can run; else
 * `profile` is JSON that describes a device.  If no engine does with the workspace, the plan has the engine that needs
 * least.  With `only`, rule "candidates" says that the list is shorter.  A saved plan is taken instead of the words and the choice; cuDNN refuses one of another version or device.
 * Returns an atomr_code. */
int atomr_cudnn_new(atomr_cuda *, const char *profile, const atomr_cudnn_words *, const atomr_cudnn_choice *,
                    const atomr_cudnn_saved *, const atomr_cudnn_tensor *, size_t n_tensors, int64_t n_operands, atomr_cudnn_plan **made,
                    atomr_failure *failure);
uint64_t atomr_cudnn_workspace(const atomr_cudnn_plan *); /* bytes */
int64_t atomr_cudnn_engine(const atomr_cudnn_plan *);     /* its number among those of such graphs */
/* Write the plan as text of at most `room` bytes; their number, also where there is less room.  0: cuDNN refuses. */
size_t atomr_cudnn_save(const atomr_cudnn_plan *, char *into, size_t room);
void atomr_cudnn_delete(atomr_cudnn_plan *);              /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_cudnn_plan.  Enqueues on the lane's stream. */
int atomr_cudnn_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
