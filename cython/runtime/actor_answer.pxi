# Answers: a part of actor_cell.pyx, so that resolving one costs the loop no call through a module.

@cython.freelist(64)
cdef class Waiter:
    """A callback of an answer, in its native stack."""
    cdef object callback
    cdef void *next

    def __cinit__(self, callback):
        self.callback = callback


cdef class AnswerBase:
    """What becomes of one message that was asked: a value or an error, once.

    Attributes
    ----------
    cell
        Whose thread resolves it, as far as is known.
    deadline
        When waiting for it ends, on the monotonic clock (seconds); infinite where there is none.
    what
        Of what it is the answer, for error messages.
    """

    def __cinit__(self, *args, **kwargs):
        self.deadline = INFINITE

    def __dealloc__(self):
        cdef void *entry = atomr_outcome_close(&self.outcome)
        cdef Waiter waiter
        while entry != NULL:  # never resolved: nobody will call them
            waiter = <Waiter>entry
            entry = waiter.next
            Py_DECREF(waiter)

    def done(self):
        """Whether it is resolved.  Does not wait."""
        return atomr_outcome_done(&self.outcome) == 1

    cpdef bint resolve(self, object value):
        """Give the value; False if it was resolved before."""
        return self.give(value, None, False)

    cpdef bint fail(self, object error):
        """Give the error; False if it was resolved before."""
        return self.give(None, error, False)

    cdef bint give(self, object value, object error, bint defer):
        """Give either; `defer` leaves waking who waits to this actor's loop, which is next."""
        if not atomr_outcome_claim(&self.outcome):
            return False
        self.value_ = value
        self.error_ = error
        self.settle(defer)
        return True

    cdef void settle(self, bint defer):
        cdef void *entry
        cdef void *after
        cdef void *ordered = NULL
        cdef Waiter waiter
        cdef CellBase cell
        if atomr_outcome_publish(&self.outcome):
            cell = <CellBase>atomr_current_cell if defer and atomr_current_cell != NULL else None
            if cell is None or cell.owed is not None:
                atomr_outcome_wake(&self.outcome)
            else:
                cell.owed = self  # woken when this thread lets go of the GIL, which the other needs
        entry = atomr_outcome_close(&self.outcome)
        while entry != NULL:  # a stack: turn it round
            waiter = <Waiter>entry
            after = waiter.next
            waiter.next = ordered
            ordered = entry
            entry = after
        while ordered != NULL:
            waiter = <Waiter>ordered
            ordered = waiter.next
            Py_DECREF(waiter)
            try:
                waiter.callback(self)
            except BaseException as error:
                self._callback_failed(error)

    def _callback_failed(self, error):
        """Report what a callback raised (overridden)."""

    def _when_done(self, callback):
        """Have the callback called when this is resolved; False if it is already."""
        cdef Waiter waiter = Waiter(callback)
        Py_INCREF(waiter)
        if atomr_outcome_add(&self.outcome, <void *>waiter, &waiter.next):
            return True
        Py_DECREF(waiter)
        return False

    def wait(self, timeout=None):
        """Wait until it is resolved, with the GIL released and signals checked.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default until the deadline that the ask was given, if any.

        Returns
        -------
        bool
            False when the time is over.

        Raises
        ------
        InvalidRequest
            When the actor that has to answer is the one that waits.
        NestedCall
            In the middle of another call that has no time to wait, as a callback of the garbage collector may be.
        ActorStopped
            In a child process that was forked after the ask.
        """
        cdef int64_t left = -1
        cdef double end = self.deadline, now = 0, limit = 0
        cdef atomr_mailbox *box = NULL
        cdef uint64_t spin = 0
        cdef int result
        if timeout is not None:
            limit = limit_of(timeout)
        if atomr_outcome_done(&self.outcome):
            return True
        refuse_in_service()
        if self.cell is not None:
            self.cell.alive()
            if <PyObject *>self.cell == atomr_current_cell and not self.cell.reentrant_wait(self):
                raise InvalidRequest(f"{self.what} is to be answered by the very actor that waits for it; "
                                     f"use a callback, or pipe_to_self")
            box = &self.cell.box
            spin = self.cell.spin_ns
            if self.cell.stepper is not None:
                return self.cell.stepper.run_until(self.done, timeout)
        if timeout is not None or end != INFINITE:
            now = time.monotonic()
            if timeout is not None:
                end = min(end, now + limit)
        while True:
            if end != INFINITE:
                left = nanoseconds(end - now)
            if left < 0 or left > 500_000_000:
                left = 500_000_000  # some other thread may get the signal
            with nogil:
                result = atomr_outcome_wait(&self.outcome, box, left, spin)
            if result == ATOMR_READY and atomr_outcome_done(&self.outcome):
                return True
            PyErr_CheckSignals()
            if end != INFINITE:
                now = time.monotonic()
                if now >= end:
                    return atomr_outcome_done(&self.outcome) == 1
            if self.cell is not None:
                self.cell.alive()
            spin = 0

    def result(self, timeout=None):
        """Wait, and return the value or raise the error.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default until the deadline that the ask was given, if any.

        Raises
        ------
        AskTimeout
            When the time is over; the message is not cancelled.
        Exception
            What the actor raised, or an `AtomrError` such as `ActorStopped`.
        """
        if timeout is not None:
            limit_of(timeout)
        if not atomr_outcome_done(&self.outcome) and not self.wait(timeout):
            raise self._late(timeout)
        if self.error_ is not None:
            raise self._fresh_error()
        return self.value_

    def _late(self, timeout):
        return AskTimeout(f"{self.what} was not answered in time; the message is not cancelled")

    def exception(self):
        """Return the error, or None after success.

        Raises
        ------
        InvalidRequest
            If it is not resolved yet.
        """
        if not atomr_outcome_done(&self.outcome):
            raise InvalidRequest("this answer is not resolved yet; wait for it first")
        return None if self.error_ is None else self._fresh_error()

    def _fresh_error(self):
        """Return the error for one who asks (overridden)."""
        return self.error_

    @property
    def _error(self):
        return self.error_
