# cython: language_level=3
"""The C half of the worker, as declared in lane_core.h."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "runtime/shm.h" nogil:
    enum:
        ATOMR_ABI
        ATOMR_OK
        ATOMR_LIBRARY_ERROR
        ATOMR_UNSUPPORTED
        ATOMR_INVALID_REQUEST
        ATOMR_OUT_OF_MEMORY
        ATOMR_INFO_STEPS
        ATOMR_MAX_SEGMENTS
        ATOMR_LANES
    ctypedef struct atomr_wheader:
        uint64_t control_busy
    uint64_t atomr_w_bytes()
    uint64_t atomr_now_ns()
    int atomr_memfd(const char *name, uint64_t nbytes)
    int atomr_memfd_fix(int fd)


cdef extern from "runtime/lane_core.h" nogil:
    ctypedef struct atomr_call:
        unsigned lane
        unsigned n_operands
        unsigned n_scalars
        uint64_t ticket
        void **pointers
        const uint64_t *scalars
        void *workspace
        uint64_t workspace_bytes
    ctypedef struct atomr_failure:
        int status
        char lib[16]
        char name[64]
        char text[1]
    ctypedef int (*atomr_run)(void *context, const atomr_call *call, atomr_failure *failure) noexcept
    ctypedef struct atomr_backend:
        pass
    ctypedef struct atomr_worker:
        pass
    ctypedef enum atomr_turn:
        ATOMR_NO_TURN
    void atomr_worker_be_cautious(atomr_worker *, int cautious)
    int atomr_worker_suspect(atomr_worker *, uint32_t plan)
    atomr_turn atomr_worker_begin_build(atomr_worker *, int suspect)
    void atomr_worker_end_build(atomr_worker *, atomr_turn)
    atomr_worker *atomr_worker_new(int p_fd, uint64_t p_bytes, const atomr_backend *backend, uint64_t spin_ns)
    int atomr_worker_w_fd(const atomr_worker *)
    void *atomr_worker_w(const atomr_worker *)
    int atomr_worker_set_segment(atomr_worker *, uint32_t segment, void *base, uint64_t nbytes)
    void *atomr_worker_address(const atomr_worker *, uint32_t segment, uint64_t offset, uint64_t nbytes)
    int atomr_worker_add_plan(atomr_worker *, uint32_t plan, atomr_run run, void *context, unsigned n_operands, unsigned n_scalars)
    void *atomr_worker_remove_plan(atomr_worker *, uint32_t plan)
    int atomr_worker_subscribe(atomr_worker *, unsigned index, int eventfd)
    int atomr_worker_open_lane(atomr_worker *, unsigned lane)
    int atomr_lane_threads()
    int atomr_worker_set_workspace(atomr_worker *, unsigned lane, void *base, uint64_t nbytes)
    uint64_t atomr_worker_workspace(const atomr_worker *, unsigned lane)
    void atomr_worker_go(atomr_worker *)
    void atomr_worker_at_lane_end(atomr_worker *, void (*run)() noexcept nogil)
    void atomr_worker_outlive(atomr_worker *, int eventfd)
    void atomr_worker_fault(atomr_worker *, const char *what)
    int atomr_worker_has_faulted(const atomr_worker *)
    void atomr_worker_stop(atomr_worker *)
    void atomr_worker_delete(atomr_worker *)
    void atomr_worker_abandon(atomr_worker *, int own)
    int atomr_watch_parent(int pidfd)
    int atomr_run_noop(void *, const atomr_call *, atomr_failure *)
    int atomr_run_copy(void *, const atomr_call *, atomr_failure *)
    int atomr_run_workspace(void *, const atomr_call *, atomr_failure *)


cdef extern from "runtime/program.h" nogil:
    ctypedef struct atomr_place:
        uint32_t operand
        int64_t offset
    ctypedef struct atomr_word:
        int given
        uint64_t value
    ctypedef enum atomr_step_kind:
        ATOMR_RUNS
        ATOMR_IF
        ATOMR_WHILE
        ATOMR_SWITCH
    ctypedef struct atomr_program_step:
        atomr_step_kind kind
        atomr_run run
        void *context
        const char *name
        unsigned n_operands
        unsigned n_scalars
        atomr_place *operands
        atomr_word *scalars
        unsigned late
        uint64_t workspace
        unsigned n_after
        unsigned *after
        unsigned n_bodies
        unsigned inside
        unsigned *bodies
        unsigned width
        int is_signed
        uint64_t limit
    ctypedef int (*atomr_fetch)(void *, const atomr_call *, const void *, void *, unsigned, atomr_failure *) noexcept nogil
    ctypedef struct atomr_program_late:
        pass
    ctypedef struct atomr_program:
        unsigned n_steps
        atomr_program_step *steps
        atomr_fetch fetch
        void *self
        unsigned n_late
        atomr_program_late *late
    int atomr_program_run(void *, const atomr_call *, atomr_failure *) noexcept


cdef class Backend:
    """What a kind of device adds to the lanes: its memory, its native routines, how its work completes."""
    cdef atomr_worker *worker  # that it works for; NULL without one
    cdef const atomr_backend *table(self) noexcept
    cdef int attach(self, void *w, uint64_t nbytes) except -1
    cdef bint detach(self) noexcept
    cdef int open_lane(self, unsigned lane) except -1
    cdef int create(self, uint64_t nbytes, int pool) except -1
    cdef void *map(self, int fd, uint64_t nbytes, int pool) except NULL
    cdef int unmap(self, void *base, uint64_t nbytes, int pool) except -1
    cdef void *open_shared(self, bytes handle) except NULL
    cdef int close_shared(self, void *base) except -1
    cdef void *open_peer(self, int fd, uint64_t nbytes, bytes uuid) except NULL
    cdef void *open_own(self, uint64_t nbytes) except NULL
    cdef int close_own(self, void *base, uint64_t nbytes) except -1
    cdef object native(self, object run, atomr_run *function, void **context)
    cdef object recorded(self, object holder, unsigned n_operands, unsigned n_scalars, atomr_run *function, void **context)
    cdef dict native_handles(self)
    cdef dict record_counts(self)


cdef class Lanes:
    cdef atomr_worker *worker
    cdef readonly Backend backend
    cdef dict plans
    cdef dict segments
    cdef dict foreign
    cdef readonly dict meetings
    cdef object lock
    cdef int know_foreign(self, uint32_t segment, str kind, void *base, uint64_t nbytes) except -1
    cdef int let_go(self, str kind, void *base, uint64_t nbytes) except -1
    cdef object __weakref__


cdef class Steps:
    cdef atomr_program native
    cdef readonly list holders
    cdef int take_control(self, atomr_program_step *step, control) except -1


cdef class PythonRun:
    cdef object run
    cdef str operation
    cdef list operands
    cdef list integral
    cdef int call(self, const atomr_call *call, atomr_failure *failure) except -1
