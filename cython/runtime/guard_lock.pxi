# Locks, a part of guard.pyx: they refuse their holder, and know forks.

cdef int forks = 0              # between the first process and this one
cdef unsigned long forker = 0   # the thread of this process that is left of its parent


def _forked():
    """In a forked child: the threads of the parent do not exist, but for the one that forked."""
    global forks, forker
    forks += 1
    forker = PyThread_get_thread_ident()


os.register_at_fork(after_in_child=_forked)


@cython.final
cdef class Lock:
    """A lock that refuses, instead of blocking for ever, a thread that holds it already.

    Such a thread is inside a destructor, or a callback of the garbage collector, that runs in the middle of a call.
    In a forked child the lock is free, unless the thread that forked holds it: other holders do not exist there.

    Parameters
    ----------
    reentrant : bool
        Let such a thread in, since every step of the guarded code leaves its data whole.
    leaf : bool
        Nothing waits under it, so a shielded function is refused under it, too.

    Raises
    ------
    NestedCall
        At once, when the calling thread holds it.
    """

    cdef PyThread_type_lock lock
    cdef unsigned long owner
    cdef bint reentrant, leaf
    cdef int depth
    cdef int forks  # as the module's, when it was last asked for
    cdef object __weakref__

    def __cinit__(self, *, bint reentrant=False, bint leaf=False):
        self.reentrant, self.leaf = reentrant, leaf
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free_lock(self.lock)

    def acquire(self, bint blocking=True, double timeout=-1.0):
        """Take it; return False if it is not free in time (seconds; negative: no limit)."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if PyThread_acquire_lock(self.lock, NOWAIT_LOCK) == 0 and not self.inherit():
            if self.owner == me and self.reentrant:
                self.depth += 1
                return True
            if self.owner == me:
                if not blocking or timeout >= 0.0:
                    return False  # it will not be free in time
                refuse()
            if not blocking or timeout == 0.0:
                return False
            if not wait_for(self.lock, timeout):
                return False
        self.owner, self.forks = me, forks
        global atomr_held, atomr_leaves
        atomr_held += 1
        atomr_leaves += self.leaf
        return True

    cdef bint inherit(self) except -1:
        """Take it from a thread that did not survive a fork; return whether there is one."""
        cdef PyThread_type_lock fresh
        if self.forks == forks:
            return False
        if self.owner == forker:
            self.forks = forks
            return False
        fresh = PyThread_allocate_lock()
        if fresh == NULL:
            raise MemoryError()
        PyThread_acquire_lock(fresh, NOWAIT_LOCK)
        self.lock, self.depth = fresh, 0  # the old one, which the fork may have caught half taken, is never freed
        return True

    def release(self):
        """Give it back; only its holder may."""
        global atomr_held, atomr_leaves
        if self.owner != PyThread_get_thread_ident():
            raise RuntimeError("released by a thread that does not hold it")
        if self.depth:
            self.depth -= 1
            return
        atomr_held -= 1
        atomr_leaves -= self.leaf
        self.owner = 0
        PyThread_release_lock(self.lock)

    def locked(self):
        """Whether a thread holds it."""
        return self.owner != 0 and (self.forks == forks or self.owner == forker)

    def _is_owned(self):
        """Whether the calling thread holds it; for `threading.Condition`."""
        return self.owner == PyThread_get_thread_ident()

    def __enter__(self):
        self.acquire()
        return True

    def __exit__(self, *_):
        self.release()
