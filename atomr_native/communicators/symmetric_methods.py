"""What a communicator has to do with symmetric arrays, as methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .._lib.guard import Lock, shielded
from ..arrays.gpu_ref import GpuRef
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from .._lib.seats import Page
    from .communicator import Communicator
    from .symmetric import SymmetricMemory

__all__ = ["SymmetricMethods"]


class SymmetricMethods:
    """The symmetric arrays of `Communicator`."""

    _page: Page
    _owners: list[Any]
    _lock: Lock
    _check_open: Callable[[], None]
    _symmetric: SymmetricMemory | None  # from the first symmetric array on

    def symmetric(self, shape: object, dtype: object = "float32") -> list[GpuRef]:
        """Return a new array a rank, uninitialised, at one offset on all ranks: in windows of NCCL.

        Collectives whose arrays are all symmetric use the windows: without copies through NCCL's own buffers, and by
        copy engines if the communicator was made with ``copy_engines=True``.  Outputs that are not given are symmetric,
        too.  The arrays are as volatile as others.  After the restart of a rank, and after NCCL has made a new
        connection, the memory is registered anew by the next call of this method.

        The memory belongs to the communicator, in segments of at least 64 MiB: later calls use it again, and `close`
        gives it back.  It counts towards ``System(memory_limit=)``.  Waits for the workers when the memory grows, or
        is registered.

        On host devices, with one rank, in thread placement, with NCCL before 2.27.3, and from when NCCL has refused to
        register the memory, the arrays are ordinary ones, and `notes` says so.

        Parameters
        ----------
        shape : int or tuple of int
        dtype
            Element type.

        Returns
        -------
        list of GpuRef
            One a rank.

        Raises
        ------
        InvalidRequest
            For a shape or an element type that no array has, and inside a recording.
        OutOfMemory
            If a device has no room.
        DeviceFault, DeviceLost
            If a rank dies meanwhile, or is lost.

        Examples
        --------
        >>> comm = device.system.communicator(["host"])
        >>> [x] = comm.symmetric(2, "float64")
        >>> x.fill(3.0)
        >>> [total] = comm.all_reduce([x], out=[x])
        >>> total.numpy(), comm.notes
        (array([3., 3.]), ('symmetric: plain arrays, since host devices meet in shared memory',))
        >>> comm.close()
        """
        self._check_open()
        return self._symmetric_memory().arrays(shape, dtype)

    def _symmetric_memory(self) -> SymmetricMemory:
        return self._symmetric or self._begin_symmetric()

    @shielded
    def _begin_symmetric(self) -> SymmetricMemory:
        with self._lock:
            if self._symmetric is None:
                from .symmetric import SymmetricMemory  # which most communicators do without

                self._symmetric = SymmetricMemory(cast("Communicator", self), self._page, self._owners)
            return self._symmetric

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that take a longer way, with the reasons, as far as they are known; those of a plan are its own."""
        return () if self._symmetric is None else self._symmetric.notes

    def refuse_symmetric(self, name: str, arrays: object) -> None:
        """Refuse symmetric arrays as parameters of recorded programs, whose replays would not be checked.  Internal."""
        if self._symmetric is None:
            return
        for ref in arrays if isinstance(arrays, Sequence) else (arrays,):
            if isinstance(ref, GpuRef) and self._symmetric.owns(ref):
                raise InvalidRequest(
                    f"{name} is a symmetric array; allowed: other arrays (symmetric ones may be bound: use them in the "
                    f"recording without making them operands)"
                )
