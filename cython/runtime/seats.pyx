# cython: language_level=3, boundscheck=False, wraparound=False
"""The memory in which the ranks of a communicator meet: the parent's `Page`, and each worker's `Seat`.

Contract.  Thin owners of meeting.h.  `Seat.meet` waits for the other ranks, without the GIL; it ends when a rank is
lost.  Nothing else waits.
"""

from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport errno
from libc.string cimport strerror, strncpy
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close

from ..errors import InvalidRequest, LibraryError, OutOfMemory

cdef extern from "<Python.h>":
    enum:
        PyBUF_WRITE

cdef int never = 0

MAX_RANKS = ATOMR_RANKS
MAX_MEETINGS = ATOMR_MEETINGS
PIECE = ATOMR_PIECE


class RankAbsent(LibraryError):
    """Another rank is lost or has failed: what the lane reports, in its own words, for the parent to understand."""

    def __init__(self, status, name, words):
        super().__init__("rank", status, name, "a collective", words)
        self.words = words


cdef class Page:
    """The page of a communicator, made by the parent.

    Parameters
    ----------
    devices : list of str
        The device of each rank.
    restarts : bool
        When a rank has died, workers that are connected to it end, instead of aborting.
    engines : bool
        Symmetric arrays are moved by copy engines, where the library can.
    """

    def __cinit__(self, *args, **kwargs):
        self.page = NULL
        self.fd = -1

    def __init__(self, list devices not None, bint restarts=False, bint engines=False):
        cdef unsigned n = len(devices)
        cdef uint64_t nbytes = atomr_page_bytes(n)
        cdef int fd = atomr_memfd(b"atomr-meeting", nbytes)
        if fd >= 0 and atomr_memfd_fix(fd) != 0:
            close(fd)
            fd = -1
        if fd < 0:
            raise OutOfMemory(f"the system has no {nbytes} bytes for a communicator: {strerror(errno).decode()}",
                              requested=nbytes)
        self.fd = fd
        self.map(fd, nbytes)
        atomr_page_init(self.page, n)
        self.page.restarts = restarts
        self.page.engines = engines
        for i, name in enumerate(devices):
            strncpy(self.page.seats[i].device, name.encode(), sizeof(self.page.seats[i].device) - 1)

    def __dealloc__(self):
        if self.page != NULL:
            munmap(self.page, self.nbytes)
        if self.fd >= 0:
            close(self.fd)  # of C: at the end of a program there may be no module os any more

    cdef int map(self, int fd, uint64_t nbytes) except -1:
        cdef void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise OutOfMemory(f"cannot map {nbytes} bytes of a communicator: {strerror(errno).decode()}",
                              requested=nbytes)
        self.page = <atomr_page *>base
        self.nbytes = nbytes
        return 0

    @property
    def connection(self):
        """The number of the message by which all ranks have come to the connection that they have; 0: they have none."""
        return atomr_page_connected(self.page)

    def lose(self, unsigned rank, uint64_t sequence, uint32_t code, uint32_t fault):
        """Note that a rank takes part in no message up to this one, and why; waits for it end."""
        atomr_page_lose(self.page, rank, sequence, code, fault)

    def bury(self, unsigned rank, uint32_t code, uint32_t fault):
        """Note that a rank's worker is gone, and why; connections to it are broken."""
        atomr_page_bury(self.page, rank, code, fault)


cdef class Seat(Page):
    """A rank's place, in its worker; made by `Lanes.open_meeting`.

    Parameters
    ----------
    fd, nbytes : int
        The page; the descriptor stays the caller's.
    rank : int

    Attributes
    ----------
    connection : object
        The connection of a device whose work is asynchronous, with a method ``end``; None: it has none yet.
    uuids : tuple of str
        Of the ranks' GPUs, in hexadecimal digits; those of other devices are empty.
    """

    def __init__(self, int fd, uint64_t nbytes, unsigned rank):
        if not atomr_memfd_is_fixed(fd, nbytes):
            raise InvalidRequest(f"the page of a communicator is smaller than {nbytes} bytes, or could become smaller")
        self.map(fd, nbytes)
        if not atomr_page_fits(self.page, nbytes) or rank >= self.page.n_ranks:
            raise InvalidRequest(f"the page of {nbytes} bytes is none of a communicator with a rank {rank}")
        self.stopping = &never
        self.connection = None
        self.uuids = ()
        self.rank = rank
        self.size = self.page.n_ranks

    cdef int join(self, atomr_worker *worker, uint32_t number) except -1:
        self.worker = worker
        self.stopping = atomr_worker_stopping(worker)
        atomr_page_begin(self.page, self.rank)
        if atomr_worker_set_meeting(worker, number, self.page, self.rank) != 0:
            raise InvalidRequest(f"communicator {number}; allowed: 0 to {ATOMR_MEETINGS - 1}")
        return 0

    def stage(self, unsigned rank, unsigned parity):
        """Return a rank's staging area of a parity, `PIECE` writable bytes; valid as long as the seat."""
        if rank >= self.size:
            raise InvalidRequest(f"rank {rank}; allowed: 0 to {self.size - 1}")
        return PyMemoryView_FromMemory(<char *>atomr_page_stage(self.page, rank, parity), ATOMR_PIECE, PyBUF_WRITE)

    def meet(self, uint64_t sequence, uint64_t step):
        """Note a step, and wait until every rank has noted it.

        Raises
        ------
        RankAbsent
            When a rank is lost or has failed, or the worker stops.
        """
        cdef atomr_error *why
        cdef bytearray room = bytearray(1024)  # of an atomr_error
        cdef char *raw = room
        cdef int met
        why = <atomr_error *>raw
        with nogil:
            met = atomr_page_meet(self.page, self.rank, sequence, step, self.stopping, why)
        if met == ATOMR_MET:
            return
        if met == ATOMR_LEFT:
            raise RankAbsent(0, "stopped", "the worker stops")
        raise RankAbsent(why.status, (<bytes>(<char *>why.name)).decode(errors="replace"),
                         (<bytes>(<char *>why.text)).decode(errors="replace"))

    def exchange(self, uint64_t sequence):
        """Note that this rank has filled its area, and wait for the areas of all.

        The rounds of a message are counted from the beginning of its first collective to the end of its last one.

        Raises
        ------
        RankAbsent
        """
        self.parity(sequence)
        self.rounds += 1
        self.meet(sequence, 1 + self.rounds)  # step 1 is the vote

    def parity(self, uint64_t sequence):
        """Which of its two areas this rank fills in the next round of a message, which the other ranks then read."""
        if self.sequence != sequence:
            self.sequence = sequence
            self.rounds = 0
        return self.rounds & 1

    def fail(self, uint64_t sequence, str name, str text):
        """Tell the other ranks that this one has failed in the middle of a message."""
        cdef bytes raw_name = name.encode("utf-8", "replace")[:60]
        cdef bytes raw_text = text.encode("utf-8", "replace")[:390]
        atomr_page_fail(self.page, self.rank, sequence, b"python", 0, raw_name, raw_text)

    def end(self):
        """End the connection, for a communicator that no message names any more.  Waits for it, up to 5 seconds."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.end()
