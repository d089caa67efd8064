/* What lanes of a CUDA device run: copies, and sequences of kernel launches prepared by the control thread. */
#ifndef ATOMR_CUDA_RUNS_H
#define ATOMR_CUDA_RUNS_H

#include "cuda/cuda_backend.h"

enum { ATOMR_MAX_ARGUMENTS = 320, ATOMR_MAX_TENSOR_MAPS = 16, ATOMR_TENSOR_AXES = 5, ATOMR_MAX_STRUCT = 4096 };

typedef enum {
    ATOMR_ARG_OPERAND = 0,  /* address of operand `index` */
    ATOMR_ARG_WORD = 1,     /* scalar `index` as it is: float64 or int64 */
    ATOMR_ARG_FLOAT32 = 2,  /* scalar `index`, a float64, converted */
    ATOMR_ARG_CONSTANT = 3, /* `value` */
    ATOMR_ARG_NARROW = 4,   /* scalar `index`, an int64 from `least` to `value` */
    ATOMR_ARG_BYTES = 5,    /* what `value` points to: a struct by value */
    ATOMR_ARG_WORKSPACE = 6, /* address of byte `value` of the lane's workspace */
    ATOMR_ARG_TENSOR_MAP = 7, /* a CUtensorMap of operand `index`, described by the atomr_tensor_map that `value` points to */
    ATOMR_ARG_SCALARS = 8,    /* the bytes of the scalars from `index` on: a struct by value */
    ATOMR_ARG_FLOAT16 = 9,    /* scalar `index`, a float64, converted */
    ATOMR_ARG_FILLED = 10     /* a struct by value, described by the atomr_filled_struct that `value` points to */
} atomr_argument_kind;

/* What a tensor map says of an operand besides its address.  The innermost axis comes first; its stride is its type's. */
typedef struct {
    CUtensorMapDataType type;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
    uint32_t axes;
    cuuint64_t extents[ATOMR_TENSOR_AXES], strides[ATOMR_TENSOR_AXES]; /* elements; bytes, of the axes from the second on */
    cuuint32_t box[ATOMR_TENSOR_AXES], steps[ATOMR_TENSOR_AXES];
} atomr_tensor_map;

typedef struct {
    uint32_t kind, index;
    uint64_t value;
    int64_t least;
} atomr_argument;

/* A place of a struct that each message fills: with an address, a number or a tensor map. */
typedef struct {
    uint32_t kind, offset, index; /* ATOMR_ARG_OPERAND, _WORKSPACE, _WORD, _FLOAT32 or _TENSOR_MAP; of its first byte */
    uint64_t added;               /* bytes, to addresses, also that of a map */
    const atomr_tensor_map *map;
} atomr_filled_place;

/* A struct by value: its bytes, which belong to the plan, and its places.  Its size is at most ATOMR_MAX_STRUCT. */
typedef struct {
    uint32_t size, n_places;
    const unsigned char *bytes;
    const atomr_filled_place *places;
} atomr_filled_struct;

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared, n_arguments;
    unsigned cluster[3]; /* 0: none */
    int cooperative;
    int overlaps; /* it may begin before the launch before it has ended, for which it waits itself */
    atomr_argument *arguments;
} atomr_launch;

enum { ATOMR_NO_INFO = -2, ATOMR_INFO_IN_WORKSPACE = -1 };

typedef struct {
    atomr_cuda *cuda;
    CUmodule module;
    unsigned n_launches, n_alignments;
    atomr_launch *launches;
    uint32_t *alignments; /* of operand addresses, bytes; a power of two each */
    /* Kernels that check their indices write the first bad one to operand `report`, in host memory: the lane waits
     * for them, and the message fails.  -1: they do not. */
    int report;
    unsigned n_sites;
    const char **sites; /* where in the source; by number */
    /* A mark is set by whoever has enqueued its kernels; who needs one that is not set fails, saying what is lacking. */
    uint32_t *sets;
    const uint32_t *needs;
    const char *lacking;
    uint64_t workspace;   /* bytes of the lane's workspace that the launches use */
    /* An int32 that the kernels leave nonzero where they have failed: in operand `info`, or in the workspace, `info_offset`
     * bytes from its start.  The message fails late then. */
    int info;
    uint64_t info_offset;
} atomr_kernels;

/* Words of a report, int64. */
enum {
    ATOMR_REPORT_TAKEN, ATOMR_REPORT_SITE, ATOMR_REPORT_INDEX, ATOMR_REPORT_AXIS, ATOMR_REPORT_EXTENT,
    ATOMR_REPORT_BLOCK, ATOMR_REPORT_THREAD = ATOMR_REPORT_BLOCK + 3, ATOMR_REPORT_WORDS = ATOMR_REPORT_THREAD + 3
};

/* Launch them all on a stream. */
int atomr_cuda_launch(const atomr_kernels *k, CUstream stream, const atomr_call *call, atomr_failure *failure);
/* Whether the kernels are one launch without anything besides, whose parameters can be set in an instance of a graph. */
int atomr_cuda_sets_alone(const atomr_kernels *);
/* Give the launch's node in an instance what the message would launch it with. */
int atomr_cuda_set(const atomr_kernels *, CUgraphExec, CUgraphNode, const atomr_call *, atomr_failure *);
/* The same, on the stream of the lane.  Context: atomr_kernels. */
int atomr_cuda_run_kernels(void *context, const atomr_call *call, atomr_failure *failure);
/* Context: atomr_cuda.  Operands source, target; scalar: bytes. */
int atomr_cuda_run_copy(void *context, const atomr_call *call, atomr_failure *failure);
/* The same to or from memory of the host, where somebody waits for the end of each long piece. */
int atomr_cuda_run_transfer(void *context, const atomr_call *call, atomr_failure *failure);

int atomr_cuda_fail(const atomr_cuda *cuda, CUresult result, const char *what, atomr_failure *failure);

#endif
