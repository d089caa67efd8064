# cython: language_level=3
"""The C half of the sender, as declared in sender_core.h, and the classes over it."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "runtime/pool.h" nogil:
    ctypedef struct atomr_block:
        uint32_t segment
        uint32_t node
        uint64_t offset
        uint64_t nbytes
    ctypedef struct atomr_pool_stats:
        uint64_t total
        uint64_t in_use
        uint64_t free
        uint64_t largest
        uint64_t deferred
        uint32_t segments
        uint32_t blocks


cdef extern from "runtime/shm.h" nogil:
    enum:
        ATOMR_ABI
        ATOMR_ACQUITTED
        ATOMR_LANES
        ATOMR_MAX_OPERANDS
        ATOMR_MAX_SCALARS
        ATOMR_MAX_SEGMENTS
        ATOMR_SUBSCRIBERS
        ATOMR_CELL_WORDS
        ATOMR_HEAD_WORDS
        ATOMR_MAX_BOUND
        ATOMR_MESSAGE_OPERANDS
        ATOMR_MIN_CELLS
        ATOMR_WRITE
        ATOMR_UNSUPPORTED
        ATOMR_INVALID_REQUEST
        ATOMR_OUT_OF_MEMORY
        ATOMR_STALE_RESTARTED
        ATOMR_STALE_TORN
        ATOMR_STALE_ROLLED_BACK
        ATOMR_DEVICE_FAULT
        ATOMR_DEVICE_LOST
        ATOMR_ACTOR_STOPPED
    int atomr_memfd_is_fixed(int fd, uint64_t nbytes)
    ctypedef struct atomr_error:
        uint64_t ticket
        uint64_t cause_ticket
        uint32_t cause_lane
        uint32_t code
        int status
        uint32_t inherited
        uint32_t plan
        uint32_t cause_plan
        char lib[16]
        char name[64]
        char text[1]


cdef extern from "runtime/sender_core.h" nogil:
    enum:
        ATOMR_VOLATILE
        ATOMR_DURABLE
        ATOMR_STAGING
        ATOMR_FOREIGN
        ATOMR_DECLARED
        ATOMR_STARTING
        ATOMR_OPEN
        ATOMR_RESTARTING
        ATOMR_LOST
        ATOMR_CLOSED
        ATOMR_DEVICE_FAULT
        ATOMR_DEVICE_LOST
        ATOMR_ACTOR_STOPPED
        ATOMR_DONE
        ATOMR_FULL
        ATOMR_STALE
        ATOMR_TORN
        ATOMR_BACK
        ATOMR_REFUSED
        ATOMR_TOO_LARGE
        ATOMR_EMPTY
        ATOMR_MOVED

    ctypedef struct atomr_use:
        uint32_t slot
        uint32_t generation
        uint64_t offset
        uint32_t access
        uint32_t whole

    ctypedef struct atomr_verdict:
        uint32_t lane
        uint32_t fault
        atomr_error error

    ctypedef struct atomr_reply:
        uint64_t ticket
        uint32_t lane
        int linked
        int settled
        atomr_verdict *verdict

    ctypedef struct atomr_last_words:
        int told
        int code
        char lib[16]
        char name[64]
        char text[256]
    ctypedef struct atomr_suspect:
        uint32_t lane
        uint32_t plan
        uint64_t ticket

    ctypedef struct atomr_key:
        uint64_t meeting
        uint64_t sequence

    ctypedef struct atomr_rank_send:
        atomr_sender *sender
        uint32_t epoch
        unsigned lane
        uint32_t plan
        const atomr_use *uses
        uint64_t *scalars
        unsigned n_uses
        unsigned n_scalars
        atomr_reply *reply
        uint64_t ticket
        unsigned bad

    ctypedef struct atomr_fault_report:
        atomr_last_words cause
        atomr_suspect *suspects
        uint32_t *plans
        uint32_t *groups
        atomr_key *keys
        uint32_t n_keys
        uint32_t n_suspects
        uint32_t n_plans
        uint32_t n_groups
        uint32_t n_refused
        uint32_t n_stale
        uint32_t n_torn

    ctypedef struct atomr_lane_stats:
        uint64_t sent
        uint64_t claimed
        uint64_t completed
        uint64_t cells_in_use
        uint64_t messages
        uint64_t failed
        uint64_t busy_ns
        uint64_t parks
        uint64_t started_ns
        uint32_t parked

    ctypedef struct atomr_sender:
        pass

    atomr_sender *atomr_sender_new(uint32_t cells, uint32_t slots)
    void atomr_sender_delete(atomr_sender *)
    void atomr_sender_abandon(atomr_sender *)
    int atomr_sender_p_fd(const atomr_sender *)
    uint64_t atomr_sender_p_bytes(const atomr_sender *)
    uint32_t atomr_sender_epoch(atomr_sender *)
    int atomr_sender_state(atomr_sender *)
    int atomr_sender_attach(atomr_sender *, int w_fd, uint64_t w_bytes)
    void atomr_sender_set_state(atomr_sender *, int state)
    int atomr_sender_fault(atomr_sender *, int code, uint32_t fault, const char *text, atomr_fault_report *)
    void atomr_sender_end(atomr_sender *, int state, int code, uint32_t fault, const char *text)
    void atomr_sender_judge_again(atomr_sender *)
    void atomr_fault_report_release(atomr_fault_report *)
    int atomr_sender_open_lane(atomr_sender *)
    int atomr_sender_reserve_segment(atomr_sender *, uint32_t *segment)
    int atomr_sender_add_segment(atomr_sender *, uint32_t segment, int pool, uint64_t nbytes)
    int atomr_block_of(atomr_sender *, uint32_t slot, uint32_t generation, atomr_block *, int *pool)
    uint32_t atomr_sender_remove_segment(atomr_sender *, int pool)
    void atomr_sender_pool_stats(atomr_sender *, int pool, atomr_pool_stats *)
    void atomr_sender_arm_pool(atomr_sender *, int pool, uint64_t mark, uint64_t most)
    unsigned atomr_sender_low_pools(atomr_sender *)
    int atomr_sender_wait_low(atomr_sender *)
    void atomr_sender_stop_low(atomr_sender *)
    int atomr_alloc(atomr_sender *, int pool, uint64_t nbytes, uint32_t *slot, uint32_t *generation, atomr_block *)
    int atomr_free(atomr_sender *, uint32_t slot, uint32_t generation)
    int atomr_keep(atomr_sender *, uint32_t slot, uint32_t generation)
    int atomr_lease(atomr_sender *, uint32_t slot, uint32_t generation)
    void atomr_unlease(atomr_sender *, uint32_t slot)
    int atomr_check(atomr_sender *, uint32_t slot, uint32_t generation)
    int atomr_untear(atomr_sender *, uint32_t slot, uint32_t generation)
    int atomr_last_write(atomr_sender *, uint32_t slot, uint32_t generation, uint32_t *lane, uint64_t *ticket)
    int atomr_open_uses(atomr_sender *, uint32_t slot, uint32_t generation, uint64_t *out)
    int atomr_group_add(atomr_sender *, uint32_t group, uint32_t slot, uint32_t generation, int internal)
    void atomr_group_dissolve(atomr_sender *, uint32_t group)
    void atomr_group_recovered(atomr_sender *, uint32_t group)
    int atomr_tear(atomr_sender *, uint32_t slot, uint32_t generation)
    int atomr_send_in(atomr_sender *, uint32_t epoch, unsigned lane, uint32_t plan, const atomr_use *, unsigned n_uses, const uint64_t *scalars, unsigned n_scalars, uint32_t group, atomr_reply *, uint64_t *ticket, unsigned *bad)
    int atomr_send_ranks(atomr_rank_send *, unsigned n, uint64_t *sequence, unsigned *which)
    uint64_t atomr_room_ticket(atomr_sender *, unsigned lane, unsigned cells)
    int atomr_resolved(atomr_sender *, unsigned lane, uint64_t ticket)
    int atomr_wait(atomr_sender *, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin_ns)
    void atomr_rouse(atomr_sender *, unsigned lane, uint64_t until_ns)
    int atomr_reply_settle(atomr_sender *, atomr_reply *)
    void atomr_reply_drop(atomr_sender *, atomr_reply *)
    int atomr_want(atomr_sender *, unsigned lane, unsigned subscriber, uint64_t ticket)
    atomr_verdict *atomr_next_orphan(atomr_sender *)
    void atomr_verdict_release(atomr_sender *, atomr_verdict *)
    int atomr_sender_lane_stats(atomr_sender *, unsigned lane, atomr_lane_stats *)

    ctypedef struct atomr_span_copy:
        uint64_t ticket
        uint64_t began_ns
        uint64_t ended_ns
    ctypedef struct atomr_span_place:
        uint64_t region
        uint64_t next
        uint64_t lost
    void atomr_sender_trace(atomr_sender *, int more)
    void atomr_sender_watch(atomr_sender *)
    int atomr_sent_deps(atomr_sender *, unsigned lane, uint64_t ticket, uint64_t *out)
    unsigned atomr_read_spans(atomr_sender *, unsigned lane, atomr_span_place *, atomr_span_copy *out, unsigned most)
    uint64_t atomr_sender_control_busy(atomr_sender *)
    unsigned atomr_sender_acquitted(atomr_sender *, uint32_t *out)


cdef class Core:
    cdef atomr_sender *sender
    cdef void *bases[ATOMR_MAX_SEGMENTS]
    cdef uint64_t sizes[ATOMR_MAX_SEGMENTS]
    cdef void *origins[ATOMR_MAX_SEGMENTS]
    cdef uint32_t windows[ATOMR_MAX_SEGMENTS]  # numbers of symmetric memory; 0: it is none
    cdef bint abandoned
    cdef public int64_t timeout_ns
    cdef public uint64_t spin_ns
    cdef readonly uint32_t cells
    cdef public object grow
    cdef public object errors
    cdef public object stale
    cdef public object sent_from
    cdef public object lane_names
    cdef readonly dict layouts
    cdef public object owner
    cdef readonly dict recorders
    cdef object __weakref__
    cdef int alive(self) except -1
    cpdef object recorder(self)
    cdef Allocation allocate(self, uint64_t nbytes, int pool)
    cdef Ref make(self, type cls, Layout layout, int pool)
    cdef object wait(self, unsigned lane, uint64_t ticket, int64_t timeout_ns)
    cdef object wait_spinning(self, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin)


cdef class SpanReader:
    cdef readonly Core core
    cdef readonly unsigned lane
    cdef atomr_span_place place


cdef class Layout:
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly object dtype
    cdef readonly str dtype_name
    cdef readonly uint64_t size
    cdef readonly uint64_t nbytes
    cdef readonly int64_t low
    cdef readonly int64_t high
    cdef readonly bint contiguous
    cdef Py_hash_t hash


cdef class Allocation:
    cdef readonly Core core
    cdef readonly uint32_t slot
    cdef readonly uint32_t generation
    cdef readonly int pool
    cdef readonly uint32_t epoch
    cdef readonly uint64_t nbytes
    cdef readonly int freed
    cdef readonly bint borrowed
    cdef readonly bint readonly
    cdef atomr_block block


cdef class Ref:
    cdef readonly Allocation allocation
    cdef readonly Layout layout
    cdef readonly uint64_t offset
    cdef uint32_t whole
    cdef object __weakref__


cdef int refuse_write(str name) except -1
cdef int64_t nanoseconds(object timeout) except -2


cdef class ReplyBase:
    cdef readonly Core core
    cdef atomr_reply node
    cdef readonly object value
    cdef object failure
    cdef object __weakref__


cdef class PlanRef:
    cdef readonly Core core
    cdef readonly unsigned lane
    cdef readonly uint32_t index
    cdef readonly tuple layouts
    cdef readonly tuple names
    cdef readonly tuple scalar_names
    cdef dict places
    cdef int out_place
    cdef unsigned n_operands
    cdef unsigned n_scalars
    cdef uint32_t *access
    cdef uint64_t *defaults
    cdef bint *integral
    cdef bint *required
    cdef public uint32_t group
    cdef public unsigned apart
    cdef public unsigned modes
    cdef public dict complexes
    cdef public uint32_t ready_epoch
    cdef readonly uint64_t last_ticket
    cdef public object reply_type
    cdef unsigned n_given
    cdef readonly tuple fixed  # the operands behind those that callers give
    cdef atomr_use *fixed_uses
    cdef uint32_t *fixed_slots  # sorted: of all of them, then of those that are written
    cdef unsigned n_fixed_written
    cdef bint fixed_foreign     # one of them is memory of others
    cdef list unsent
    cdef public object expansion
    cdef object __weakref__
    cdef ReplyBase hand_over(self, object recorder, PyObject **refs, uint64_t *scalars, bint want_reply)
    cdef int refuse_use(self, unsigned i, Ref ref) except -1
    cdef int publish(self) except -1
    cdef ReplyBase dispatch(self, PyObject *const *operands, Py_ssize_t given, object out, dict named, tuple ordered,
                            bint want_reply, bint may_wait)
    cdef int note(self, ReplyBase reply, uint64_t ticket) except -1
    cdef int follow(self, ReplyBase reply, uint64_t ticket) except -1
    cdef int place(self, str name, object value, atomr_use *uses, PyObject **refs, uint64_t *scalars, uint64_t *given) except -1
    cdef int place_complex(self, str name, object value, int real, int imaginary, uint64_t *scalars, uint64_t *given) except -1
    cdef bint may_share(self, PyObject **refs) noexcept
    cdef int keep_apart(self, PyObject **refs) except -1
    cdef object written(self, PyObject **refs)
    cdef uint64_t convert(self, int i, object value) except? 0xFFFFFFFFFFFFFFFF
    cdef int fill(self, atomr_use *use, PyObject **ref_at, unsigned i, object operand) except -1
    cdef int refuse_send(self, int result, object allocation) except -1
    cdef object send_slowly(self, int result, atomr_use *uses, uint64_t *scalars, atomr_reply *node, uint64_t *ticket, unsigned bad, tuple refs, bint may_wait)


cdef class Sequence:
    cdef uint64_t number
    cdef public bint closed  # quick sends are over
    cdef public list groups  # open ones, of all threads; quick sends are none of their calls
    cdef int under_way  # quick sends; atomic


cdef class RanksMessage:
    cdef Sequence sequence
    cdef uint64_t meeting
    cdef list plans
    cdef type handle
    cdef unsigned n
    cdef unsigned n_uses
    cdef unsigned n_words
    cdef bint is_quick
    cdef bint lists[2]
    cdef bint apart
    cdef int root
    cdef unsigned char *sources
    cdef unsigned *counts
    cdef list layouts
    cdef uint64_t *words
    cdef int send_quickly(self, object arrays, object out) except -1


cdef class CallForm:
    cdef readonly object unpack
    cdef readonly object pack
    cdef readonly tuple names
    cdef readonly bytes kinds
    cdef readonly tuple defaults
    cdef Py_ssize_t fixed
    cdef int rest
    cdef list structure(self, tuple values)


cdef class CallTemplate:
    cdef readonly PlanRef plan
    cdef type handle
    cdef tuple fresh
    cdef int *places
    cdef Py_ssize_t n_operands
    cdef Py_ssize_t n_numbers
    cdef object convert
    cdef tuple result
    cdef Py_ssize_t first
    cdef object kind
    cdef bint is_list
    cdef tuple unsent
    cdef Py_ssize_t n_unsent
    cpdef object run(self, tuple values, bint want_reply)
    cdef object gather(self, tuple values, tuple refs)


cdef class CallCache:
    cdef dict known
    cdef unsigned limit
