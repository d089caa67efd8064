# cython: language_level=3, boundscheck=False, wraparound=False
"""Pages of one communicator in several programs: words of ranks, to be copied from page to page.

Contract.  Thin functions over mirror.h.  Only `wait` waits, without the GIL.
"""

from libc.string cimport memcpy

from .seats cimport Page, atomr_page

from ..errors import InvalidRequest

cdef extern from "runtime/mirror.h" nogil:
    ctypedef struct atomr_rank_words:
        pass
    void atomr_mirror_read(const atomr_page *, unsigned rank, atomr_rank_words *)
    void atomr_mirror_write(atomr_page *, unsigned rank, const atomr_rank_words *)
    unsigned atomr_mirror_bell(const atomr_page *)
    void atomr_mirror_follow(atomr_page *)
    void atomr_mirror_leave(atomr_page *)
    void atomr_mirror_await(const atomr_page *, unsigned bell, unsigned long long ns)


cdef int check(Page page, unsigned rank) except -1:
    if rank >= page.page.n_ranks:
        raise InvalidRequest(f"rank {rank}; allowed: 0 to {page.page.n_ranks - 1}")
    return 0


def read(Page page not None, unsigned rank):
    """Return the words of a rank."""
    cdef atomr_rank_words words
    check(page, rank)
    atomr_mirror_read(page.page, rank, &words)
    return (<char *>&words)[:sizeof(words)]


def write(Page page not None, unsigned rank, bytes words not None):
    """Write the words of a rank of another program, as `read` returns them there.

    Raises
    ------
    InvalidRequest
        For another number of bytes, or a rank that the page does not have.
    """
    cdef atomr_rank_words found
    check(page, rank)
    if len(words) != sizeof(found):
        raise InvalidRequest(f"{len(words)} bytes of a rank; allowed: {sizeof(found)}")
    memcpy(&found, <const char *>words, sizeof(found))
    atomr_mirror_write(page.page, rank, &found)


def follow(Page page not None):
    """Have each change of the page ring its bell, until `leave`."""
    atomr_mirror_follow(page.page)


def leave(Page page not None):
    """Follow the page no longer."""
    atomr_mirror_leave(page.page)


def bell(Page page not None):
    """Return a number that changes with each change of a page that is followed; for `wait`."""
    return atomr_mirror_bell(page.page)


def wait(Page page not None, unsigned seen, double seconds):
    """Wait until the page has changed since `bell` returned `seen`, or the time is over."""
    with nogil:
        atomr_mirror_await(page.page, seen, <unsigned long long>(seconds * 1e9))
