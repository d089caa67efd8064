# cython: language_level=3, boundscheck=False, wraparound=False
"""Copies in host memory by several threads, and the short way of small arrays to a device and back.

Contract.  HostCopy owns one job of host_copy.h; `send_bytes` and SmallCopies send through sender_core.h as a plan
does.  Errors come back as typed exceptions.  The GIL is held while sending and for copies of at most some ten
KiB; it is released while waiting.  `send_bytes` and `SmallCopies.put` enqueue; `SmallCopies.get` waits.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from .host_copy cimport (
    ATOMR_COPY, ATOMR_COPY_FRESH, ATOMR_COPY_MAX_HELPERS, ATOMR_COPY_TOUCH, ATOMR_COPY_ZERO, atomr_copy, atomr_copy_done,
    atomr_copy_finish, atomr_copy_helpers, atomr_copy_set_helpers, atomr_copy_start)
from .sender cimport (
    ATOMR_DONE, ATOMR_STAGING, ATOMR_WRITE, Allocation, Core, Layout, PlanRef, Ref, ReplyBase, atomr_reply, atomr_reply_settle,
    atomr_send_in, atomr_sender_epoch, atomr_use, nanoseconds, refuse_write)

from ..errors import AskTimeout, DeviceLost, InvalidRequest

COPY, FRESH, ZERO, TOUCH = ATOMR_COPY, ATOMR_COPY_FRESH, ATOMR_COPY_ZERO, ATOMR_COPY_TOUCH

cdef enum:
    LAYOUTS = 4096  # shapes and types that SmallCopies knows at once


def copy_helpers():
    """How many threads of this process help with large copies, beside the caller."""
    return atomr_copy_helpers()


def set_copy_helpers(int n):
    """Change that: 0 to 64.  For tests and tuning; by default half of the processors, 1 to 8."""
    if not 0 <= n <= ATOMR_COPY_MAX_HELPERS:
        raise InvalidRequest(f"{n} helpers; allowed: 0 to {ATOMR_COPY_MAX_HELPERS}")
    atomr_copy_set_helpers(n)


@cython.no_gc_clear  # threads copy from and to what the owners keep, until __dealloc__ has waited for them
cdef class HostCopy:
    """A copy in host memory that has begun; it ends in `finish`, or with this object.

    Parameters
    ----------
    kind : int
        ``COPY``; ``FRESH``, to memory whose pages may not be there yet; ``ZERO`` and ``TOUCH`` have no source.
    target, source : int
        Addresses; the ranges do not overlap.
    nbytes : int
        How much.
    owners
        What keeps both valid.
    """

    cdef atomr_copy job
    cdef object owners

    def __cinit__(self, int kind, uint64_t target, uint64_t source, uint64_t nbytes, object owners):
        self.owners = owners
        with nogil:
            atomr_copy_start(&self.job, kind, <void *>target, <const void *>source, nbytes)

    def __dealloc__(self):
        if not atomr_copy_done(&self.job):
            with nogil:
                atomr_copy_finish(&self.job)

    def done(self):
        """Whether nothing is left to do.  Does not wait."""
        return bool(atomr_copy_done(&self.job))

    def finish(self):
        """Help, and wait for the rest.  Idempotent.

        Raises
        ------
        DeviceLost
            In a child that was forked meanwhile: the threads that copied are not there.
        """
        cdef int r
        with nogil:
            r = atomr_copy_finish(&self.job)
        if r != 0:
            raise DeviceLost("this copy was begun before a fork; it goes on in the parent only")


cdef int check_range(Ref ref, Core core, uint64_t at, uint64_t nbytes) except -1:
    if ref.allocation.core is not core:
        raise InvalidRequest("this GpuRef lives on another device or in another System; copy it to this one first")
    if ref.allocation.freed:
        raise core.stale(ref.allocation, ref.allocation.status())
    if at > ref.allocation.nbytes or nbytes > ref.allocation.nbytes - at:
        raise InvalidRequest(f"bytes {at} to {at + nbytes} leave an allocation of {ref.allocation.nbytes}")
    return 0


cdef object dispatch(PlanRef plan, Ref source, uint64_t source_at, Ref target, uint64_t target_at, uint64_t nbytes,
                     ReplyBase reply, bint may_wait):
    """Send a message that copies bytes; its ticket, or None when there is no room and it may not wait."""
    cdef atomr_use uses[2]
    cdef uint64_t scalar = nbytes, ticket = 0
    cdef unsigned bad = 0
    cdef int result
    cdef atomr_reply *node = NULL
    cdef Core core = plan.core
    core.alive()
    if core.recorders is not None and core.recorder() is not None:
        raise InvalidRequest("a recording takes no copies from or to the host: a replay would copy other bytes than "
                             "this call; put arrays before it, and read them after a replay")
    while plan.ready_epoch != atomr_sender_epoch(core.sender):
        plan.prepare()
    source_at += source.offset
    target_at += target.offset
    check_range(source, core, source_at, nbytes)
    check_range(target, core, target_at, nbytes)
    if target.allocation.readonly and plan.access[1] & ATOMR_WRITE:
        refuse_write("out")
    uses[0].slot = source.allocation.slot
    uses[0].generation = source.allocation.generation
    uses[0].offset = source_at
    uses[0].access = plan.access[0]
    uses[0].whole = 0
    uses[1].slot = target.allocation.slot
    uses[1].generation = target.allocation.generation
    uses[1].offset = target_at
    uses[1].access = plan.access[1]
    uses[1].whole = target_at == 0 and nbytes == target.allocation.nbytes
    if reply is not None:
        reply.core = core
        reply.node.lane = plan.lane
        node = &reply.node
    result = atomr_send_in(core.sender, plan.ready_epoch, plan.lane, plan.index, uses, 2, &scalar, 1, 0, node,
                           &ticket, &bad)
    if result != ATOMR_DONE:
        if plan.send_slowly(result, uses, &scalar, node, &ticket, bad, (source, target), may_wait) is False:
            return None
    plan.last_ticket = ticket
    plan.note(reply, ticket)
    return ticket


def send_bytes(PlanRef plan not None, Ref source not None, uint64_t source_at, Ref target not None,
               uint64_t target_at, uint64_t nbytes, *, bint want_reply, bint may_wait=True):
    """Send a copy of consecutive bytes by a plan with the operands source and target, and the scalar nbytes.

    Parameters
    ----------
    plan
        A raw ``memory.copy`` for any layout.
    source, target, source_at, target_at
        Handles, and where to begin: bytes from their first element.
    nbytes
        How much.
    want_reply, may_wait
        Whether to keep a reply; whether to wait for room in a full mailbox.

    Returns
    -------
    Reply, int or None
        The reply, without a value; without `want_reply` the ticket.  None if there is no room, and it may not wait.
    """
    cdef ReplyBase reply = None
    if want_reply:
        reply = <ReplyBase>plan.reply_type.__new__(plan.reply_type)
    ticket = dispatch(plan, source, source_at, target, target_at, nbytes, reply, may_wait)
    return ticket if ticket is None or reply is None else reply


cdef inline char *host_address(Allocation a) noexcept:
    return <char *>a.core.bases[a.block.segment] + a.block.offset


cdef class SmallCopies:
    """`put` and `get` of small contiguous arrays, whose cost is that of every step; anything else is refused.

    Parameters
    ----------
    core
        The device's native part.
    ref_type, array_type, empty
        GpuRef, numpy.ndarray and numpy.empty.
    settle : callable
        Raises the error of a resolved reply.
    limit : int
        Bytes of the largest array.
    """

    cdef Core core
    cdef PlanRef to_device
    cdef PlanRef to_host
    cdef type ref_type
    cdef type array_type
    cdef object empty
    cdef object settle
    cdef uint64_t limit
    cdef dict layouts

    def __init__(self, Core core not None, type ref_type not None, type array_type not None, object empty,
                 object settle, uint64_t limit):
        self.core = core
        self.ref_type = ref_type
        self.array_type = array_type
        self.empty = empty
        self.settle = settle
        self.limit = limit
        self.layouts = {}

    def learn(self, Layout layout not None, PlanRef to_device not None, PlanRef to_host not None):
        """Take arrays of this layout from now on."""
        if layout.contiguous and 0 < layout.nbytes <= self.limit:
            if len(self.layouts) >= LAYOUTS:
                self.layouts.clear()
            self.to_device = to_device
            self.to_host = to_host
            self.layouts[layout.shape, layout.dtype] = layout

    cdef Layout layout_of(self, object array):
        if type(array) is not self.array_type:
            return None
        return <Layout>self.layouts.get((array.shape, array.dtype))

    cdef bint owns(self, object ref):
        return (type(ref) is self.ref_type and (<Ref>ref).allocation.core is self.core
                and not (<Ref>ref).allocation.freed)

    def put(self, object array, object dtype, object out, int pool):
        """Copy an array to the device; the handle, or None if this is not for here."""
        cdef Py_buffer view
        cdef Allocation staging
        cdef Ref source, target
        cdef Layout layout
        if dtype is not None:
            return None
        layout = self.layout_of(array)
        if layout is None:
            return None
        if out is not None:
            if not self.owns(out) or (<Ref>out).layout is not layout:
                return None
            target = <Ref>out
        try:
            PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS)
        except (BufferError, ValueError):  # not contiguous
            return None
        try:
            if out is None:
                target = self.new(layout, pool)
            source = self.new(layout, ATOMR_STAGING)
            staging = source.allocation
            memcpy(host_address(staging), view.buf, layout.nbytes)
        finally:
            PyBuffer_Release(&view)
        dispatch(self.to_device, source, 0, target, 0, layout.nbytes, None, True)
        return target

    def get(self, object ref, object out, object timeout):
        """Wait for what was sent before, and copy to an array; None if this is not for here."""
        cdef Py_buffer view
        cdef Ref source, target
        cdef Layout layout
        cdef ReplyBase reply
        cdef int64_t ns
        if not self.owns(ref):
            return None
        source = <Ref>ref
        layout = source.layout
        if self.to_host is None or not layout.contiguous or not 0 < layout.nbytes <= self.limit:
            return None
        ns = nanoseconds(timeout)
        if out is None:
            out = self.empty(layout.shape, layout.dtype)
        elif type(out) is not self.array_type or out.shape != layout.shape or out.dtype != layout.dtype:
            return None
        try:
            PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        except (BufferError, ValueError):  # not contiguous, or read-only
            return None
        try:
            target = self.new(layout, ATOMR_STAGING)
            reply = <ReplyBase>self.to_host.reply_type.__new__(self.to_host.reply_type)
            dispatch(self.to_host, source, 0, target, 0, layout.nbytes, reply, True)
            if self.core.wait(reply.node.lane, reply.node.ticket, ns) is False:
                raise AskTimeout(f"the array was not there within {timeout} s; the message goes on")
            atomr_reply_settle(self.core.sender, &reply.node)
            if reply.node.verdict != NULL:
                self.settle(reply)
            memcpy(view.buf, host_address(target.allocation), layout.nbytes)
        finally:
            PyBuffer_Release(&view)
        return out

    cdef Ref new(self, Layout layout, int pool):
        cdef Ref ref = <Ref>self.ref_type.__new__(self.ref_type)
        ref.allocation = self.core.allocate(layout.nbytes, pool)
        ref.layout = layout
        ref.offset = 0
        ref.whole = True
        return ref
