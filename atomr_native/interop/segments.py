"""Foreign memory in a device's worker: rules for sharing it, and how the worker opens and closes it.

In thread placement the worker sees all of this process: one segment, the window, stands for it.  A worker process maps
memory that the driver can export: allocations of ``cudaMalloc``, each as one segment that is closed before its last
array returns to its library; and segments of other devices, between GPUs with peer access.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from .._lib import foreign as native
from .._lib import parent
from .._lib.guard import Lock, Promise, shielded
from .._lib.lanes import WINDOW
from .._lib.sender import CLOSED, LOST
from ..errors import AskTimeout, LibraryError, Unsupported
from ..protocol.messages import Answer, WorkerGone
from .exports import uuid_bytes

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from .owner import SharingDevice
    from .producers import Source

__all__ = ["Mapping", "Segments"]

_COPY = "or let it be copied (copy=None)"


class Mapping:
    """One segment over foreign memory, in the worker of one generation.

    Attributes
    ----------
    key : object
        The mapped memory.
    segment, base : int
        Its number, and the address of its first byte in this process (0 for memory of another device).
    closes : bool
        Whether it must be closed as soon as it is unused.
    users : int
        Number of imports in it, and of calls that are about to make one.
    owners : list
        Objects kept until it is closed.
    """

    __slots__ = ("base", "closes", "closing", "epoch", "key", "nbytes", "owners", "segment", "users")

    def __init__(self, key: object, segment: int, epoch: int, base: int, nbytes: int, *, closes: bool) -> None:
        self.key = key
        self.segment = segment
        self.epoch = epoch
        self.base, self.nbytes = base, nbytes
        self.closes = closes
        self.users = 0
        self.owners: list[object] = []
        self.closing: Promise[Answer] | None = None


class Segments:
    """The mappings of one device.

    Parameters
    ----------
    owner : SharingDevice
        The device whose worker maps.
    """

    def __init__(self, owner: SharingDevice) -> None:
        self._owner = owner
        self._core = owner.core
        self._lock = Lock(leaf=True)  # guards what follows; never held while anything waits
        self._mappings: dict[object, Mapping] = {}
        #: Handles of whole segments of other GPUs, by the GPU's name and the segment's number.
        self.reached: dict[tuple[str, int], GpuRef] = {}
        self._unreachable: dict[str, tuple[int, str]] = {}
        self._closing: deque[Mapping] = deque()
        self._opening = Lock()  # one call at a time, so no memory is opened twice

    # ---- rules

    def check_place(self, source: Source) -> None:
        """Raise `Unsupported`, with the rule, if memory of this kind cannot be memory of this device."""
        device, name = self._owner, source.name
        if device.exports.on_gpu:
            if source.ordinal is None:
                raise Unsupported(f"{name} lies in host memory, and {device.name} works on its own; put it, {_COPY}")
            if source.ordinal != device.exports.ordinal:
                raise Unsupported(
                    f"{name} lies on GPU {source.ordinal} of this process, and {device.name} is GPU "
                    f"{device.exports.ordinal}; move it there first, {_COPY}"
                )
        elif source.ordinal is not None:
            raise Unsupported(
                f"{name} lies on GPU {source.ordinal}, and {device.name} works on host memory; {_COPY[3:]}"
            )
        elif device.config.isolation == "process":
            raise Unsupported(
                f"{name} is memory of this process, which the worker process of {device.name} does not see; make it by "
                f"device.host_array(), use System(isolation='thread'), {_COPY}"
            )

    def check_range(self, source: Source) -> None:
        """Raise `Unsupported` if an array lies in memory of this device."""
        device, name = self._owner, source.name
        start, end = source.start, source.end
        if native.is_ours(self._core, start, end) or device.exports.maps(start, end):
            raise Unsupported(
                f"{name} lies in memory of {device.name} itself, and not inside one array of it; {_COPY[3:]}"
            )

    # ---- opening

    @shielded
    def open(self, source: Source) -> Mapping:
        """Return the mapping of an array, opened if necessary, with one more use, which `unpin` ends.

        Waits for the worker.

        Raises
        ------
        Unsupported
            If the worker cannot open it.
        """
        if self._owner.config.isolation == "thread":
            return self._open("window", WINDOW, 1 << 63, closes=False, kind="window")
        ordinal, managed, shareable = parent.locate(source.address)
        if managed or not shareable:
            what = (
                "managed memory" if managed else
                "of a kind that CUDA does not export (expandable segments, cudaMallocAsync, or memory of this library)"
            )  # fmt: skip
            raise Unsupported(
                f"{source.name} is {what}, and a worker process needs memory of cudaMalloc, the default of PyTorch and "
                f"CuPy; use System(isolation='thread'), {_COPY}"
            )
        context = self._owner.exports.context
        start, end = source.start, source.end
        base, nbytes = context.range(source.address)
        if not base <= start <= end <= base + nbytes:
            raise Unsupported(f"{source.name} spans several allocations; {_COPY[3:]}")
        try:
            return self._open(
                (base, nbytes), base, nbytes, closes=True, kind="shared", handle=lambda: context.share(base).hex()
            )
        except LibraryError as error:
            why = str(error)
        raise Unsupported(f"{source.name} on GPU {ordinal} cannot be exported to the worker: {why}; {_COPY[3:]}")

    @shielded
    def open_peer(self, other: SharingDevice, segment: int) -> Mapping:
        """Return the mapping of a segment of another device's GPU, opened if necessary.

        Raises
        ------
        Unsupported
            If this GPU has no access to that one.
        """
        known = self._unreachable.get(other.name)
        if known is not None and known[0] == self._core.epoch:
            raise Unsupported(known[1])
        found = other.memory.segments.find(segment)
        if found is None:
            raise other.core.stale(None, "device closed")
        try:
            return self._open(
                (other.name, segment), 0, found.nbytes, fds=[found.fd], closes=False, kind="peer",
                uuid=uuid_bytes(other).hex(),
            )  # fmt: skip
        except (Unsupported, LibraryError) as error:
            why = f"{self._owner.name} does not reach the memory of {other.name}: {error}"
        self._unreachable[other.name] = (self._core.epoch, why)
        raise Unsupported(why)

    @shielded
    def open_shared(self, key: object, fd: int, nbytes: int, base: int, uuid: str) -> Mapping:
        """Return the mapping of a segment of another program; `base` is where this process has mapped it, or 0.

        Raises
        ------
        Unsupported
            If this device cannot map it.
        """
        if self._owner.config.isolation == "thread":
            if self._owner.exports.on_gpu:
                raise Unsupported(
                    f"{self._owner.name} runs in a thread, where memory of another program is not mapped; use "
                    f"System(isolation='process')"
                )
            return self._open("window", WINDOW, 1 << 63, closes=False, kind="window")
        return self._open(key, base, nbytes, fds=[fd], closes=True, kind="peer", uuid=uuid)

    @shielded
    def open_own(self, key: object, nbytes: int, window: int) -> Mapping:
        """Return the mapping of memory that the worker makes for itself, and that ends with it; made if necessary.

        `window` is the number of the symmetric memory that it is a part of.
        """
        return self._open(key, 0, nbytes, closes=True, kind="own", window=window)

    def _open(
        self,
        key: object,
        base: int,
        nbytes: int,
        *,
        closes: bool,
        fds: list[int] | None = None,
        window: int = 0,
        **request: Any,
    ) -> Mapping:
        with self._opening:
            while True:
                self._owner.wait_ready(self._owner.config.timeout)
                epoch = self._core.epoch
                with self._lock:
                    found = self._mappings.get(key)
                    if found is not None and found.epoch == epoch:
                        found.users += 1
                        return found
                try:
                    return self._map(key, base, nbytes, closes, fds or [], window, request)
                except WorkerGone:
                    self._owner.supervisor.await_change(epoch)

    def _map(
        self, key: object, base: int, nbytes: int, closes: bool, fds: list[int], window: int, request: dict[str, Any]
    ) -> Mapping:  # fmt: skip
        fields = {name: value() if callable(value) else value for name, value in request.items()}
        number = self._core.reserve_segment()
        try:
            epoch = self._owner.links.open_foreign(number, fds, nbytes=nbytes, **fields)
        except BaseException:
            self._core.add_segment(number, -1, 0)
            raise
        native.place(self._core, number, base, not self._owner.exports.on_gpu, window)
        made = Mapping(key, number, epoch, base, nbytes, closes=closes)
        with self._lock:
            made.users = 1
            self._mappings[key] = made
        return made

    def pin(self, mapping: Mapping) -> None:
        """Count one more use of a mapping that is in use."""
        with self._lock:
            mapping.users += 1

    # ---- closing

    @shielded
    def unpin(self, mapping: Mapping, owner: object = None) -> bool:
        """End one use.  Does not wait.

        Returns
        -------
        bool
            Whether `owner` is kept until the worker has closed the unused mapping.
        """
        with self._lock:
            mapping.users -= 1
            if mapping.users or not mapping.closes:
                return False
            if self._mappings.get(mapping.key) is mapping:
                del self._mappings[mapping.key]
            if owner is not None:
                mapping.owners.append(owner)
        self._close(mapping)
        return owner is not None

    @shielded
    def forget_peer(self, other: SharingDevice, segment: int | None = None) -> None:
        """Close the mapping of a segment that another device returns, or of all its segments, once it is unused.

        Does not wait.
        """
        with self._lock:
            gone = [
                key
                for key in self._mappings
                if isinstance(key, tuple) and key[0] == other.name and segment in (None, key[1])
            ]
            mappings = [self._mappings.pop(key) for key in gone]
            for mapping in mappings:
                mapping.closes = True  # with its last use
            unused = [mapping for mapping in mappings if not mapping.users]
        handles = [self.reached.pop(key, None) for key in list(self.reached) if key in gone]
        for mapping in unused:
            self._close(mapping)
        del handles  # with them the last use may end

    @property
    def pending(self) -> bool:
        """Whether a mapping is being closed."""
        return bool(self._closing)

    @shielded
    def tidy(self) -> None:
        """Continue closing, and drop the owners that wait for it.  Does not wait."""
        for _ in range(len(self._closing)):
            try:
                mapping = self._closing.popleft()
            except IndexError:  # another thread does this, too
                return
            self._close(mapping)

    def _close(self, mapping: Mapping) -> None:
        """Make the worker close a mapping; finish if it has, or if it has died."""
        closing, mapping.closing = mapping.closing, None
        if closing is not None and not closing.done():
            mapping.closing = closing
            self._closing.append(mapping)
            return
        over = self._core.epoch != mapping.epoch or self._core.state in (LOST, CLOSED)
        if not over and closing is not None:
            error = closing.exception()
            if not isinstance(error, WorkerGone):  # otherwise it may still run, until its death is accounted for
                over = True
        if over:
            native.forget(self._core, mapping.segment)
            mapping.owners.clear()
            return
        if closing is None:
            with contextlib.suppress(WorkerGone, AskTimeout):
                mapping.closing = self._owner.links.close_foreign(mapping.segment, mapping.epoch)
        self._closing.append(mapping)
        if mapping.closing is not None:
            mapping.closing.add_done_callback(lambda _: self._owner.wakers.own.kick())
