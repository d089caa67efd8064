# Layouts, allocations and handles: a part of sender.pyx, so that sending reads them without a call.

cdef class Layout:
    """Shape, strides (bytes) and dtype of an array; compared by value, cheap when identical.

    `size` counts elements; `nbytes` is size times item size; `low` and `high` bound the bytes that the
    array touches, relative to its first element.
    """

    def __cinit__(self, tuple shape, tuple strides, object dtype, str dtype_name):
        cdef int64_t low = 0, high = 0, itemsize = dtype.itemsize, expected = itemsize
        cdef object size = 1
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.dtype_name = dtype_name
        for n in shape:
            size *= n
        if size * itemsize >= 1 << 47:
            raise InvalidRequest(f"shape {shape} of {dtype_name} takes {size * itemsize} bytes; "
                                 f"an array has fewer than {1 << 47}")
        self.size = size
        self.nbytes = self.size * itemsize
        self.contiguous = True
        for n, s in zip(reversed(shape), reversed(strides), strict=True):
            if n > 1:
                if s != expected:
                    self.contiguous = False
                if s < 0:
                    low += (n - 1) * s
                else:
                    high += (n - 1) * s
            expected *= n if n else 1
        if self.size == 0:
            self.contiguous = True
            low = high = 0
        else:
            high += itemsize
        self.low = low
        self.high = high
        self.hash = hash((shape, strides, dtype_name))

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        cdef Layout o
        if self is other:
            return True
        if not isinstance(other, Layout):
            return NotImplemented
        o = <Layout>other
        return (self.hash == o.hash and self.dtype_name == o.dtype_name and self.shape == o.shape
                and self.strides == o.strides)

    def __reduce__(self):
        return Layout, (self.shape, self.strides, self.dtype, self.dtype_name)

    def __repr__(self):
        return f"{self.dtype_name}{list(self.shape)}" + ("" if self.contiguous else f" strides {list(self.strides)}")


# Handles are made and dropped in every call, and hold nothing but their Core and immutable values: keeping them out
# of the cycle collector halves their cost.  (A cycle through a Core is closed by `Device.close`.)
@cython.no_gc
@cython.freelist(64)
cdef class Allocation:
    """Owns one slot: memory of a device.  Freed with the last handle, or before by `free`.

    Holds its Core, so that the mailboxes are there when it frees itself.
    """

    def __dealloc__(self):
        if self.core is not None and self.freed != FREED and not self.borrowed and not self.core.abandoned:
            atomr_free(self.core.sender, self.slot, self.generation)

    def free(self):
        """Free now: messages sent before may still use the memory, later ones are refused.  Idempotent."""
        end(self)

    def status(self):
        """``""`` while valid, else the reason: freed, torn, rolled back, device restarted, device closed."""
        cdef int r
        self.core.alive()
        if self.freed:
            return "recorded" if self.freed == RECORDED else "freed"
        r = atomr_check(self.core.sender, self.slot, self.generation)
        if r == ATOMR_DONE:
            return ""
        if r == ATOMR_TORN:
            return "torn"
        if r == ATOMR_BACK:
            return "rolled back"
        state = self.core.state
        if state == ATOMR_CLOSED:
            return "device closed"
        if state == ATOMR_LOST:
            return "device lost"
        return "freed" if self.epoch == atomr_sender_epoch(self.core.sender) else "device restarted"

    def refuse_gone(self):
        """Raise GpuRefStale if the memory is gone, and the device's error if that is.

        Not for torn memory, which may be overwritten, and not while the device restarts.
        """
        refuse_gone(self)

    def untear(self):
        """Accept the bytes of a torn allocation as they are."""
        self.core.alive()
        if atomr_untear(self.core.sender, self.slot, self.generation) != ATOMR_DONE:
            raise self.core.stale(self, self.status())

    def last_write(self):
        """(lane, ticket) of the last message that writes it; ticket 0 when there was none."""
        cdef uint32_t lane = 0
        cdef uint64_t ticket = 0
        self.core.alive()
        if atomr_last_write(self.core.sender, self.slot, self.generation, &lane, &ticket) != ATOMR_DONE:
            raise self.core.stale(self, self.status())
        return lane, ticket

    def open_uses(self):
        """(lane, ticket) of every message that may still use it, the newest of each lane."""
        cdef uint64_t stamps[ATOMR_LANES]
        cdef int n
        self.core.alive()
        n = atomr_open_uses(self.core.sender, self.slot, self.generation, stamps)
        return [(stamps[i] >> 56, stamps[i] & 0xFFFFFFFFFFFFFF) for i in range(n)]

    def lease(self):
        """Lend the memory to someone who is outside the ordering; it is not reused while lent."""
        cdef Lease lease = Lease.__new__(Lease)
        self.core.alive()
        if atomr_lease(self.core.sender, self.slot, self.generation) != ATOMR_DONE:
            raise self.core.stale(self, self.status())
        lease.core = self.core
        lease.slot = self.slot
        return lease

    @property
    def segment(self):
        return self.block.segment

    @property
    def offset(self):
        """Bytes from the start of its segment."""
        return self.block.offset

    @property
    def address(self):
        """Where the memory is mapped in this process, or 0."""
        cdef char *base
        if self.core.abandoned:
            return 0
        base = <char *>self.core.bases[self.block.segment]
        return 0 if base == NULL else <uint64_t>(base + self.block.offset)

    @property
    def keep(self):
        """What all handles of adopted memory keep, and with which the slot is freed; None for any other."""
        return None

    @property
    def space(self):
        """What `origin` counts in: allocations of different spaces share no bytes.  0: addresses of this process.

        It names the generation too, since a stale handle shares nothing with what has its slot now.
        """
        return space_of(self)

    @property
    def origin(self):
        """Where it begins in its space: for adopted memory its address, else 0."""
        cdef char *base = <char *>self.core.origins[self.block.segment]
        return 0 if base == NULL else <uint64_t>(base + self.block.offset)


cdef int end(Allocation a) except -1:
    """`Allocation.free`."""
    a.core.alive()
    if a.freed == RECORDED:
        a.freed = RECORDED_FREED  # the recording keeps the memory
    elif not a.freed:
        a.freed = FREED
        atomr_free(a.core.sender, a.slot, a.generation)
    return 0


cdef int refuse_gone(Allocation a) except -1:
    """`Allocation.refuse_gone`."""
    cdef object recorder
    status = a.status()
    if status == "recorded":
        recorder = a.core.recorder()
        if recorder is not None and recorder.owns(a):
            return 0
    if status == "device restarted" and a.core.state == ATOMR_RESTARTING:
        return 0  # a send waits, and says what has become of the device
    if status and status != "torn" and status != "rolled back":
        raise a.core.stale(None if status == "device closed" else a, status)  # as a send says it
    return 0


@cython.no_gc_clear  # its end needs the Core
cdef class Lease:
    """A loan of memory; ends when this object goes."""

    cdef Core core
    cdef uint32_t slot

    def __dealloc__(self):
        if self.core is not None and not self.core.abandoned:
            atomr_unlease(self.core.sender, self.slot)


@cython.no_gc
cdef class Ref:
    """The native part of a handle: an allocation, a layout and an offset (bytes)."""

    def view_of(self, type cls, Layout layout not None, uint64_t offset):
        """A handle of another view of the same allocation."""
        cdef Ref ref
        cdef int64_t first = <int64_t>offset
        if layout.size and (first + layout.low < 0 or <uint64_t>(first + layout.high) > self.allocation.nbytes):
            raise InvalidRequest(f"a view of {layout!r} at byte {offset} leaves its allocation of "
                                 f"{self.allocation.nbytes} bytes")
        ref = <Ref>cls.__new__(cls)
        ref.allocation = self.allocation
        ref.layout = layout
        ref.offset = offset
        ref.whole = layout.contiguous and offset == 0 and layout.nbytes == self.allocation.nbytes
        return ref

    def free_own(self):
        """Free the allocation, if its memory belongs to handles alone; False for borrowed and for adopted memory."""
        cdef Allocation a = self.allocation
        if a.borrowed or type(a) is not Allocation:
            return False
        end(a)
        return True

    def declared(self):
        """A handle of the same view; overwriting it counts for all allocations that share its bytes."""
        cdef Ref ref = self.view_of(type(self), self.layout, self.offset)
        if ref.whole:
            ref.whole = ATOMR_DECLARED
        return ref

    @property
    def is_whole(self):
        """Whether this view is its whole allocation."""
        return bool(self.whole)
