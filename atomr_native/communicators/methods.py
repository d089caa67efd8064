"""The collectives of a communicator, as methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..arrays.gpu_ref import GpuRef
from .request import CollectiveRequest

if TYPE_CHECKING:
    from .reply import CollectiveReply

__all__ = ["CollectiveMethods"]

Reduction: TypeAlias = Literal["sum", "prod", "min", "max", "avg"]
Factor: TypeAlias = "float | int | Sequence[GpuRef] | None"


class CollectiveMethods:
    """One method for each collective.

    All take contiguous arrays, one on the device of each rank where it says so, and enqueue: the handles that they
    return are their own futures.  Outputs that are not given are allocated.  They raise `InvalidRequest`,
    `GpuRefStale`, `MailboxFull`, `OutOfMemory` or `DeviceLost` before anything is enqueued on any rank.
    """

    #: Those of `Communicator`.
    tell: Callable[[CollectiveRequest], Any]
    ask: Callable[[CollectiveRequest], CollectiveReply]

    def all_reduce(
        self,
        arrays: Sequence[GpuRef],
        out: Sequence[GpuRef] | None = None,
        *,
        op: Reduction = "sum",
        factor: Factor = None,
    ) -> list[GpuRef]:
        """Reduce one array a rank, element by element, into one array on every rank.

        The reduction goes in the order of ranks on host devices, in NCCL's on GPUs.  Each step is rounded to the
        element type: bfloat16 by way of float32, float8 by way of float16, and saturating.  Integers wrap.

        Parameters
        ----------
        arrays : sequence of GpuRef
            One a rank, of one shape and dtype: any but ``bool``, ``int16``, ``uint16`` and complex.
        out : sequence of GpuRef, optional
            Of that shape and dtype; may be `arrays`.
        op : {"sum", "prod", "min", "max", "avg"}
            ``"min"`` and ``"max"`` prefer numbers to NaN.  ``"avg"`` multiplies floating elements by 1 / size before it
            adds them, and divides the sum of integers, towards zero.
        factor : float, int or sequence of GpuRef, optional
            Of ``"sum"``: each rank's elements are multiplied by it before; a number, or an array of one element a rank.

        Returns
        -------
        list of GpuRef
            The output of each rank.  All are equal, bit by bit.
        """
        return self.tell(CollectiveRequest("all_reduce", arrays, out, op, factor))  # type: ignore[no-any-return]

    def reduce(
        self,
        arrays: Sequence[GpuRef],
        root: int = 0,
        out: GpuRef | None = None,
        *,
        op: Reduction = "sum",
        factor: Factor = None,
    ) -> GpuRef:
        """Reduce as `all_reduce` does, into one array on the rank `root`, which may be its own."""
        return self.tell(CollectiveRequest("reduce", arrays, out, op, factor, root))  # type: ignore[no-any-return]

    def reduce_scatter(
        self,
        arrays: Sequence[GpuRef],
        out: Sequence[GpuRef] | None = None,
        *,
        op: Reduction = "sum",
        factor: Factor = None,
    ) -> list[GpuRef]:
        """Reduce as `all_reduce` does, and leave an equal part, along the first axis, on each rank.

        An output may be its rank's part of the rank's own array.
        """
        return self.tell(CollectiveRequest("reduce_scatter", arrays, out, op, factor))  # type: ignore[no-any-return]

    def broadcast(self, array: GpuRef, out: Sequence[GpuRef] | None = None) -> list[GpuRef]:
        """Copy an array to every rank; the rank on whose device it lies is the root.

        Parameters
        ----------
        array : GpuRef
        out : sequence of GpuRef, optional
            One a rank; that of the root may be `array`.

        Returns
        -------
        list of GpuRef
            The copy on each rank; without `out`, `array` itself on the root.
        """
        return self.tell(CollectiveRequest("broadcast", array, out))  # type: ignore[no-any-return]

    def all_gather(self, arrays: Sequence[GpuRef], out: Sequence[GpuRef] | None = None) -> list[GpuRef]:
        """Join one array a rank, along the first axis, on every rank.

        Arrays have one shape and dtype, and may be their rank's part of its output.
        """
        return self.tell(CollectiveRequest("all_gather", arrays, out))  # type: ignore[no-any-return]

    def gather(self, arrays: Sequence[GpuRef], root: int = 0, out: GpuRef | None = None) -> GpuRef:
        """Join as `all_gather` does, on the rank `root` only."""
        return self.tell(CollectiveRequest("gather", arrays, out, root=root))  # type: ignore[no-any-return]

    def scatter(self, array: GpuRef, out: Sequence[GpuRef] | None = None) -> list[GpuRef]:
        """Leave an equal part of an array, along the first axis, on each rank.

        The rank on whose device `array` lies is the root; its output may be its own part of `array`.
        """
        return self.tell(CollectiveRequest("scatter", array, out))  # type: ignore[no-any-return]

    def all_to_all(
        self,
        arrays: Sequence[GpuRef],
        out: Sequence[GpuRef] | None = None,
        *,
        counts: Sequence[Sequence[int]] | None = None,
    ) -> list[GpuRef]:
        """Send a part of each rank's array, along the first axis, to each rank, which joins what it receives.

        Parameters
        ----------
        arrays : sequence of GpuRef
            One a rank, of one dtype; shapes may differ in the first axis if `counts` are given.
        out : sequence of GpuRef, optional
            Separate memory.
        counts : sequence of sequence of int, optional
            ``counts[i][j]`` rows go from rank i to rank j; by default equal parts.
        """
        return self.tell(CollectiveRequest("all_to_all", arrays, out, counts=counts))  # type: ignore[no-any-return]

    def send(self, array: GpuRef, to: int, out: GpuRef | None = None) -> GpuRef:
        """Copy an array from its rank to the rank `to`: both ends of a send and its receive.  Returns the copy."""
        return self.tell(CollectiveRequest("send", array, out, root=to))  # type: ignore[no-any-return]

    def barrier(self) -> CollectiveReply:
        """Enqueue a message that does nothing; its reply is resolved when all ranks have come to it."""
        return self.ask(CollectiveRequest("barrier"))
