# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls that no asynchronous exception reaches, and locks that refuse their holder.

Python raises an asynchronous exception (Ctrl-C, any signal handler that raises, `PyThreadState_SetAsyncExc`) between
two instructions of Python code, in the main thread or in the thread that it is meant for, and runs signal handlers
there, too.  So code that holds a lock, a descriptor or half a frame runs where none arrives: `shielded` functions run
in threads of this module, which are known to nobody, while the calling thread waits in C and serves its signals.  See
"Interrupts" in atomr_native/runtime/DESIGN.md.

Contract.  A shielded function runs to its end even when its caller is interrupted; at its waits it calls `check`,
which then ends it.  It runs inline in a thread of this package, and in a thread that holds a `Lock`.  No function here
calls Python code while it holds a C lock.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_ACQUIRED, PyLockStatus, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock)

import contextvars
import functools
import logging
import os
from _thread import start_new_thread

from ..errors import NestedCall

cdef extern from "Python.h":
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define Py_IsFinalizing _Py_IsFinalizing
    #endif
    """
    bint Py_IsFinalizing() nogil

cdef extern from *:
    """
    static __thread int atomr_own;       /* this thread belongs to the package */
    static __thread int atomr_serving;   /* others wait for it, so it must not wait for them */
    static __thread int atomr_held;      /* locks of this module that it holds */
    static __thread int atomr_leaves;    /* those of them under which nothing waits */
    static __thread void *atomr_job;     /* the job that it runs, borrowed */
    """
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible) nogil
    int atomr_own, atomr_serving, atomr_held, atomr_leaves
    void *atomr_job

#: Seconds after which a wait in a shielded function calls `check` again.
TICK = 0.05

cdef enum:
    LOOK_US = 50000     # how often a waiting caller looks for signals that did not wake it
    IDLE_US = 1000000   # how long an idle thread stays
    IDLE = 4            # how many idle threads stay


class Abandoned(BaseException):
    """The caller of a shielded function was interrupted; raised by `check`, and seen by nobody else."""


cdef void free_lock(PyThread_type_lock lock) noexcept:
    if lock != NULL:
        PyThread_acquire_lock(lock, NOWAIT_LOCK)
        PyThread_release_lock(lock)  # only a free lock may be freed
        PyThread_free_lock(lock)


include "guard_lock.pxi"


@cython.final
cdef class Promise:
    """A result that another thread sets.  It has no lock that a thread could be interrupted under."""

    cdef PyThread_type_lock gate  # taken until there is a result
    cdef object value, error
    cdef bint ready
    cdef list callbacks

    def __cinit__(self):
        self.gate = PyThread_allocate_lock()
        if self.gate == NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.gate, NOWAIT_LOCK)
        self.callbacks = []

    def __dealloc__(self):
        free_lock(self.gate)

    def done(self):
        """Whether there is a result, or an error."""
        return self.ready

    def exception(self, timeout=None):
        """Wait for the result; return its error, or None.

        Raises
        ------
        TimeoutError
            When `timeout` (seconds) passes first.
        """
        if not self.ready:
            if not wait_for(self.gate, -1.0 if timeout is None else max(0.0, timeout)):
                raise TimeoutError()
            PyThread_release_lock(self.gate)  # for the next one who waits
        return self.error

    def result(self, timeout=None):
        """Wait for the result; return it, or raise its error."""
        error = self.exception(timeout)
        if error is None:
            return self.value
        try:
            raise error
        finally:
            error = None

    def set_result(self, value):
        """Set the result, once."""
        self.value = value
        self.settle()

    def set_exception(self, error):
        """Set the error, once."""
        self.error = error
        self.settle()

    cdef int settle(self) except -1:
        self.ready = True
        PyThread_release_lock(self.gate)
        while self.callbacks:
            try:
                self.callbacks.pop(0)(self)
            except Exception:
                logging.getLogger("atomr_native").exception("a callback failed")

    def add_done_callback(self, callback):
        """Call ``callback(self)`` in the thread that sets the result, or at once if there is one."""
        self.callbacks.append(callback)
        if self.ready:
            try:
                self.callbacks.remove(callback)
            except ValueError:  # it was called just now
                return
            callback(self)


cdef bint wait_for(PyThread_type_lock lock, double seconds) except -1:
    """Take a C lock without the GIL, and serve signals meanwhile; False when the time (negative: no limit) is up."""
    cdef long long left = -1 if seconds < 0 else <long long>(min(seconds, 1e9) * 1e6)
    cdef long long step
    cdef int got
    while True:
        step = LOOK_US if left < 0 or left > LOOK_US else left
        with nogil:
            got = PyThread_acquire_lock_timed(lock, step, 1)
        if got == PY_LOCK_ACQUIRED:
            return True
        PyErr_CheckSignals()
        if left >= 0:
            left -= step
            if left <= 0:
                return False


@cython.final
cdef class Job:
    """One call, from its caller to the thread that runs it."""

    cdef object context, work, value, error
    cdef tuple args
    cdef dict kwargs
    cdef bint abandoned
    cdef bint service  # it waits for nobody
    cdef int persists
    cdef PyThread_type_lock done

    def __cinit__(self):
        self.done = PyThread_allocate_lock()
        if self.done == NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.done, NOWAIT_LOCK)

    def __dealloc__(self):
        free_lock(self.done)


@cython.final
cdef class Helper:
    """A thread that runs jobs, until it has been idle for a while."""

    cdef Job job
    cdef PyThread_type_lock wake

    def __cinit__(self):
        self.wake = PyThread_allocate_lock()
        if self.wake == NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.wake, NOWAIT_LOCK)

    def __dealloc__(self):
        free_lock(self.wake)

    def main(self):
        """Serve jobs: the whole life of the thread."""
        global atomr_own
        atomr_own = 1
        while self.serve():
            while not self.woken():
                try:
                    idle.remove(self)
                    return
                except ValueError:  # it was given a job just now
                    pass

    cdef bint woken(self):
        """Wait a while for the next job; return whether there is one."""
        cdef int got
        with nogil:
            got = PyThread_acquire_lock_timed(self.wake, IDLE_US, 0)
        return got == PY_LOCK_ACQUIRED

    cdef bint serve(self) except -1:
        """Run the job; return whether this thread stays."""
        global atomr_job
        cdef Job job = self.job
        cdef bint stays
        self.job = None
        atomr_job = <void *>job
        try:
            job.value = job.context.run(job.work, *job.args, **job.kwargs)
        except BaseException as error:
            job.error = error
        atomr_job = NULL
        job.context = job.work = job.args = job.kwargs = None
        stays = len(idle) < IDLE
        if stays:
            idle.append(self)  # first, so that the caller's next call finds this thread
        PyThread_release_lock(job.done)
        return stays


cdef list idle = []


cdef object hop(object work, tuple args, dict kwargs, bint service):
    """Run a function in another thread, and wait for it."""
    cdef Job job
    cdef Helper helper
    if Py_IsFinalizing():  # no other thread runs any more
        return work(*args, **kwargs)
    job = Job()
    job.service = service
    job.context = contextvars.copy_context()
    job.work, job.args, job.kwargs = work, args, kwargs
    try:
        helper = idle.pop()
    except IndexError:
        helper = Helper()
        helper.job = job
        try:
            start_new_thread(helper.main, ())
        except RuntimeError:  # no more threads, or the interpreter is ending
            return work(*args, **kwargs)
    else:
        helper.job = job
        PyThread_release_lock(helper.wake)
    helper = None
    try:
        wait_for(job.done, -1.0)
    except BaseException:
        job.abandoned = True
        raise
    error, job.error = job.error, None
    if error is None:
        return job.value
    try:
        raise error
    finally:
        error = None  # its traceback has this frame


def shielded(work):
    """Make a function run to its end in a thread that no asynchronous exception and no signal handler reaches.

    It must not run users' code that depends on its thread.  Its waits call `check` at least each `TICK`, unless they
    end by themselves.  It may wait for others, so a serving thread gets `NestedCall` (see `own_thread`).
    """
    def call(*args, **kwargs):
        if atomr_own or atomr_held:
            if atomr_serving or atomr_leaves:
                refuse()
            return work(*args, **kwargs)
        return hop(work, args, kwargs, False)

    return functools.update_wrapper(call, work)


def shielded_service(work):
    """Like `shielded`, for a function that waits for nobody, so that serving threads may call it, too."""
    def call(*args, **kwargs):
        if atomr_own or atomr_held:
            return work(*args, **kwargs)
        return hop(work, args, kwargs, True)

    return functools.update_wrapper(call, work)


def refuse_in_service():
    """Raise `NestedCall` in the middle of a function that waits for nobody, whose caller waits: it may be waited for in turn."""
    if atomr_job != NULL and (<Job>atomr_job).service:
        refuse()


def finish(work):
    """Call a shielded function at the end of a finalizer: here, or in another thread if this thread must not wait.

    A thread that holds a lock may be asked for the same one, since a finalizer runs at any moment.
    """
    if not (atomr_held or (atomr_own and atomr_serving)):
        work()
        return
    try:
        start_new_thread(work, ())
    except RuntimeError:  # the interpreter is ending
        pass


def check():
    """Raise `Abandoned` if the caller of the shielded function that runs in this thread was interrupted."""
    if atomr_job != NULL and (<Job>atomr_job).abandoned and not (<Job>atomr_job).persists:
        raise Abandoned()


@cython.final
cdef class Persisting:
    """A context in which `check` does not raise: its steps belong together.  They end by themselves."""

    cdef Job job

    def __enter__(self):
        self.job = <Job>atomr_job if atomr_job != NULL else None
        if self.job is not None:
            self.job.persists += 1

    def __exit__(self, *_):
        if self.job is not None:
            self.job.persists -= 1


@cython.final
cdef class Breakable:
    """A context inside `Persisting` in which `check` does raise: a wait that the rest can do without."""

    cdef Job job
    cdef int before

    def __enter__(self):
        self.job = <Job>atomr_job if atomr_job != NULL else None
        if self.job is not None:
            self.before, self.job.persists = self.job.persists, 0

    def __exit__(self, *_):
        if self.job is not None:
            self.job.persists = self.before


@cython.final
cdef class Last:
    """A call that is made when the last reference to this object goes: a finalizer that no interrupt can lose.

    It is not made once the interpreter ends, whose threads do not run any more.

    Parameters
    ----------
    work : callable
        Compiled, and never raises.
    *args
        Its arguments.
    """

    cdef object work
    cdef tuple args

    def __init__(self, work, *args):
        self.work, self.args = work, args

    def __del__(self):
        if not Py_IsFinalizing():
            self.work(*self.args)


cdef class Block:
    """A context that is over at its end, and after a beginning that failed, whatever interrupts the code of either.

    Subclasses have `_begin()` and `_end(kind, error, traceback)`, which are Python.
    """

    cdef readonly bint is_open

    def __enter__(self):
        self.is_open = True
        try:
            self._begin()
        except BaseException:
            self.is_open = False
            raise
        return self

    def __exit__(self, kind, error, traceback):
        self.is_open = False  # first: no interrupt is looked for before
        self._end(kind, error, traceback)


def abandoned():
    """Whether the caller of the shielded function that runs in this thread was interrupted."""
    return atomr_job != NULL and (<Job>atomr_job).abandoned


def own_thread(*, bint serving=False):
    """Declare the calling thread one of the package's, in which shielded functions run inline.

    `serving`: other threads' calls wait for it, so it must not wait for them.
    """
    global atomr_own, atomr_serving
    atomr_own = 1
    atomr_serving = serving


cdef int refuse() except -1:
    raise NestedCall(
        "a call from inside another call of the same thread, or in a device's own thread: by a destructor, or a callback "
        "of the garbage collector or of a weak reference; let another thread make it, or make it later")


os.register_at_fork(after_in_child=idle.clear)
