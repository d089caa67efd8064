# cython: language_level=3
"""The C half of a CUDA device, as declared in cuda_backend.h, cuda_foreign.h, handles.h and records.h."""

from libc.stdint cimport uint64_t

from .driver cimport CUdeviceptr, CUresult, CUstream, atomr_driver
from .lanes cimport atomr_backend, atomr_failure, atomr_run


cdef extern from "cuda/handles.h" nogil:
    ctypedef struct atomr_handle_kind:
        pass
    ctypedef struct atomr_handle_count:
        const char *library
        unsigned count
    enum:
        ATOMR_HANDLES


cdef extern from "cuda/cuda_backend.h" nogil:
    ctypedef struct atomr_cuda:
        pass
    ctypedef struct atomr_cuda_facts:
        char name[256]
        char uuid[16]
        int major
        int minor
        int multiprocessors
        int driver_version
        uint64_t total_memory
    int atomr_cuda_find(const char *uuid, int *ordinal, CUresult *result, char *why, size_t size)
    atomr_cuda *atomr_cuda_open(int ordinal, CUresult *result, char *why, size_t size)
    void atomr_cuda_close(atomr_cuda *)
    int atomr_cuda_unregister(atomr_cuda *)
    int atomr_cuda_is_sticky(CUresult)
    CUresult atomr_cuda_open_lane(atomr_cuda *, unsigned lane)
    CUstream atomr_cuda_control(atomr_cuda *)
    CUresult atomr_cuda_error(atomr_cuda *)
    CUresult atomr_cuda_examine(atomr_cuda *)
    CUresult atomr_cuda_beat(atomr_cuda *)
    const atomr_driver *atomr_cuda_driver(const atomr_cuda *)
    CUresult atomr_cuda_enter(atomr_cuda *)
    CUstream atomr_cuda_stream(atomr_cuda *, unsigned lane)
    int atomr_device_handle(atomr_cuda *, const atomr_handle_kind *, void **handle, atomr_failure *)
    unsigned atomr_cuda_handles(atomr_cuda *, atomr_handle_count *counts)
    atomr_backend atomr_cuda_backend(atomr_cuda *)
    int atomr_cuda_register(atomr_cuda *, void *w, uint64_t nbytes, char *why, size_t size)
    int atomr_cuda_describe(atomr_cuda *, atomr_cuda_facts *)
    CUresult atomr_cuda_create(atomr_cuda *, uint64_t nbytes, int *fd)
    CUresult atomr_cuda_map(atomr_cuda *, int fd, uint64_t nbytes, CUdeviceptr *base)
    CUresult atomr_cuda_unmap(atomr_cuda *, CUdeviceptr base, uint64_t nbytes)
    CUresult atomr_cuda_pin(atomr_cuda *, void *base, uint64_t nbytes, CUdeviceptr *device)
    CUresult atomr_cuda_unpin(atomr_cuda *, void *base)
    CUresult atomr_cuda_copy_now(atomr_cuda *, CUdeviceptr to, CUdeviceptr source, uint64_t nbytes)
    CUresult atomr_cuda_memory(atomr_cuda *, uint64_t *free, uint64_t *total)


cdef extern from "cuda/records.h" nogil:
    ctypedef struct atomr_records:
        pass
    ctypedef struct atomr_recorded:
        pass
    ctypedef struct atomr_record_counts:
        uint64_t kept
        uint64_t nodes
        uint64_t captures
        uint64_t refused
        uint64_t replays
    atomr_records *atomr_records_new(atomr_cuda *)
    void atomr_records_end(atomr_records *)
    atomr_record_counts atomr_records_count(atomr_records *)
    void atomr_records_forget(atomr_records *, const void *base, uint64_t nbytes)
    atomr_recorded *atomr_recorded_new(atomr_records *, atomr_run, void *context, unsigned, unsigned)
    void atomr_recorded_end(atomr_recorded *)
    int atomr_recorded_run(void *, const void *, void *)


cdef extern from "cuda/cuda_foreign.h" nogil:
    CUresult atomr_cuda_open_shared(atomr_cuda *, const char *handle, CUdeviceptr *base)
    CUresult atomr_cuda_close_shared(atomr_cuda *, CUdeviceptr base)
    CUresult atomr_cuda_open_own(atomr_cuda *, uint64_t nbytes, CUdeviceptr *base, unsigned long long *handle)
    CUresult atomr_cuda_close_own(atomr_cuda *, CUdeviceptr base, uint64_t nbytes, unsigned long long handle)
    int atomr_cuda_reaches(atomr_cuda *, const char *uuid)
