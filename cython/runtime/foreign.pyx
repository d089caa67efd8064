# cython: language_level=3, boundscheck=False, wraparound=False
"""Memory of others on the parent's side of a device: adopted, named by handles, given back.

Contract.  Functions over a Core; nothing waits, and nothing but the Core's own lock is taken, so that finalizers may
call `let_go` and `disown`.  Who keeps the memory's owner alive is the caller's business: until `let_go` says that no
message may use it.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from .sender cimport (
    ATOMR_CLOSED, ATOMR_DONE, ATOMR_FOREIGN, ATOMR_LANES, ATOMR_MAX_SEGMENTS, ATOMR_MOVED, ATOMR_REFUSED, ATOMR_STALE,
    Allocation, Core, Layout, Ref, atomr_check, atomr_sender_add_segment)

from ..errors import OutOfMemory

FOREIGN = ATOMR_FOREIGN


# Apart from what the device allocates itself, so that allocating costs nothing more.
@cython.no_gc
cdef class Adopted(Allocation):
    """One of the allocations that name an adopted slot; none of them owns it."""

    cdef object kept

    @property
    def keep(self):
        return self.kept


def place(Core core not None, uint32_t segment, uint64_t origin, bint readable, uint32_t window=0):
    """Let a reserved segment stand for memory of others.

    Parameters
    ----------
    origin : int
        Its address in this process; 0 for memory that has none here.
    readable : bool
        Whether the processor can use that address.
    window : int
        Number of the memory of symmetric arrays that it is a rank's part of; 0: of none.
    """
    core.alive()
    if segment >= ATOMR_MAX_SEGMENTS or atomr_sender_add_segment(core.sender, segment, ATOMR_FOREIGN, 0) != ATOMR_DONE:
        raise OutOfMemory(f"segment {segment} cannot be added")
    core.origins[segment] = <void *>origin
    core.bases[segment] = <void *>origin if readable else NULL
    core.windows[segment] = window


def forget(Core core not None, uint32_t segment):
    """Give the number of such a segment back, when no message names it any more."""
    if not core.abandoned:
        core.origins[segment] = core.bases[segment] = NULL
        core.windows[segment] = 0
        atomr_sender_drop_foreign(core.sender, segment)


def is_ours(Core core not None, uint64_t start, uint64_t end):
    """Whether a range of addresses shares bytes with the device's own memory, as it is mapped in this process."""
    cdef unsigned i
    cdef uint64_t base
    for i in range(ATOMR_MAX_SEGMENTS):
        base = <uint64_t>core.bases[i]
        if core.sizes[i] and base < end and start < base + core.sizes[i]:
            return True
    return False


def position(Ref ref not None):
    """(window, offset) of an array: the window is 0 where it is no symmetric one."""
    return ref.allocation.core.windows[ref.allocation.block.segment], ref.allocation.block.offset + ref.offset


def uses(Core core not None, uint32_t slot):
    """(lane, ticket) of every message that may still use an adopted slot, whatever became of its handles."""
    cdef uint64_t stamps[ATOMR_LANES]
    cdef int n = 0 if core.abandoned else atomr_adopted_uses(core.sender, slot, stamps)
    return [(stamps[i] >> 56, stamps[i] & 0xFFFFFFFFFFFFFF) for i in range(n)]


def adopt(Core core not None, uint32_t epoch, uint32_t segment, uint64_t offset, uint64_t nbytes):
    """Make a slot for a range of such a segment: its (number, generation), or None if the device has restarted."""
    cdef uint32_t slot = 0, generation = 0
    core.alive()
    cdef int r = atomr_adopt(core.sender, epoch, segment, offset, nbytes, &slot, &generation)
    if r == ATOMR_DONE:
        return slot, generation
    if r == ATOMR_MOVED or r == ATOMR_STALE:
        return None
    if r == ATOMR_REFUSED:
        raise core.stale(None, "device closed" if core.state == ATOMR_CLOSED else "device lost")
    raise OutOfMemory("no free handle for another allocation", requested=nbytes)


def handle(Core core not None, type cls, Layout layout not None, uint64_t offset, tuple slot, uint32_t epoch,
           uint32_t segment, uint64_t start, uint64_t nbytes, object keep not None, bint readonly):
    """A handle of class `cls` of an adopted slot, (number, generation), which lies at byte `start` of its segment.

    `keep` lives as long as any handle does.  Messages with a `readonly` handle must not write.
    """
    cdef Adopted a = Adopted.__new__(Adopted)
    cdef Ref ref
    a.core = core
    a.borrowed = True
    a.slot, a.generation = slot
    a.pool = ATOMR_FOREIGN
    a.epoch = epoch
    a.nbytes = nbytes
    a.block.segment = segment
    a.block.offset = start
    a.block.nbytes = nbytes
    a.kept = keep
    a.readonly = readonly
    ref = <Ref>cls.__new__(cls)
    ref.allocation = a
    return ref.view_of(cls, layout, offset)


@cython.no_gc
cdef class Shown(Allocation):
    """A read-only name of an allocation, which it keeps."""

    cdef Allocation of


def view(Allocation allocation not None, type cls, Layout layout not None, uint64_t offset, bint readonly=False):
    """A handle of class `cls` of any allocation; messages with a `readonly` handle must not write."""
    cdef Ref ref = <Ref>cls.__new__(cls)
    cdef Shown shown
    ref.allocation = allocation
    if readonly and not allocation.readonly:
        shown = Shown.__new__(Shown)
        shown.of = allocation
        shown.core = allocation.core
        shown.slot, shown.generation = allocation.slot, allocation.generation
        shown.pool, shown.epoch, shown.nbytes, shown.block = (
            allocation.pool, allocation.epoch, allocation.nbytes, allocation.block)
        shown.borrowed = shown.readonly = True
        ref.allocation = shown
    return ref.view_of(cls, layout, offset)


def unite(Core core not None, list members, bint covers):
    """Order adopted slots as one from now on; False if one was written since, or is gone: then look again.

    Parameters
    ----------
    members : list of (slot, generation, lane, ticket)
        The first is new; lane and ticket are those of the last write of each, which has succeeded.
    covers : bool
        Whether the others have no bytes outside of the first.
    """
    cdef unsigned i
    cdef uint64_t lane, ticket
    cdef int r
    cdef atomr_member *m = <atomr_member *>calloc(len(members), sizeof(atomr_member))
    if m == NULL:
        raise MemoryError
    try:
        core.alive()
        for i in range(len(members)):
            m[i].slot, m[i].generation, lane, ticket = members[i]
            m[i].writer = lane << 56 | ticket if ticket else 0
        r = atomr_unite(core.sender, m, len(members), covers)
    finally:
        free(m)
    if r == ATOMR_DONE:
        return True
    if r == ATOMR_MOVED or r == ATOMR_STALE:
        return False
    raise OutOfMemory("no free handle, or no memory, to order arrays that share bytes")


def live(Core core not None, uint32_t slot, uint32_t generation):
    """Whether handles of an adopted slot are good."""
    return not core.abandoned and atomr_check(core.sender, slot, generation) == ATOMR_DONE


def let_go(Core core not None, uint32_t slot, uint32_t generation, bint named):
    """Make the handles of an adopted slot stale as soon as no message may use it.

    Returns
    -------
    list of (lane, ticket) or None
        The messages that may; empty when it has been let go.  None while it is lent, or `named` by good handles.
    """
    cdef uint64_t stamps[ATOMR_LANES]
    cdef int n = 0 if core.abandoned else atomr_let_go(core.sender, slot, generation, named, stamps)
    if n < 0:
        return None
    return [(stamps[i] >> 56, stamps[i] & 0xFFFFFFFFFFFFFF) for i in range(n)]


def disown(Core core not None, uint32_t slot):
    """Give a slot back whose memory nothing uses any more."""
    if not core.abandoned:
        atomr_disown(core.sender, slot)
