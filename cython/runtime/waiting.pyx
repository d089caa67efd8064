# cython: language_level=3
"""Actions that wait for tickets, and pieces of staging memory: state that event loops and copies share.

Contract.  These run in users' threads, often in an event loop, where `guard.shielded` would cost too much.  They are
compiled, so no asynchronous exception and no signal handler comes in the middle of a method.  A destructor, or a
callback of the garbage collector, may: so an object is whole wherever a container is allocated.  Nothing here waits.
"""

cimport cython
from libc.stdint cimport uint64_t

import heapq
import itertools
import sys
from collections import deque
from threading import get_ident
from weakref import ref as weak

from .sender import NEVER

cdef object heappush = heapq.heappush
cdef object heappop = heapq.heappop
cdef object heapify = heapq.heapify
cdef object orders = itertools.count()
cdef object modules = sys.modules
cdef object get_running_loop = None  # asyncio's, once the program has loaded it


cdef object running_loop():
    """Return the event loop that runs in this thread, or None.  Does not load asyncio: without it there is none."""
    global get_running_loop
    if get_running_loop is None:
        get_running_loop = getattr(modules.get("asyncio"), "_get_running_loop", None)
        if get_running_loop is None:
            return None
    return get_running_loop()


@cython.final
cdef class Ticket:
    """A ticket to wait for without a reply: room in a mailbox.

    Parameters
    ----------
    core : Core
        The device's native part.
    lane, ticket : int
    """

    cdef readonly object core
    cdef readonly unsigned lane
    cdef readonly uint64_t ticket

    def __init__(self, core, unsigned lane, uint64_t ticket):
        self.core, self.lane, self.ticket = core, lane, ticket

    def done(self):
        """Whether it is resolved."""
        return self.core.resolved(self.lane, self.ticket)


@cython.final
cdef class Actions:
    """The actions of one subscriber for tickets that are not resolved yet, by lane.

    Parameters
    ----------
    core : Core
        The device's native part.
    index : int
        The subscriber's number for the worker.
    """

    cdef object core
    cdef int index
    cdef dict waiting

    def __init__(self, core, int index):
        self.core = core
        self.index = index
        self.waiting = {}

    @cython.critical_section
    def add(self, reply, action):
        """Keep an action for a reply; return whether it is kept, and whether the subscriber must be rung.

        It is not kept if the reply is resolved already.
        """
        cdef list heap
        cdef bint late
        cdef tuple item = (reply.ticket, next(orders), reply, action)
        heap = self.waiting.setdefault(reply.lane, [])
        heappush(heap, item)
        if not self.core.want(reply.lane, self.index, heap[0][0]):
            return True, False
        late = reply.done()
        if late:
            heap.remove(item)
            heapify(heap)
        # The worker will not signal for the others any more, resolved or not.
        return not late, bool(heap)

    @cython.critical_section
    def take(self):
        """Remove and return the actions of resolved tickets, each with its reply."""
        cdef list ready = [], heap
        for lane, heap in list(self.waiting.items()):
            while heap:
                while heap and heap[0][2].done():
                    ready.append(heappop(heap)[2:])
                if not self.core.want(lane, self.index, heap[0][0] if heap else NEVER) or not heap:
                    break
        return ready


@cython.final
cdef class Piece:
    """A piece of staging memory, until it is put back: at the latest with this object."""

    cdef Window window
    cdef object loop  # whose coroutine holds it, or None
    cdef object thread  # that holds it
    cdef tuple message
    cdef public object ref  # its memory, or None
    cdef object __weakref__

    def sent(self, unsigned lane, uint64_t ticket, reply=None):
        """Record its message.  `reply` is kept until it is resolved, so its failure is not a dead letter."""
        self.message = (lane, ticket, reply)

    def arrived(self):
        """Record that its message is resolved."""
        self.message = None

    @cython.critical_section
    def put_back(self):
        """Return it to the window, with the message that uses it, if there is one.  Idempotent."""
        cdef Window window = self.window
        cdef tuple message = self.message
        self.window = None
        self.message = None
        if window is not None:
            window.holders.remove(self.thread)
            if message is None:
                window.free += 1
            else:
                window.flying.append(message)
            self.ref = None
            self.loop = None

    def __del__(self):
        self.put_back()  # its copy was interrupted, or its event loop closed


@cython.final
cdef class Window:
    """The pieces of staging memory that a device's copies may use at once.

    A copy that holds a piece never waits for another one, so some copy always proceeds.  A copy returns its pieces when
    it ends, also by an error: a stored error keeps its frames, and would keep the pieces.  A thread that blocks while
    copies of its own hold pieces, as in a signal handler, gets one piece more, since they cannot proceed before it does.

    Parameters
    ----------
    core : Core
        The device's native part.
    pieces : int
        Number of pieces.
    """

    cdef object core, flying
    cdef list lent  # weak references to the pieces that coroutines hold
    cdef list holders  # the thread of each piece that is held
    cdef int pieces, waiting
    cdef readonly int free  # pieces that nobody holds

    def __init__(self, core, int pieces):
        self.core = core
        self.pieces = self.free = pieces
        self.lent = []
        self.holders = []
        self.flying = deque()

    @cython.critical_section
    def take(self, *, bint first, bint blocks=False):
        """Take a piece if there is one.  A copy that holds some already (not `first`) leaves it to waiting copies.

        `blocks`: without a piece this thread waits, and nothing else runs in it meanwhile.
        """
        cdef Piece piece = Piece.__new__(Piece)
        cdef object thread = get_ident()
        self.reap()
        if self.free <= 0:
            self.reclaim()
        if not (blocks and thread in self.holders) and (self.free <= 0 or (self.waiting and not first)):
            return None
        self.free -= 1
        self.holders.append(thread)
        piece.window, piece.thread = self, thread
        piece.loop = running_loop()
        if piece.loop is not None:
            if len(self.lent) >= 4 * self.pieces:
                self.lent = [known for known in self.lent if known() is not None]
            self.lent.append(weak(piece))
        return piece

    cdef int reclaim(self) except -1:
        """Take back the pieces of coroutines whose event loop is closed: they never run again, and may be kept."""
        cdef Piece piece
        for known in list(self.lent):
            piece = known()
            if piece is not None and piece.loop is not None and piece.loop.is_closed():
                piece.put_back()
        return 0

    cdef int reap(self) except -1:
        while self.flying:
            try:
                flown = self.flying.popleft()
            except IndexError:  # a destructor was first
                return 0
            if not self.core.resolved(flown[0], flown[1]):
                self.flying.appendleft(flown)
                return 0
            self.free += 1
            if flown[2] is not None:
                flown[2].done()  # reads its outcome
        return 0

    @cython.critical_section
    def oldest(self):
        """Return (lane, ticket) of the message whose piece comes back first; None if there is none."""
        return self.flying[0][:2] if self.flying else None

    def hold(self):
        """Return an object that counts as a waiting copy as long as it lives."""
        return Waiting(self)

    @cython.critical_section
    cdef void count(self, int step) noexcept:
        self.waiting += step


@cython.final
cdef class Waiting:
    """A copy that waits for a piece, until this object is gone."""

    cdef Window window

    def __init__(self, Window window not None):
        window.count(1)
        self.window = window

    def __del__(self):
        if self.window is not None:
            self.window.count(-1)
            self.window = None
