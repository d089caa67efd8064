# cython: language_level=3, boundscheck=False, wraparound=False
"""The worker's side: lanes, their plans, and the memory they work on.

Contract.  A thin owner of lane_core.h.  `add_plan` and friends are for the control thread; lanes run in
native threads of their own, without the GIL unless a plan is a Python callable.  `stop` waits for the
message that each lane is running; nothing else waits.
"""

import logging
import os
import threading

cimport cython

import numpy as np

from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport errno
from libc.stdlib cimport calloc, free
from libc.string cimport strerror, strncpy
from posix.mman cimport (
    MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ,
    PROT_WRITE, madvise, mmap, munmap)

from .seats cimport Seat, atomr_worker_set_meeting

from ..errors import AtomrError, InvalidRequest, LibraryError, OutOfMemory, PlanQuarantined, Unsupported

cdef extern from "<Python.h>":
    enum:
        PyBUF_WRITE

cdef extern from *:
    """
    /* A lane's thread keeps its Python thread state between messages: making one costs microseconds. */
    static _Thread_local int atomr_kept;
    static void atomr_keep_state(void) {
        if (atomr_kept) return;
        atomr_kept = 1;
        PyGILState_Ensure();
    }
    /* At the thread's end, but not after the interpreter's. */
    static void atomr_drop_state(void) {
        if (!atomr_kept || !Py_IsInitialized()) return;
        const PyGILState_STATE before = PyGILState_Ensure();
        PyGILState_Release(PyGILState_LOCKED); /* that of `atomr_keep_state` */
        PyGILState_Release(before);
    }
    """
    void atomr_keep_state()
    void atomr_drop_state() noexcept nogil

cdef enum:
    GAP = 2 << 20  # bytes without memory on each side of a segment

WINDOW = 4096  # nothing is at address 0, which stands for no memory
ABI = ATOMR_ABI
NATIVE_RUNS = ("noop", "copy")
logger = logging.getLogger("atomr_native.worker.lanes")
# In a forked child, lanes, since to free them would join threads and call drivers; elsewhere, what a device may still use.
# A C variable, so that nothing of it is freed at the end of the interpreter either.
cdef list abandoned = []


def lane_threads():
    """Return how many lanes of this process have a thread."""
    return atomr_lane_threads()


include "lane_python.pxi"


cdef class Backend:
    """The host: memory is memfds, work is done when a run returns."""

    cdef const atomr_backend *table(self) noexcept:
        """What `atomr_worker_new` wants; NULL for a synchronous device."""
        return NULL

    cdef int attach(self, void *w, uint64_t nbytes) except -1:
        """Note where the worker's memory is, before any lane opens."""
        return 0

    cdef bint detach(self) noexcept:
        """Let go of the worker's memory, after the lanes have ended; False: the device still uses it, and segments."""
        return True

    cdef int open_lane(self, unsigned lane) except -1:
        """Make what a lane needs of the device, before its thread starts."""
        return 0

    cdef int create(self, uint64_t nbytes, int pool) except -1:
        """Make memory, zeroed; a descriptor that outlives this process, the caller's to close."""
        cdef int fd = atomr_memfd(b"atomr-segment", nbytes)
        if fd >= 0 and atomr_memfd_fix(fd) != 0:  # the parent maps nothing that could shrink
            os.close(fd)
            fd = -1
        if fd < 0:
            raise OutOfMemory(f"the system has no {nbytes} bytes for a segment: {strerror(errno).decode()}",
                              requested=nbytes)
        return fd

    cdef void *map(self, int fd, uint64_t nbytes, int pool) except NULL:
        """Map memory that exists, with a gap on each side: writing past its end faults and spoils no other."""
        cdef void *base
        cdef void *reserved = mmap(NULL, nbytes + 2 * GAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if reserved == MAP_FAILED:
            raise OutOfMemory(f"no address space for a segment of {nbytes} bytes: {strerror(errno).decode()}",
                              requested=nbytes)
        base = mmap(<char *>reserved + GAP, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)
        if base == MAP_FAILED:
            munmap(reserved, nbytes + 2 * GAP)
            raise OutOfMemory(f"cannot map a segment of {nbytes} bytes: {strerror(errno).decode()}", requested=nbytes)
        madvise(base, nbytes, MADV_HUGEPAGE)  # a kernel that cannot, or may not, is no error
        return base

    cdef int unmap(self, void *base, uint64_t nbytes, int pool) except -1:
        """Undo `map`."""
        munmap(<char *>base - GAP, nbytes + 2 * GAP)
        return 0

    cdef void *open_shared(self, bytes handle) except NULL:
        """Map memory that another process has exported by a handle."""
        raise Unsupported("the host device takes no memory by handles of a driver")

    cdef int close_shared(self, void *base) except -1:
        """Undo `open_shared`."""
        return 0

    cdef void *open_peer(self, int fd, uint64_t nbytes, bytes uuid) except NULL:
        """Map a segment of another device, which is named by its UUID; `unmap` undoes it.

        Memory of a host device, which has none, is mapped wherever its descriptor comes.
        """
        if uuid:
            raise Unsupported("the host device maps no memory of GPUs")
        return self.map(fd, nbytes, 0)

    cdef void *open_own(self, uint64_t nbytes) except NULL:
        """Make memory that only this process and a library in it name, and that ends with this process."""
        raise Unsupported("the host device has no library that needs memory of its worker's own")

    cdef int close_own(self, void *base, uint64_t nbytes) except -1:
        """Undo `open_own`."""
        return 0

    cdef object native(self, object run, atomr_run *function, void **context):
        """Set the native function and context of a plan; what is returned lives as long as the plan."""
        if run == "noop":
            function[0] = <atomr_run>atomr_run_noop
        elif run == "copy":
            function[0] = <atomr_run>atomr_run_copy
        elif getattr(run, "kind", "") == "program":
            steps = Steps(self, run)
            function[0] = <atomr_run>atomr_program_run
            context[0] = &steps.native
            return steps
        else:
            raise InvalidRequest(f"unknown native routine {run!r}; there are {', '.join(NATIVE_RUNS)}")
        context[0] = NULL
        return None

    cdef object recorded(self, object holder, unsigned n_operands, unsigned n_scalars, atomr_run *function, void **context):
        """Let the messages of a plan be launched from records, where that gains; what is returned replaces `holder`."""
        return holder

    cdef dict record_counts(self):
        """Counts of launch records."""
        return {}

    cdef dict native_handles(self):
        """How many handles of native libraries there are, by library."""
        return {}


include "lane_steps.pxi"


@cython.no_gc_clear  # native threads use what the attributes hold, until __dealloc__ has stopped them
cdef class Lanes:
    """The lanes of one worker.

    Parameters
    ----------
    p_fd, p_bytes : int
        The parent's memory; the descriptor stays the caller's.
    parent_pidfd : int
        When not negative, a native thread ends this process as soon as that process ends.
    spin_us : int
        How long an idle lane spins before it parks, microseconds.
    fault_fd : int
        When not negative, an eventfd that a fault of the device rings, which otherwise ends this process; it stays
        the caller's, until after `stop`.
    backend : Backend, optional
        The kind of device; by default the host.

    Raises
    ------
    AtomrError
        If the parent's memory has another layout than this version expects.
    """

    def __cinit__(self, int p_fd, uint64_t p_bytes, *, int parent_pidfd=-1, uint64_t spin_us=50, int fault_fd=-1, backend=None):
        self.backend = Backend() if backend is None else <Backend?>backend
        self.worker = atomr_worker_new(p_fd, p_bytes, self.backend.table(), spin_us * 1000)
        if self.worker == NULL:
            raise AtomrError(f"cannot use the parent's shared memory: {strerror(errno).decode()}")
        atomr_worker_at_lane_end(self.worker, atomr_drop_state)
        self.plans = {}
        self.segments = {}
        self.foreign = {}
        self.meetings = {}
        self.lock = threading.Lock()
        if fault_fd >= 0:
            atomr_worker_outlive(self.worker, fault_fd)
        self.backend.worker = self.worker
        self.backend.attach(atomr_worker_w(self.worker), atomr_w_bytes())
        if parent_pidfd >= 0 and atomr_watch_parent(parent_pidfd) != 0:
            raise AtomrError(f"cannot watch the parent process: {strerror(errno).decode()}")

    def __dealloc__(self):
        if self.worker != NULL:
            with nogil:
                atomr_worker_stop(self.worker)
            self.backend.worker = NULL
            if not self.backend.detach():
                # Plans have host memory, too, into which the device writes.
                abandoned.append((self.backend, self.plans, self.meetings))
                logger.warning("the device still works after its lanes have ended; what it may use is kept")
                return
            with nogil:
                atomr_worker_delete(self.worker)
            for base, nbytes, pool in self.segments.values():
                try:
                    self.backend.unmap(<void *><uint64_t>base, nbytes, pool)
                except LibraryError as error:
                    logger.debug("at the end: %s", error)
            for kind, base, nbytes in self.foreign.values():
                try:
                    self.let_go(kind, <void *><uint64_t>base, nbytes)
                except LibraryError as error:
                    logger.debug("at the end: %s", error)

    @property
    def w_fd(self):
        """Descriptor of the worker's memory; stays this object's."""
        return atomr_worker_w_fd(self.worker)

    @property
    def w_bytes(self):
        return atomr_w_bytes()

    def create_segment(self, uint32_t segment, uint64_t nbytes, int pool):
        """Make `nbytes` of memory, zeroed, and map it for the lanes; a descriptor, the caller's to close."""
        cdef int fd = self.backend.create(nbytes, pool)
        try:
            self.map_segment(segment, fd, nbytes, pool)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def map_segment(self, uint32_t segment, int fd, uint64_t nbytes, int pool):
        """Map memory that exists; the descriptor stays the caller's."""
        cdef void *base
        if not 0 < segment < ATOMR_MAX_SEGMENTS or segment in self.segments:
            raise InvalidRequest(f"segment {segment} is out of range or mapped already")
        base = self.backend.map(fd, nbytes, pool)
        self.segments[segment] = (<uint64_t>base, nbytes, pool)
        atomr_worker_set_segment(self.worker, segment, base, nbytes)

    def unmap_segment(self, uint32_t segment):
        """Forget a segment that no queued message names."""
        found = self.segments.pop(segment, None)
        if found is None:
            raise InvalidRequest(f"segment {segment} is not mapped")
        atomr_worker_set_segment(self.worker, segment, NULL, 0)
        self.backend.unmap(<void *><uint64_t>found[0], found[1], found[2])

    def open_window(self, uint32_t segment):
        """Let a segment stand for the memory of this process, from address `WINDOW` on."""
        self.know_foreign(segment, "window", <void *><uint64_t>WINDOW, <uint64_t>1 << 63)

    def open_shared(self, uint32_t segment, uint64_t nbytes, bytes handle not None):
        """Map an allocation of another process, which the driver of the device has exported by `handle`."""
        self.know_foreign(segment, "shared", self.backend.open_shared(handle), nbytes)

    def open_peer(self, uint32_t segment, uint64_t nbytes, int fd, bytes uuid not None):
        """Map a segment of another device, which is named by its UUID; the descriptor stays the caller's."""
        self.know_foreign(segment, "peer", self.backend.open_peer(fd, nbytes, uuid), nbytes)

    def open_own(self, uint32_t segment, uint64_t nbytes):
        """Make memory of this process's own, which a library exports to those of other devices."""
        self.know_foreign(segment, "own", self.backend.open_own(nbytes), nbytes)

    def close_foreign(self, uint32_t segment):
        """Forget such a segment, which no message names any more."""
        with self.lock:
            found = self.foreign.pop(segment, None)
        if found is None:
            raise InvalidRequest(f"segment {segment} is no open foreign one")
        atomr_worker_set_segment(self.worker, segment, NULL, 0)
        self.let_go(found[0], <void *><uint64_t>found[1], found[2])

    cdef int know_foreign(self, uint32_t segment, str kind, void *base, uint64_t nbytes) except -1:
        with self.lock:
            known = not 0 < segment < ATOMR_MAX_SEGMENTS or segment in self.segments or segment in self.foreign
            if not known:
                self.foreign[segment] = (kind, <uint64_t>base, nbytes)
        if known:
            self.let_go(kind, base, nbytes)
            raise InvalidRequest(f"segment {segment} is out of range or mapped already")
        atomr_worker_set_segment(self.worker, segment, base, nbytes)
        return 0

    cdef int let_go(self, str kind, void *base, uint64_t nbytes) except -1:
        if kind == "shared":
            self.backend.close_shared(base)
        elif kind == "peer":
            self.backend.unmap(base, nbytes, 0)
        elif kind == "own":
            self.backend.close_own(base, nbytes)
        return 0

    def open_meeting(self, uint32_t number, int fd, uint64_t nbytes, unsigned rank, tuple uuids=()):
        """Take part in a communicator's messages as a rank; the descriptor of its page stays the caller's."""
        cdef Seat seat = Seat(fd, nbytes, rank)
        seat.uuids = uuids
        with self.lock:
            if number in self.meetings:
                raise InvalidRequest(f"communicator {number} is open already")
            seat.join(self.worker, number)
            self.meetings[number] = seat
        return seat

    def close_meeting(self, uint32_t number):
        """Forget a communicator that no message names any more."""
        with self.lock:
            seat = self.meetings.pop(number, None)
            if seat is None:
                raise InvalidRequest(f"communicator {number} is not open")
            atomr_worker_set_meeting(self.worker, number, NULL, 0)
        seat.end()

    def leave_meetings(self):
        """End the connections of all communicators, once the lanes have stopped."""
        for seat in list(self.meetings.values()):
            seat.end()

    def open_lane(self, unsigned lane):
        """Start the thread of a lane; it takes messages after `go`."""
        self.backend.open_lane(lane)
        if atomr_worker_open_lane(self.worker, lane) != 0:
            raise AtomrError(f"cannot open lane {lane}: {strerror(errno).decode()}")

    def set_workspace(self, unsigned lane, uint32_t segment, uint64_t offset, uint64_t nbytes):
        """Set the workspace with which a lane begins; before `go`."""
        cdef void *base = atomr_worker_address(self.worker, segment, offset, nbytes)
        if base == NULL:
            raise InvalidRequest(f"bytes {offset} to {offset + nbytes} are not inside segment {segment}")
        if atomr_worker_set_workspace(self.worker, lane, base, nbytes) != 0:
            raise InvalidRequest(f"lane {lane} is not open, or runs already")

    def go(self):
        """Let the lanes take messages."""
        atomr_worker_go(self.worker)

    def add_plan(self, uint32_t plan, object run, object operands, object scalars, str operation=""):
        """Make a plan known to the lanes.

        Parameters
        ----------
        plan : int
            Its number in messages.
        run : callable or object
            ``run(arrays, scalars)``, or what the backend takes: the name of a native routine (`NATIVE_RUNS`).
        operands : list of (dtype, shape, strides)
            Strides in bytes.
        scalars : list of str
            ``"float64"`` or ``"int64"`` each.
        """
        cdef atomr_run function
        cdef void *context
        n_operands, n_scalars = len(operands), len(scalars)
        if callable(run):
            holder = PythonRun(run, operation, operands, scalars)
            function, context = run_python, <void *>holder
        elif isinstance(run, str) and run == "workspace":
            holder = None
            function, context = <atomr_run>atomr_run_workspace, self.worker
        else:
            holder = self.backend.native(run, &function, &context)
            holder = self.backend.recorded(holder, n_operands, n_scalars, &function, &context)
        with self.lock:
            if plan in self.plans:
                raise InvalidRequest(f"plan {plan} is loaded already")
            if atomr_worker_add_plan(self.worker, plan, function, context, n_operands, n_scalars) != 0:
                raise AtomrError(f"plan number {plan} cannot be used")
            self.plans[plan] = holder

    def remove_plan(self, uint32_t plan):
        """Forget a plan that no queued message names."""
        with self.lock:
            if plan not in self.plans:
                raise InvalidRequest(f"plan {plan} is not loaded")
            atomr_worker_remove_plan(self.worker, plan)
            del self.plans[plan]

    def replays(self, uint32_t plan):
        """How the messages of a program were run here, by counts; empty for any other plan."""
        with self.lock:
            holder = self.plans.get(plan)
        return holder.replays() if hasattr(holder, "replays") else {}

    def be_cautious(self, bint cautious):
        """Have runs and builds take turns, so that a suspect's is alone; before `go`, and later to end that."""
        atomr_worker_be_cautious(self.worker, cautious)

    def suspect(self, uint32_t plan):
        """Put a plan on probation, before it is added: its first message runs while nothing else does."""
        if atomr_worker_suspect(self.worker, plan) != 0:
            raise MemoryError()

    def begin_build(self, bint suspect):
        """Wait for the turn of a build in a cautious worker; it is alone if its plan is a suspect."""
        cdef atomr_turn turn
        with nogil:
            turn = atomr_worker_begin_build(self.worker, suspect)
        return <int>turn

    def end_build(self, int turn):
        """End the turn that `begin_build` returned."""
        atomr_worker_end_build(self.worker, <atomr_turn>turn)

    def subscribe(self, unsigned index, int eventfd):
        """Signal this eventfd when a ticket that subscriber `index` wants resolves; it becomes the lanes'."""
        if atomr_worker_subscribe(self.worker, index, eventfd) != 0:
            raise InvalidRequest(f"subscriber {index} is out of range")

    def array(self, uint32_t segment, uint64_t offset, object dtype, tuple shape, tuple strides):
        """A writable view of device memory.  Valid until the segment is unmapped or `stop`."""
        layout = PythonRun(None, "", [(dtype, shape, strides)], ())
        dtype, shape, strides, low, high = layout.operands[0]
        cdef void *first = atomr_worker_address(self.worker, segment, offset + low, high - low)
        if first == NULL:
            raise InvalidRequest(f"bytes {offset + low} to {offset + high} are not inside segment {segment}")
        return np.ndarray(shape, dtype, PyMemoryView_FromMemory(<char *>first, high - low, PyBUF_WRITE), -low, strides)

    def address(self, uint32_t segment, uint64_t offset, uint64_t nbytes):
        """Where bytes of a segment lie for the device.  Valid until the segment is unmapped or `stop`."""
        cdef void *first = atomr_worker_address(self.worker, segment, offset, nbytes)
        if first == NULL:
            raise InvalidRequest(f"bytes {offset} to {offset + nbytes} are not inside segment {segment}")
        return <uint64_t>first

    @property
    def faulted(self):
        """Whether the device has faulted: the lanes have ended, or are ending, without completing their messages."""
        return atomr_worker_has_faulted(self.worker) != 0

    def set_busy(self, bint busy):
        """Tell the parent's watchdog that the control thread works, so that deadlines pause."""
        cdef atomr_wheader *w = <atomr_wheader *>atomr_worker_w(self.worker)
        w.control_busy = atomr_now_ns() if busy else 0

    def stats(self):
        """Counts of what is loaded here."""
        return {"plans": len(self.plans), "segments": len(self.segments), "foreign": len(self.foreign),
                "native_handles": self.backend.native_handles(), "records": self.backend.record_counts(),
                "segment_bytes": sum([nbytes for _, nbytes, _ in self.segments.values()]),
                "workspaces": [atomr_worker_workspace(self.worker, lane) for lane in range(ATOMR_LANES)]}

    def abandon(self):
        """In a forked child, where no lane exists: close and unmap what is this object's.  It is never freed then.

        What a driver knows of (its memory, and what it has pinned) stays: a child must not call it.
        """
        own = self.backend.table() == NULL
        atomr_worker_abandon(self.worker, own)
        if own:
            for base, nbytes, pool in self.segments.values():
                self.backend.unmap(<void *><uint64_t>base, nbytes, pool)
            self.segments = {}
        abandoned.append(self)

    def stop(self):
        """Stop and join the lanes, after the message that each is running.  Idempotent."""
        with nogil:
            atomr_worker_stop(self.worker)
