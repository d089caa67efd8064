# cython: language_level=3
"""What lanes of a CUDA device run, as declared in cuda_runs.h and sequence.h."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .backend cimport atomr_cuda
from .driver cimport CUfunction, CUgraphNode, CUmodule, CUstream
from .lanes cimport atomr_call, atomr_failure, atomr_program, atomr_run


cdef extern from "cuda/cuda_runs.h" nogil:
    ctypedef struct atomr_argument:
        uint32_t kind
        uint32_t index
        uint64_t value
        int64_t least
    ctypedef struct atomr_launch:
        CUfunction function
        unsigned grid[3]
        unsigned block[3]
        unsigned shared
        unsigned n_arguments
        unsigned cluster[3]
        int cooperative
        int overlaps
        atomr_argument *arguments
    ctypedef struct atomr_kernels:
        atomr_cuda *cuda
        CUmodule module
        unsigned n_launches
        unsigned n_alignments
        atomr_launch *launches
        uint32_t *alignments
        int report
        unsigned n_sites
        const char **sites
        uint32_t *sets
        const uint32_t *needs
        const char *lacking
        uint64_t workspace
        int info
        uint64_t info_offset
    enum:
        ATOMR_NO_INFO
        ATOMR_INFO_IN_WORKSPACE
        ATOMR_ARG_OPERAND
        ATOMR_ARG_WORD
        ATOMR_ARG_FLOAT32
        ATOMR_ARG_FLOAT16
        ATOMR_ARG_CONSTANT
        ATOMR_ARG_BYTES
        ATOMR_ARG_NARROW
        ATOMR_ARG_WORKSPACE
        ATOMR_ARG_TENSOR_MAP
        ATOMR_ARG_SCALARS
        ATOMR_ARG_FILLED
        ATOMR_MAX_ARGUMENTS
        ATOMR_MAX_TENSOR_MAPS
        ATOMR_MAX_STRUCT
    ctypedef struct atomr_tensor_map:
        int type
        int interleave
        int swizzle
        int promotion
        int fill
        uint32_t axes
        uint64_t extents[5]
        uint64_t strides[5]
        uint32_t box[5]
        uint32_t steps[5]
    ctypedef struct atomr_filled_place:
        uint32_t kind
        uint32_t offset
        uint32_t index
        uint64_t added
        const atomr_tensor_map *map
    ctypedef struct atomr_filled_struct:
        uint32_t size
        uint32_t n_places
        const unsigned char *bytes
        const atomr_filled_place *places
    int atomr_cuda_launch(const atomr_kernels *, CUstream, const atomr_call *, atomr_failure *)
    int atomr_cuda_run_kernels(void *, const void *, void *) noexcept
    int atomr_cuda_run_copy(void *, const void *, void *)
    int atomr_cuda_run_transfer(void *, const void *, void *)


cdef extern from "cuda/measure.h" nogil:
    ctypedef struct atomr_measured:
        const uint64_t *addresses
        unsigned n_operands
        unsigned sets
        unsigned launches
        uint64_t workspace
        uint64_t workspace_bytes
    int atomr_cuda_measure(atomr_cuda *, atomr_run, void *, const atomr_measured *, float *, atomr_failure *)


cdef extern from "cuda/sequence.h" nogil:
    ctypedef enum atomr_origin:
        ATOMR_FROM_MESSAGE
        ATOMR_FROM_WORKSPACE
        ATOMR_FROM_PLAN
        ATOMR_FROM_INFO
        ATOMR_FROM_LANE
    ctypedef enum atomr_when:
        ATOMR_ALWAYS
        ATOMR_IF_ZERO
        ATOMR_UNLESS_ZERO
    ctypedef struct atomr_source:
        uint64_t value
        uint64_t offset
        atomr_origin origin
    ctypedef struct atomr_step:
        atomr_run run
        void *context
        uint64_t alignment
        int apart
        unsigned n_operands
        unsigned n_scalars
        atomr_source *operands
        atomr_source *scalars
        atomr_when when
        unsigned n_factors
        int (*factors)[2]
    ctypedef struct atomr_sequence:
        const atomr_cuda *cuda
        uint64_t workspace_bytes
        unsigned n_steps
        atomr_step *steps
    enum:
        ATOMR_STEP_OPERANDS
        ATOMR_STEP_SCALARS
    int atomr_sequence_run(void *, const void *, void *) noexcept


cdef extern from "cuda/graph.h" nogil:
    enum:
        ATOMR_GRAPH_STEPWISE
        ATOMR_GRAPH_LAUNCHED
        ATOMR_GRAPH_CAPTURED
        ATOMR_GRAPH_MADE
        ATOMR_GRAPH_PATCHED
    ctypedef struct atomr_graph:
        atomr_program program
        atomr_cuda *cuda
        int captures
        uint64_t workspace_bytes
        unsigned n_key
        uint64_t *key
        uint64_t *wanted
        CUgraphNode *nodes
        CUfunction branch
        CUfunction loop
        unsigned n_loops
        uint64_t loops_at
        uint64_t counts[5]
        int refused
    int atomr_graph_run(void *, const void *, void *) noexcept
    int atomr_graph_fetch(void *, const void *, const void *, void *, unsigned, void *) noexcept
    void atomr_graph_end(atomr_graph *)
