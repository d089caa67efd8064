# cython: language_level=3, boundscheck=False, wraparound=False
"""The parent's side of a device: allocation, handles, sending and waiting.

Contract.  Thin owning classes over sender_core.h, safe to use from any thread.  Errors of C come back
as typed exceptions.  The GIL is held while sending, since that takes tens of nanoseconds and never
blocks; it is released while waiting for a reply or for room in a mailbox.  Sending enqueues; only
`wait`, `result` and a full mailbox wait.  A Core outlives everything that refers to it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM
from libc.errno cimport EPROTO, errno
from libc.math cimport INFINITY, isnan
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strerror
from posix.mman cimport (
    MADV_HUGEPAGE, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, madvise, mmap, mprotect,
    munmap)
from posix.unistd cimport usleep

from numpy import complexfloating, generic

from .._support.options import unknown_option
from .._support.recorded import KINDS, converted, is_recorded, plain
from .._support.timeouts import seconds_of
from ..errors import AskTimeout, AtomrError, DependencyFailed, DeviceLost, InvalidRequest, MailboxFull, OutOfMemory

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1

cdef extern from "runtime/quick_send.h":
    ctypedef object (*quick_sender)(object plan, PyObject *const *operands, Py_ssize_t n, PyObject *out, int kind)
    PyObject *const *items_of(object tuple)
    object quick_send_type()
    object quick_send_new(object type, object function, quick_sender send, int kind)


cdef extern from "runtime/shm.h" nogil:
    uint64_t atomr_now_ns()

VOLATILE, DURABLE, STAGING = ATOMR_VOLATILE, ATOMR_DURABLE, ATOMR_STAGING
STARTING, OPEN, RESTARTING, LOST, CLOSED = (
    ATOMR_STARTING, ATOMR_OPEN, ATOMR_RESTARTING, ATOMR_LOST, ATOMR_CLOSED)
# Why a message failed: an atomr_code of shm.h.
UNSUPPORTED, INVALID_REQUEST, OUT_OF_MEMORY = ATOMR_UNSUPPORTED, ATOMR_INVALID_REQUEST, ATOMR_OUT_OF_MEMORY
STALE_RESTARTED, STALE_TORN, STALE_ROLLED_BACK = ATOMR_STALE_RESTARTED, ATOMR_STALE_TORN, ATOMR_STALE_ROLLED_BACK
DEVICE_FAULT, DEVICE_LOST, ACTOR_STOPPED = ATOMR_DEVICE_FAULT, ATOMR_DEVICE_LOST, ATOMR_ACTOR_STOPPED
ABI = ATOMR_ABI
MAX_LANES = ATOMR_LANES
MAX_OPERANDS = ATOMR_MAX_OPERANDS
MAX_BOUND = ATOMR_MAX_BOUND
MAX_SCALARS = ATOMR_MAX_SCALARS
MAX_SUBSCRIBERS = ATOMR_SUBSCRIBERS
MIN_CELLS = ATOMR_MIN_CELLS
NEVER = 0xFFFFFFFFFFFFFFFF

cdef enum:
    ALIGNMENT = 256  # of allocations, and what their sizes are rounded up to
    # Allocation.freed: its handles are stale; or it belongs to a recording, and outside of that nothing may use it yet.
    FREED = 1
    RECORDED = 2
    RECORDED_FREED = 3

cdef uint64_t STAMP_TICKET = (<uint64_t>1 << 56) - 1  # the low bits of a stamp; the others are its lane
cdef object observer = None


def observe(callback):
    """Have ``callback(plan, reply, ticket)`` called after each message is sent; None for nobody.  It may not raise."""
    global observer
    observer = callback


cdef class Core:
    """Everything the parent knows of one device; survives the device's restarts.

    Parameters
    ----------
    cells : int
        Mailbox size of each lane, in cells of 256 bytes; a power of two, at least 32.
    slots : int
        How many allocations may exist at once.
    """

    def __cinit__(self, uint32_t cells, uint32_t slots=1 << 20):
        self.sender = atomr_sender_new(cells, slots)
        if self.sender == NULL:
            raise OSError(errno, f"cannot make the mailboxes: {strerror(errno).decode()}")
        self.cells = cells
        self.layouts = {}
        self.timeout_ns = -1
        self.spin_ns = 30_000
        self.recorders = None

    def __dealloc__(self):
        cdef unsigned i
        if self.sender != NULL and not self.abandoned:
            for i in range(ATOMR_MAX_SEGMENTS):
                if self.sizes[i]:
                    munmap(self.bases[i], self.sizes[i])
            with nogil:
                atomr_sender_delete(self.sender)

    cdef int alive(self) except -1:
        if self.abandoned:
            raise DeviceLost("this System was made before a fork; make a new one in the child process")
        return 0

    cpdef object recorder(self):
        """What records the messages of the calling thread to this device; None for a thread that sends them."""
        cdef dict recorders = self.recorders
        if recorders is None:
            return None
        found = recorders.get(<uint64_t>PyThread_get_thread_ident())
        return found if found is not None and found.listens() else None

    def refuse_recording(self, str what not None):
        """Raise InvalidRequest if the calling thread records."""
        if self.recorders is not None and self.recorder() is not None:
            raise InvalidRequest(f"{what} inside a recording, which only lists messages: nothing has run yet; allowed: "
                                 f"before it, or after a message of its plan")

    def begin_recording(self, recorder):
        """Have the messages of the calling thread recorded; it has no recorder yet."""
        cdef dict recorders = {} if self.recorders is None else self.recorders.copy()
        recorders[<uint64_t>PyThread_get_thread_ident()] = recorder
        self.recorders = recorders

    def end_recording(self, recorder):
        """Have the messages of the recorder's thread sent again."""
        recorders = {thread: one for thread, one in (self.recorders or {}).items() if one is not recorder}
        self.recorders = recorders or None

    def stand_in(self, Ref ref not None):
        """A handle of the same view, for a recording: it stands for whatever array each replay is given."""
        cdef Allocation a = Allocation.__new__(Allocation)
        cdef Allocation given = ref.allocation
        cdef Ref made
        a.core = self
        a.slot, a.generation, a.nbytes, a.pool = given.slot, given.generation, given.nbytes, given.pool
        a.epoch, a.block, a.readonly = given.epoch, given.block, given.readonly
        a.borrowed = True
        a.freed = RECORDED
        made = <Ref>type(ref).__new__(type(ref))
        made.allocation, made.layout, made.offset, made.whole = a, ref.layout, ref.offset, ref.whole
        return made

    def whole_of(self, type cls, Allocation a not None, Layout layout not None):
        """A handle of all bytes of an allocation."""
        cdef Ref made = <Ref>cls.__new__(cls)
        made.allocation, made.layout, made.offset, made.whole = a, layout, 0, True
        return made

    def abandon(self, dict segments not None):
        """In a forked child: give everything up; each later use raises DeviceLost.

        `segments` has the descriptors of the segments by number.  Arrays of the program may refer to their memory.  So
        it stays readable; what the child writes is its own.
        """
        cdef unsigned i
        cdef int fd
        if self.abandoned:
            return
        self.abandoned = True
        for i in range(ATOMR_MAX_SEGMENTS):
            if self.sizes[i]:
                fd = segments.get(i, -1)
                if fd < 0 or mmap(self.bases[i], self.sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                                  0) == MAP_FAILED:
                    mprotect(self.bases[i], self.sizes[i], PROT_READ)
                self.bases[i] = NULL
        atomr_sender_abandon(self.sender)

    @property
    def p_fd(self):
        """Descriptor of the parent's memory; stays the Core's."""
        return atomr_sender_p_fd(self.sender)

    @property
    def p_bytes(self):
        return atomr_sender_p_bytes(self.sender)

    @property
    def epoch(self):
        """Generation of the device: 1, and one more with each restart."""
        self.alive()
        return atomr_sender_epoch(self.sender)

    @property
    def state(self):
        return CLOSED if self.abandoned else atomr_sender_state(self.sender)

    @state.setter
    def state(self, int state):
        self.alive()
        atomr_sender_set_state(self.sender, state)

    def attach(self, int w_fd, uint64_t w_bytes):
        """Map the memory of a new worker.  The descriptor stays the caller's."""
        self.alive()
        if atomr_sender_attach(self.sender, w_fd, w_bytes) != 0:
            if errno != EPROTO:
                raise OutOfMemory(f"cannot map the worker's shared memory: {strerror(errno).decode()}",
                                  requested=w_bytes)
            raise AtomrError(f"the worker's shared memory does not fit this version: {strerror(errno).decode()}")

    def fault(self, int code, uint32_t fault, str text):
        """Account for a dead worker (see atomr_sender_fault); returns a dict of what was found."""
        cdef atomr_fault_report r
        cdef bytes raw = text.encode()[:800]
        self.alive()
        atomr_sender_fault(self.sender, code, fault, raw, &r)
        report = {
            "suspects": [(r.suspects[i].lane, r.suspects[i].ticket, r.suspects[i].plan) for i in range(r.n_suspects)],
            "plans": {r.plans[i] for i in range(r.n_plans)},
            "groups": {r.groups[i] for i in range(r.n_groups)},
            "keys": [(r.keys[i].meeting, r.keys[i].sequence) for i in range(r.n_keys)],
            "refused": r.n_refused, "stale": r.n_stale, "torn": r.n_torn,
        }
        if r.cause.told:
            report["cause"] = {"lib": r.cause.lib.decode(errors="replace"), "code": r.cause.code,
                               "name": r.cause.name.decode(errors="replace"),
                               "text": r.cause.text.decode(errors="replace")}
        atomr_fault_report_release(&r)
        return report

    def end(self, int state, int code, uint32_t fault, str text):
        """Resolve everything as failed; no message will run any more."""
        cdef bytes raw = text.encode()[:800]
        self.alive()
        atomr_sender_end(self.sender, state, code, fault, raw)

    def open_lane(self):
        """Reserve a lane; its index."""
        self.alive()
        index = atomr_sender_open_lane(self.sender)
        if index < 0:
            raise InvalidRequest(f"a device has at most {ATOMR_LANES} lanes (actors), and all are in use")
        return index

    def reserve_segment(self):
        """Number a segment that is about to be made."""
        cdef uint32_t segment
        self.alive()
        if atomr_sender_reserve_segment(self.sender, &segment) != ATOMR_DONE:
            raise OutOfMemory(f"a device has at most {ATOMR_MAX_SEGMENTS - 1} segments of memory")
        return segment

    def add_segment(self, uint32_t segment, int pool, uint64_t nbytes):
        """Let `pool` hand out the memory of a reserved segment; `pool` -1 gives the number back."""
        self.alive()
        if atomr_sender_add_segment(self.sender, segment, pool, nbytes) != ATOMR_DONE:
            raise OutOfMemory(f"segment {segment} of {nbytes} bytes cannot be added", requested=nbytes)

    def borrow(self, uint32_t slot, uint32_t generation, uint64_t nbytes, uint32_t epoch, bint readonly=False):
        """An allocation known by name only: it does not own, and is stale when its owner's is.

        `epoch` is that of the owner, from which a stale handle knows why.
        """
        cdef Allocation a = Allocation.__new__(Allocation)
        self.alive()
        a.core = self
        a.slot = slot
        a.generation = generation
        a.nbytes = nbytes
        a.borrowed = True
        a.readonly = readonly
        a.epoch = epoch
        if atomr_block_of(self.sender, slot, generation, &a.block, &a.pool) == ATOMR_DONE:
            if nbytes > a.block.nbytes or max(nbytes, 1) + ALIGNMENT <= a.block.nbytes:
                raise InvalidRequest(f"this name says {nbytes} bytes of an allocation of {a.block.nbytes}: it is damaged")
        return a

    def borrow_ref(self, type cls, uint32_t slot, uint32_t generation, uint64_t nbytes, uint32_t epoch,
                   bint readonly=False):
        """A handle of a borrowed allocation as a whole, without a layout yet: only `view_of` is meaningful."""
        cdef Ref ref = <Ref>cls.__new__(cls)
        ref.allocation = self.borrow(slot, generation, nbytes, epoch, readonly)
        return ref

    def remove_segment(self, int pool):
        """Take away one wholly free segment of `pool`: its number, or 0."""
        cdef uint32_t segment
        self.alive()
        segment = atomr_sender_remove_segment(self.sender, pool)
        if segment and self.sizes[segment]:
            munmap(self.bases[segment], self.sizes[segment])
            self.bases[segment] = NULL
            self.sizes[segment] = 0
        return segment

    def map_segment(self, uint32_t segment, int fd, uint64_t nbytes):
        """Map a segment's memory here, for zero-copy access; the address.  The descriptor stays the caller's."""
        cdef void *base
        if not atomr_memfd_is_fixed(fd, nbytes):
            raise AtomrError(f"the worker made a segment that is smaller than {nbytes} bytes, or could become smaller")
        base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise OutOfMemory(f"cannot map a segment of {nbytes} bytes: {strerror(errno).decode()}", requested=nbytes)
        madvise(base, nbytes, MADV_HUGEPAGE)  # a kernel that cannot, or may not, is no error
        self.bases[segment] = base
        self.sizes[segment] = nbytes
        return <uint64_t>base

    def arm_pool(self, int pool, uint64_t mark, uint64_t most):
        """Let `pool` ask for growth when an allocation leaves less than `mark`; see atomr_sender_arm_pool."""
        self.alive()
        atomr_sender_arm_pool(self.sender, pool, mark, most)

    def asks_for_growth(self, int pool):
        """Whether `pool` asks, and has not been armed since."""
        self.alive()
        return bool(atomr_sender_low_pools(self.sender) >> pool & 1)

    def wait_low(self):
        """Wait until a pool asks for growth; False at the end (`stop_low`)."""
        cdef int r
        self.alive()
        with nogil:
            r = atomr_sender_wait_low(self.sender)
        return bool(r)

    def stop_low(self):
        """End `wait_low`, for good."""
        if not self.abandoned:
            atomr_sender_stop_low(self.sender)

    def pool_stats(self, int pool):
        cdef atomr_pool_stats s
        self.alive()
        atomr_sender_pool_stats(self.sender, pool, &s)
        return {"total": s.total, "in_use": s.in_use, "free": s.free, "largest": s.largest,
                "deferred": s.deferred, "segments": s.segments, "blocks": s.blocks}

    def lane_stats(self, unsigned lane):
        cdef atomr_lane_stats s
        self.alive()
        if atomr_sender_lane_stats(self.sender, lane, &s) != 0:
            raise InvalidRequest(f"lane {lane} is not open")
        return {"sent": s.sent, "claimed": s.claimed, "completed": s.completed, "cells_in_use": s.cells_in_use,
                "messages": s.messages, "failed": s.failed, "busy_ns": s.busy_ns, "parks": s.parks,
                "started_ns": s.started_ns, "parked": bool(s.parked)}

    def trace(self, bint more):
        """One more trace runs, or one less: while any does, lanes note when they work at which message."""
        self.alive()
        atomr_sender_trace(self.sender, more)

    def watch(self):
        """Have lanes tell of each message's end by itself, for a watchdog."""
        self.alive()
        atomr_sender_watch(self.sender)

    def dependencies(self, unsigned lane, uint64_t ticket):
        """What a message waits for in other lanes, as (lane, ticket): what was not resolved when it was sent.

        To be asked for before it is done; () when it is, and its place used again.
        """
        cdef uint64_t stamps[ATOMR_LANES]
        cdef int i, n
        self.alive()
        n = atomr_sent_deps(self.sender, lane, ticket, stamps)
        return tuple([(stamps[i] >> 56, stamps[i] & STAMP_TICKET) for i in range(n)])

    @property
    def control_busy(self):
        """CLOCK_MONOTONIC nanoseconds since which the worker's control thread works, or 0."""
        self.alive()
        return atomr_sender_control_busy(self.sender)

    def acquitted(self):
        """Numbers of the plans that the worker has acquitted, oldest first; untrusted."""
        cdef uint32_t plans[ATOMR_ACQUITTED]
        cdef unsigned n
        self.alive()
        n = atomr_sender_acquitted(self.sender, plans)
        return [plans[i] for i in range(n)]

    def want(self, unsigned lane, unsigned subscriber, uint64_t ticket):
        """Have the worker signal the eventfd of `subscriber` when `ticket` resolves; True if it has."""
        self.alive()
        return bool(atomr_want(self.sender, lane, subscriber, ticket))

    def resolved(self, unsigned lane, uint64_t ticket):
        self.alive()
        return bool(atomr_resolved(self.sender, lane, ticket))

    def room_ticket(self, unsigned lane, unsigned operands=0):
        """The ticket whose resolution makes room in a full mailbox; 0 when there is room."""
        self.alive()
        return atomr_room_ticket(self.sender, lane, cells_of(operands))

    def wait_ticket(self, unsigned lane, uint64_t ticket, timeout=None, spin=None):
        """Wait until a ticket is resolved; False when `timeout` seconds pass first.

        `spin` are the seconds for which it is looked for all the time, instead of the device's own.
        """
        return self.wait_spinning(lane, ticket, nanoseconds(timeout),
                                  self.spin_ns if spin is None else <uint64_t>nanoseconds(spin))

    def rouse(self, unsigned lane, double until):
        """Wake a lane: a message that comes before `until` (of the monotonic clock, seconds) shall find it awake."""
        self.alive()
        atomr_rouse(self.sender, lane, <uint64_t>(until * 1e9))

    cdef object wait(self, unsigned lane, uint64_t ticket, int64_t timeout_ns):
        return self.wait_spinning(lane, ticket, timeout_ns, self.spin_ns)

    cdef object wait_spinning(self, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin):
        cdef int r
        cdef int64_t slice_ns, left = timeout_ns
        cdef uint64_t began = 0
        self.alive()
        while True:
            slice_ns = 200_000_000 if left < 0 or left > 200_000_000 else left
            with nogil:
                if timeout_ns > 0 and began == 0:
                    began = atomr_now_ns()
                r = atomr_wait(self.sender, lane, ticket, slice_ns, spin)
            if r == ATOMR_DONE:
                return True
            PyErr_CheckSignals()
            self.alive()  # a signal handler may have forked
            spin = 0
            if timeout_ns >= 0:
                # By the clock, since signals cut the slices short.
                left = timeout_ns - <int64_t>(atomr_now_ns() - began) if timeout_ns else 0
                if left <= 0:
                    return False

    def orphans(self):
        """Take the failures of messages that nobody holds a reply to: a list of (lane, ticket, error)."""
        cdef atomr_verdict *v
        found = []
        self.alive()
        while True:
            v = atomr_next_orphan(self.sender)
            if v == NULL:
                return found
            found.append((v.lane, v.error.ticket, self.errors(*describe(v))))
            atomr_verdict_release(self.sender, v)

    cdef Allocation allocate(self, uint64_t nbytes, int pool):
        cdef Allocation a = Allocation.__new__(Allocation)
        cdef int r
        self.alive()
        while True:
            r = atomr_alloc(self.sender, pool, nbytes, &a.slot, &a.generation, &a.block)
            if r == ATOMR_DONE:
                break
            if r == ATOMR_REFUSED:
                raise self.stale(None, "device closed" if self.state == CLOSED else "device lost")
            if r != ATOMR_EMPTY:
                raise OutOfMemory("no bookkeeping memory or no free handle for another allocation", requested=nbytes)
            self.grow(pool, nbytes)
        a.core = self
        a.pool = pool
        a.nbytes = nbytes
        a.epoch = atomr_sender_epoch(self.sender)
        if self.recorders is not None and pool != ATOMR_STAGING:
            recorder = self.recorder()
            if recorder is not None:
                a.freed = RECORDED
                recorder.own(a)
        return a

    def keep(self, Allocation a not None):
        """Let a volatile allocation outlive the worker, for scratch memory; False if the worker has just died."""
        self.alive()
        return atomr_keep(self.sender, a.slot, a.generation) == ATOMR_DONE

    def group_add(self, uint32_t group, Allocation a not None, bint internal):
        """Make a durable allocation a member of a group (or its shadow: `internal`)."""
        self.alive()
        if atomr_group_add(self.sender, group, a.slot, a.generation, internal) != ATOMR_DONE:
            raise InvalidRequest("a group takes live durable allocations, each in one group only")

    def group_dissolve(self, uint32_t group):
        """Make the members of a group plain durable allocations."""
        if not self.abandoned:
            atomr_group_dissolve(self.sender, group)

    def group_recovered(self, uint32_t group):
        """Note that a new worker has found a commit of a group, and brought it back to that if it had to."""
        self.alive()
        atomr_group_recovered(self.sender, group)

    def tear(self, Allocation a not None):
        """Declare the bytes of an allocation damaged: reading it raises GpuRefStale (torn)."""
        self.alive()
        atomr_tear(self.sender, a.slot, a.generation)

    def judge_again(self):
        """Refuse queued messages that would read what is torn now; while no worker runs."""
        self.alive()
        atomr_sender_judge_again(self.sender)

    def empty_of(self, type cls, shape, dtype, int pool):
        """Like `empty`, by the shape and type of an array that `layouts` knows; None if it does not.

        A shape is known only by integers: (2.0, 3) equals (2, 3), and is no shape.
        """
        if type(shape) is not tuple:
            return None
        for n in <tuple>shape:
            if type(n) is not int:
                return None
        try:
            layout = self.layouts.get((shape, dtype))
        except TypeError:  # a dtype that cannot be hashed
            return None
        return None if layout is None else self.make(cls, <Layout>layout, pool)

    def empty(self, type cls, Layout layout not None, int pool=0):
        """Allocate memory for one array and return the handle of type `cls`.  Does not wait, unless the
        pool must grow."""
        return self.make(cls, layout, pool)

    cdef Ref make(self, type cls, Layout layout, int pool):
        cdef Allocation a = self.allocate(layout.nbytes, pool)
        cdef Ref ref = <Ref>cls.__new__(cls)
        ref.allocation = a
        ref.layout = layout
        ref.offset = 0
        ref.whole = layout.contiguous
        return ref


cdef class SpanReader:
    """Reads when the messages of one lane were worked at, while a trace runs.

    For one thread at a time.
    """

    def __cinit__(self, Core core not None, unsigned lane):
        self.core = core
        self.lane = lane

    @property
    def lost(self):
        """How many came faster than they were read."""
        return self.place.lost

    def read(self):
        """Return those that were not returned yet, as (ticket, began, ended): CLOCK_MONOTONIC, nanoseconds."""
        cdef atomr_span_copy spans[256]
        cdef unsigned i, n = 256
        cdef list found = []
        while n == 256 and not self.core.abandoned:
            n = atomr_read_spans(self.core.sender, self.lane, &self.place, spans, 256)
            for i in range(n):
                found.append((spans[i].ticket, spans[i].began_ns, spans[i].ended_ns))
        return found


# Of one module for speed: what a send reads of handles and plans in other extension modules costs it a tenth.
include "sender_handles.pxi"
include "sender_plans.pxi"
include "sender_bound.pxi"
include "sender_calls.pxi"
include "sender_ranks.pxi"
