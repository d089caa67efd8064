# cython: language_level=3, boundscheck=False, wraparound=False
"""The hot path of actors written in Python: mailboxes, the loop of an actor's thread, answers.

Contract.  Objects are put into the queues of actor_mailbox.h with a reference each, which whoever takes them
gets.  The GIL is held while sending and released while waiting; no lock is held while Python runs.  Everything
slow, from supervision to dead letters, is in atomr_native.actors, whose Cell and ActorRef derive from these.
"""

import time

cimport cython

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.string cimport strerror

from .._support.timeouts import seconds_of
from ..errors import ActorStopped, AskTimeout, InvalidRequest
from .guard import refuse_in_service

cdef extern from *:
    """
    static __thread PyObject *atomr_current_cell; /* whose thread this is; borrowed */
    """
    PyObject *atomr_current_cell

PUT, NO_ROOM, SHUT, EVICTED, NO_MEMORY = ATOMR_PUT, ATOMR_NO_ROOM, ATOMR_SHUT, ATOMR_EVICTED, ATOMR_NO_MEMORY
BOUNDED, BEYOND, LATE = ATOMR_BOUNDED, ATOMR_BEYOND, ATOMR_LATE
NOTHING, USER, SYSTEM = ATOMR_NOTHING, ATOMR_USER, ATOMR_SYSTEM

cdef int fork_epoch = 0
cdef double INFINITE = float("inf")
cdef object observer = None


def forked():
    """In a forked child: every cell of before is unusable from here on."""
    global fork_epoch
    fork_epoch += 1


def observe(callback):
    """Have ``callback(cell, envelope)`` called before each message is put; None for nobody.

    What it returns becomes the envelope's ``mark``, which is told when the message is at work: ``begin(cell)``,
    ``leave()`` when the handler returns or suspends, ``end(failed)``.  None of these may raise.
    """
    global observer
    observer = callback


def current_cell():
    """Return the cell whose thread this is, or None."""
    return None if atomr_current_cell == NULL else <object>atomr_current_cell


cdef double limit_of(object timeout) except -1:
    """A user's timeout in seconds; InvalidRequest for a value that is none."""
    if type(timeout) is float and <double>timeout >= 0:
        return timeout
    return seconds_of(timeout)


cdef int64_t nanoseconds(double seconds) noexcept:
    """A timeout; what is not above zero, or no number, is none at all."""
    if not seconds > 0:
        return 0
    return -1 if seconds > 9e9 else <int64_t>(seconds * 1e9)


@cython.freelist(64)
cdef class Envelope:
    """A message with who sent it and who waits for its answer."""

    def __init__(self, message, sender=None, AnswerBase answer=None, int kind=0, extra=None):
        self.message = message
        self.sender = sender
        self.answer = answer
        self.kind = kind
        self.extra = extra


cdef class CellBase:
    """The native part of an actor: its mailbox, and the loop of its thread.

    Parameters
    ----------
    capacity : int
        Messages that the mailbox holds; 0 for any number.
    spin_us : int
        Microseconds to spin before parking.
    evicts : bool
        Whether a full mailbox gives up its oldest message for a new one.
    """

    def __cinit__(self, uint32_t capacity, unsigned spin_us, bint evicts, *args, **kwargs):
        cdef int error = atomr_mailbox_init(&self.box, capacity)
        if error:
            raise OSError(error, f"cannot make a mailbox: {strerror(error).decode()}")
        self.spin_ns = spin_us * 1000
        self.evicts = evicts
        self.epoch = fork_epoch

    def __dealloc__(self):
        cdef void *item = NULL
        cdef int room
        if self.epoch != fork_epoch:
            return  # its lock may be held by a thread that does not exist here
        atomr_mailbox_suspend(&self.box, 0)
        while atomr_mailbox_take(&self.box, &item, &room) != ATOMR_NOTHING:
            Py_XDECREF(<PyObject *>item)
        atomr_mailbox_destroy(&self.box)

    cdef int alive(self) except -1:
        if self.epoch != fork_epoch:
            raise ActorStopped("this actor's System was made before a fork; make a new one in the child process")
        return 0

    @property
    def abandoned(self):
        """Whether this is a forked child, in which the actor does not exist."""
        return self.epoch != fork_epoch

    @property
    def depth(self):
        """Messages in the mailbox."""
        return atomr_mailbox_depth(&self.box)

    @property
    def capacity(self):
        return self.box.capacity

    # ---- putting

    cdef int note(self, Envelope envelope) except -1:
        hook = observer  # which another thread may take away
        if hook is not None:
            envelope.mark = hook(self, envelope)
        return 0

    cdef int put(self, Envelope envelope, int bound) except -1:
        cdef void *evicted = NULL
        cdef int result
        cdef Envelope old
        if self.epoch != fork_epoch:
            self.alive()
        if observer is not None and envelope.mark is None:
            self.note(envelope)
        Py_INCREF(envelope)
        result = atomr_mailbox_put(&self.box, <void *>envelope, bound, self.evicts, &evicted)
        if result == ATOMR_PUT:
            if self.stepper is not None:
                self.stepper.ready(self)
            return result
        if result == ATOMR_EVICTED:
            old = <Envelope>evicted
            Py_DECREF(old)
            self._evicted(old)
            return ATOMR_PUT
        Py_DECREF(envelope)
        if result == ATOMR_NO_MEMORY:
            raise MemoryError
        return result

    def enqueue(self, Envelope envelope not None, int bound=ATOMR_BOUNDED):
        """Put; returns PUT, NO_ROOM or SHUT.  BEYOND ignores the bound, LATE also that the actor is about to stop."""
        return self.put(envelope, bound)

    def _put_back(self, Envelope envelope not None):
        """Put before all others, whatever the bound."""
        self.alive()
        if observer is not None and envelope.mark is None:
            self.note(envelope)
        Py_INCREF(envelope)
        if atomr_mailbox_put_back(&self.box, <void *>envelope) != ATOMR_PUT:
            Py_DECREF(envelope)
            raise MemoryError
        if self.stepper is not None:
            self.stepper.ready(self)

    def enqueue_system(self, tuple message not None):
        """Put a system message; False when the actor has stopped."""
        self.alive()
        Py_INCREF(message)
        cdef int result = atomr_mailbox_put_system(&self.box, <void *>message)
        if result == ATOMR_PUT:
            if self.stepper is not None:
                self.stepper.ready(self)
            return True
        Py_DECREF(message)
        if result == ATOMR_NO_MEMORY:
            raise MemoryError
        return False

    def _await_room(self, double seconds):
        """Wait for room; returns when it is worth trying again, or the time is over."""
        cdef int64_t left = nanoseconds(seconds)
        if left < 0 or left > 500_000_000:
            left = 500_000_000
        with nogil:
            atomr_mailbox_await_room(&self.box, left)
        PyErr_CheckSignals()
        self.alive()

    def want_room(self):
        """Have `_room` called, once, when the mailbox is half empty."""
        atomr_mailbox_want_room(&self.box)

    # ---- taking

    def _take(self):
        """Take a message: an Envelope, a tuple (a system message), or None."""
        cdef void *item = NULL
        cdef int room = 0
        if atomr_mailbox_take(&self.box, &item, &room) == ATOMR_NOTHING:
            return None
        found = <object>item
        Py_DECREF(found)
        if room:
            self._room()
        return found

    def _take_user(self):
        """Take a user's message whether or not the actor is suspended; may be called by any thread."""
        cdef void *item = atomr_mailbox_take_user(&self.box)
        if item == NULL:
            return None
        found = <Envelope>item
        Py_DECREF(found)
        return found

    def _suspend(self, bint yes):
        """Leave users' messages in the mailbox, or take them again."""
        atomr_mailbox_suspend(&self.box, yes)
        if not yes and self.stepper is not None:
            self.stepper.ready(self)

    def shut(self, bint system):
        """Take no users' messages in any more; no system messages either."""
        atomr_mailbox_shut(&self.box, system)

    def _watch(self, int event_fd):
        """Signal this eventfd when there is something to take after `_arm`; -1 for none."""
        atomr_mailbox_watch(&self.box, event_fd)

    def _arm(self):
        """Whether there is something to take; if not, the eventfd is signalled once there is."""
        return atomr_mailbox_arm(&self.box) == 1

    def _bind(self, bint yes):
        """Make this thread the actor's, or no actor's; returns whose it was."""
        global atomr_current_cell
        before = current_cell()
        atomr_current_cell = <PyObject *>self if yes else NULL
        return before

    def _pay(self):
        """Wake who waits for an answer that was given here."""
        cdef AnswerBase owed = self.owed
        if owed is not None:
            self.owed = None
            with nogil:
                atomr_outcome_wake(&owed.outcome)

    cdef int handle(self, Envelope envelope) except -1:
        cdef AnswerBase answer
        self.current = envelope
        self.busy = True
        self.processed += 1
        try:
            if envelope.kind and not self._admit(envelope):
                return 0
            result = self.behavior(envelope.message)
        except BaseException as error:
            self._failed(envelope, error)
        else:
            answer = envelope.answer
            if answer is not None and not envelope.deferred:
                answer.give(result, None, True)
        finally:
            self.current = None
            self.busy = False
        return 0

    cdef int handle_marked(self, Envelope envelope) except -1:
        cdef uint64_t failed = self.failed
        mark = envelope.mark
        self.current = envelope
        mark.begin(self)
        try:
            self.handle(envelope)
        finally:
            mark.leave()
            mark.end(self.failed != failed)
        return 0

    cdef int once(self) except -1:
        """Take and handle one message; 0 when there is none."""
        cdef void *item = NULL
        cdef int room = 0
        cdef int kind = atomr_mailbox_take(&self.box, &item, &room)
        if kind == ATOMR_NOTHING:
            return 0
        found = <object>item
        Py_DECREF(found)
        if room:
            self._room()
        if kind == ATOMR_USER:
            if (<Envelope>found).mark is None:
                self.handle(<Envelope>found)
            else:
                self.handle_marked(<Envelope>found)
        else:
            if self.owed is not None:
                self._pay()  # hooks may take their time
            self._system(<tuple>found)
        if self.draining and atomr_mailbox_depth(&self.box) == 0:
            self._drained()
        return 1

    def step(self):
        """Handle one message in the calling thread; False when there is none."""
        global atomr_current_cell
        cdef PyObject *before = atomr_current_cell
        atomr_current_cell = <PyObject *>self
        try:
            return self.once() == 1
        finally:
            atomr_current_cell = before
            self._pay()

    def run(self):
        """Handle messages until the actor has stopped: the body of its thread."""
        global atomr_current_cell
        cdef AnswerBase owed
        cdef uint64_t spin = self.spin_ns
        atomr_current_cell = <PyObject *>self
        try:
            while not self.finished:
                if self.once():
                    if self.epoch != fork_epoch:
                        return
                    if self.owed is not None and atomr_mailbox_depth(&self.box):
                        self._pay()  # this thread will keep the GIL for long
                    continue
                owed = self.owed
                self.owed = None
                with nogil:
                    if owed is not None:
                        atomr_outcome_wake(&owed.outcome)
                    atomr_mailbox_wait(&self.box, -1, spin)
                owed = None
        finally:
            atomr_current_cell = NULL
            if self.epoch == fork_epoch:
                self._pay()

    # ---- the rest is in Python

    def reentrant_wait(self, answer):
        """Whether the actor may wait for an answer of its own."""
        return answer.done()

    def _admit(self, envelope):
        """Look at a message that is no plain one; False if it is not for the behavior."""
        return True

    def _evicted(self, envelope):
        """A message had to give way."""

    def _room(self):
        """There is room again."""

    def _failed(self, envelope, error):
        """The behavior raised."""

    def _drained(self):
        """The mailbox is empty, and nothing more will come."""

    def _system(self, message):
        """Act on a system message."""


cdef class RefBase:
    """The native part of the address of an actor."""

    def tell(self, message, *, sender=None):
        """Send a message.  Enqueues; may wait for room, see below.

        Parameters
        ----------
        message : object
            Anything; it should not be changed afterwards.
        sender : ActorRef, optional
            Who is said to have sent it; by default the actor in whose thread this is called.

        Returns
        -------
        bool
            True when it is in the mailbox; False when it has become a dead letter instead: the actor has stopped, or the
            mailbox is full and this was called by an actor, which never waits and never fails for that.

        Raises
        ------
        MailboxFull
            Outside of actors, when a full mailbox rejects, or has had no room within the System's timeout.
        """
        cdef Envelope envelope = Envelope.__new__(Envelope)
        cdef int result
        envelope.message = message
        if sender is not None:
            envelope.sender = sender
        elif atomr_current_cell != NULL:
            envelope.sender = (<CellBase>atomr_current_cell).ref
        result = self.cell.put(envelope, ATOMR_BOUNDED)
        if result == ATOMR_PUT:
            return True
        return self.cell.refused(envelope, result)

    def _ask(self, type kind, message, timeout, sender):
        """Send a message that is to be answered; `kind` is the class of the answer."""
        cdef Envelope envelope = Envelope.__new__(Envelope)
        cdef AnswerBase answer = <AnswerBase>kind.__new__(kind)
        cdef int result
        if timeout is not None:
            answer.deadline = time.monotonic() + timeout
        answer.cell = self.cell
        envelope.message = message
        envelope.answer = answer
        if sender is not None:
            envelope.sender = sender
        elif atomr_current_cell != NULL:
            envelope.sender = (<CellBase>atomr_current_cell).ref
        result = self.cell.put(envelope, ATOMR_BOUNDED)
        if result != ATOMR_PUT:
            self.cell.refused(envelope, result)
        return answer


include "actor_answer.pxi"
