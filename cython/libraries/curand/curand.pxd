# cython: language_level=3
"""cuRAND and its generators, as declared in table.h and generator.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/curand/table.h" nogil:
    atomr_library atomr_curand_library


cdef extern from "libraries/curand/generator.h" nogil:
    ctypedef struct atomr_generator:
        pass
    ctypedef struct atomr_draw_spec:
        int64_t n_parameters
    const atomr_constant *atomr_draw_constants
    const atomr_field *atomr_draw_fields
    int atomr_generator_new(atomr_cuda *, const atomr_draw_spec *, atomr_generator **, atomr_failure *)
    void atomr_generator_delete(atomr_generator *)
    int atomr_generator_draw(atomr_generator *, const atomr_draw_spec *, void *, const uint64_t *, atomr_failure *)
    int atomr_generator_run(void *, const void *, void *) noexcept
