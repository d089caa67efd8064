# cython: language_level=3
"""Declarations of actor_mailbox.h, and the classes over it."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "runtime/actor_mailbox.h" nogil:
    enum: ATOMR_PUT
    enum: ATOMR_NO_ROOM
    enum: ATOMR_SHUT
    enum: ATOMR_EVICTED
    enum: ATOMR_NO_MEMORY
    enum: ATOMR_NOTHING
    enum: ATOMR_USER
    enum: ATOMR_SYSTEM
    enum: ATOMR_BOUNDED
    enum: ATOMR_BEYOND
    enum: ATOMR_LATE
    enum: ATOMR_READY

    ctypedef struct atomr_mailbox:
        uint32_t capacity
    ctypedef struct atomr_outcome:
        pass

    int atomr_mailbox_init(atomr_mailbox *m, uint32_t capacity)
    void atomr_mailbox_destroy(atomr_mailbox *m)
    int atomr_mailbox_put(atomr_mailbox *m, void *item, int bound, int evict, void **evicted)
    int atomr_mailbox_put_back(atomr_mailbox *m, void *item)
    int atomr_mailbox_put_system(atomr_mailbox *m, void *item)
    int atomr_mailbox_take(atomr_mailbox *m, void **item, int *room)
    void *atomr_mailbox_take_user(atomr_mailbox *m)
    int atomr_mailbox_wait(atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns)
    int atomr_mailbox_arm(atomr_mailbox *m)
    int atomr_mailbox_await_room(atomr_mailbox *m, int64_t timeout_ns)
    void atomr_mailbox_shut(atomr_mailbox *m, int system)
    void atomr_mailbox_watch(atomr_mailbox *m, int event_fd)
    void atomr_mailbox_suspend(atomr_mailbox *m, int yes)
    uint32_t atomr_mailbox_depth(atomr_mailbox *m)
    void atomr_mailbox_want_room(atomr_mailbox *m)
    int atomr_outcome_claim(atomr_outcome *o)
    int atomr_outcome_publish(atomr_outcome *o)
    int atomr_outcome_done(atomr_outcome *o)
    void atomr_outcome_wake(atomr_outcome *o)
    int atomr_outcome_wait(atomr_outcome *o, atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns)
    int atomr_outcome_add(atomr_outcome *o, void *entry, void **next)
    void *atomr_outcome_close(atomr_outcome *o)


cdef class Envelope:
    cdef public object message, sender, extra, mark
    cdef public AnswerBase answer
    cdef public int kind
    cdef public bint deferred


cdef class AnswerBase:
    cdef atomr_outcome outcome
    cdef object value_, error_
    cdef public CellBase cell
    cdef public double deadline
    cdef public str what

    cpdef bint resolve(self, object value)
    cpdef bint fail(self, object error)
    cdef bint give(self, object value, object error, bint defer)
    cdef void settle(self, bint defer)


cdef class CellBase:
    cdef atomr_mailbox box
    cdef int epoch
    cdef AnswerBase owed
    cdef public object behavior
    cdef public Envelope current
    cdef public object ref
    cdef public object stepper
    cdef public bint finished, evicts, draining
    cdef readonly bint busy
    cdef public uint64_t processed, failed, spin_ns

    cdef int alive(self) except -1
    cdef int note(self, Envelope envelope) except -1
    cdef int put(self, Envelope envelope, int bound) except -1
    cdef int handle(self, Envelope envelope) except -1
    cdef int handle_marked(self, Envelope envelope) except -1
    cdef int once(self) except -1


cdef class RefBase:
    cdef public CellBase cell
    cdef object __weakref__
