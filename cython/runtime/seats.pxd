# cython: language_level=3
"""A rank's place in a communicator, as declared in meeting.h."""

from libc.stdint cimport int32_t, uint32_t, uint64_t

from .lanes cimport atomr_worker


cdef extern from "runtime/shm.h" nogil:
    ctypedef struct atomr_error:
        uint32_t code
        int32_t status
        char lib[16]
        char name[64]
        char text[1]
    int atomr_memfd(const char *name, uint64_t nbytes)
    int atomr_memfd_fix(int fd)
    int atomr_memfd_is_fixed(int fd, uint64_t nbytes)


cdef extern from "runtime/meeting.h" nogil:
    enum:
        ATOMR_RANKS
        ATOMR_MEETINGS
        ATOMR_PIECE
        ATOMR_MET
        ATOMR_LEFT
    ctypedef struct atomr_seat:
        char device[16]
    ctypedef struct atomr_page:
        uint32_t n_ranks
        uint32_t restarts
        uint32_t engines
        atomr_seat seats[1]
    uint64_t atomr_page_bytes(unsigned n_ranks)
    void atomr_page_init(atomr_page *, unsigned n_ranks)
    int atomr_page_fits(const atomr_page *, uint64_t nbytes)
    void *atomr_page_stage(atomr_page *, unsigned rank, unsigned parity)
    void atomr_page_lose(atomr_page *, unsigned rank, uint64_t sequence, uint32_t code, uint32_t fault)
    void atomr_page_bury(atomr_page *, unsigned rank, uint32_t code, uint32_t fault)
    uint64_t atomr_page_connected(const atomr_page *)
    void atomr_page_begin(atomr_page *, unsigned rank)
    int atomr_page_meet(atomr_page *, unsigned rank, uint64_t sequence, uint64_t step, const int *stopping, atomr_error *why)
    void atomr_page_fail(atomr_page *, unsigned rank, uint64_t sequence, const char *lib, int status, const char *name, const char *text)


cdef extern from "runtime/lane_core.h" nogil:
    int atomr_worker_set_meeting(atomr_worker *, uint32_t number, atomr_page *page, unsigned rank)
    const int *atomr_worker_stopping(const atomr_worker *)


cdef class Page:
    cdef atomr_page *page
    cdef readonly uint64_t nbytes
    cdef readonly int fd
    cdef int map(self, int fd, uint64_t nbytes) except -1


cdef class Seat(Page):
    cdef readonly unsigned rank
    cdef readonly unsigned size
    cdef const int *stopping
    cdef atomr_worker *worker
    cdef public object connection
    cdef public tuple uuids
    cdef uint64_t sequence
    cdef unsigned rounds
    cdef int join(self, atomr_worker *worker, uint32_t number) except -1
