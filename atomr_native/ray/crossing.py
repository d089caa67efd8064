"""A rank's part in a collective of GPUs on several nodes, by NCCL.

The meeting has seen that all ranks call the same.  The first call of a generation connects them; before the first call
of each kind every rank has its plan built and its memory, and they meet, so that all go on or none.  After that each
rank sends its message at once: the workers vote on it, over all nodes, and NCCL runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._support.error_text import error_text
from ..actors.answer import bare
from ..arrays.operands import memory_span
from ..errors import AskTimeout, AtomrError, LibraryError
from ..libraries.collective.attributes import Step
from ..plans.failures import is_of_another_rank
from .rank_messages import Brought, Go
from .span import Part, Span

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .peer import Peer
    from .rank_messages import Stamp

__all__ = ["Crossing"]

_IN_PLACE = ("all_reduce", "reduce")


class Crossing:
    """One call of one rank.

    Parameters
    ----------
    peer : Peer
    names : sequence of str
        The node and device of each rank.
    stamp : Stamp
        Of the generation.
    go : Go
    rank : int
    devices : dict of int to Device
        The ranks of this process.
    meet : callable
        Meets the other ranks again: takes what this one brings, and returns that of all.
    report : callable
        Tells the others of a failure, this rank's own or None; raises its cause.
    """

    def __init__(
        self, peer: Peer, names: Sequence[str], stamp: Stamp, go: Go, rank: int, devices: dict[int, Device],
        meet: Callable[[Brought], tuple[Brought, ...]], report: Callable[[AtomrError | None], object],
    ) -> None:  # fmt: skip
        self._peer, self._names, self._stamp, self._go, self._rank = peer, names, stamp, go, rank
        self._devices = devices
        self._meet, self._report = meet, report

    def connect(self) -> None:
        """Connect the ranks, if this is the first call of the generation.

        Raises
        ------
        Unsupported, LibraryError
            If they cannot be connected: on all ranks.
        AtomrError
            If one of them is lost meanwhile.
        """
        if self._go.stage != "connect":
            return
        go, rank = self._go, self._rank
        step = Step("connect", "uint8", 0)

        def begin() -> Any:
            assert self._peer.host is not None  # noqa: S101 - a rank is on a node
            span = self._peer.spans.open(self._stamp, self._peer.host.system, self._names, self._devices)
            span.plan(rank, "barrier", step, None, None, scaled=False)
            return span.relay.listen(self._peer.caller.address()) if rank == 0 else None

        def link() -> None:
            span = self._span()
            with span.connecting:
                if 0 not in span.devices and not span.connected:
                    span.relay.connect(hub)
                    span.connected = True

        def meet() -> None:
            span = self._span()
            plan = span.plan(rank, "barrier", step, None, None, scaled=False)
            with self._peer.spans.traffic.collective():
                error = self._outcome(span.send(-go.number, rank, Part(plan, (), ())))
            if error is not None:
                raise error

        try:
            hub = self._together(begin)[0]
            self._together(link)
            self._together(meet)
            self._span().joined = True
        except BaseException:
            self._peer.spans.end(self._stamp)
            raise

    def run(self, array: GpuRef | None, out: GpuRef | None, factor: float | None) -> GpuRef | None:
        """Return this rank's result, in `out` if it is given.

        Raises
        ------
        Unsupported
            On all ranks, before anything has run.
        AtomrError
            The first cause, on all ranks.
        """
        if self._go.stage != "known":
            prepared: list[tuple[GpuRef | None, Part | None]] = []
            self._together(lambda: prepared.append(self._prepare(array, out, factor)))
            made, part = prepared[0]
        else:
            try:
                made, part = self._prepare(array, out, factor)
            except AtomrError as error:
                self._fail(error)
                raise
        if part is not None:
            self._send(part)
        return made if made is None or out is None or made is out else made.device.copy(made, out)

    # ---- helpers

    def _span(self) -> Span:
        found = self._peer.spans.find(self._stamp)
        if found is None:
            raise LibraryError("nccl", 0, "disconnected", "a communicator over nodes", "nodes have lost each other")
        return found

    def _together(self, work: Callable[[], Any]) -> list[Any]:
        """Do this rank's work, and meet the others: all go on, or none.  Return the value of each rank."""
        try:
            brought = Brought(work())
        except AtomrError as error:
            brought = Brought(None, bare(error), not is_of_another_rank(error))  # type: ignore[arg-type]
        except OSError as error:
            text = f"no way to the node of rank 0: {error_text(error)}"
            brought = Brought(None, LibraryError("nccl", error.errno or 0, type(error).__name__, "connect", text))
        found = self._meet(brought)
        errors = sorted((each for each in found if each.error is not None), key=lambda each: not each.own)
        if errors:
            assert errors[0].error is not None  # noqa: S101 - as above
            raise errors[0].error
        return [each.value for each in found]

    def _prepare(
        self, array: GpuRef | None, out: GpuRef | None, factor: float | None
    ) -> tuple[GpuRef | None, Part | None]:
        """Return this rank's result, not written yet, and its part of the message: None if nothing moves."""
        go, rank = self._go, self._rank
        device, step, shape = self._devices[rank], go.step, go.shapes[rank]
        x = array if array is None or array.layout.contiguous else device.copy(array)
        made = None if shape is None else self._target(x, out, shape)
        if not step.count:
            return made, None
        numbers = () if factor is None else (float(factor),)
        plan = self._span().plan(rank, step.kind, step, x, made, scaled=bool(numbers))
        return made, Part(plan, tuple(each for each in (x, made) if each is not None), numbers)

    def _target(self, x: GpuRef | None, out: GpuRef | None, shape: tuple[int, ...]) -> GpuRef:
        """Return the memory of the result: `out` itself, where NCCL can write there."""
        device, step = self._devices[self._rank], self._go.step
        if out is not None and out.layout.contiguous and not out.allocation.readonly and out.shape == shape:
            apart = x is None or out.allocation is not x.allocation
            in_place = x is not None and step.kind in _IN_PLACE and memory_span(out) == memory_span(x)
            if out.layout.dtype_name == step.dtype and (apart or in_place):
                return out
        return device.empty(shape, step.dtype)

    def _send(self, part: Part) -> None:
        """Send, and wait for the result."""
        try:
            with self._peer.spans.traffic.collective():
                error = self._outcome(self._span().send(self._go.number, self._rank, part))
        except AtomrError as failed:
            error = failed
        except BaseException:  # an interrupt: the others would wait for this rank
            self._peer.spans.end(self._stamp)
            raise
        if error is not None:
            self._fail(error)

    def _outcome(self, reply: Any) -> AtomrError | None:
        seconds = self._go.timeout
        if not reply.wait(seconds):
            return AskTimeout(f"{self._go.step.kind}: no result of all ranks within {seconds:g} s")
        found: AtomrError | None = reply.exception()
        return found

    def _fail(self, error: AtomrError) -> None:
        """Have the ranks of other processes fail, and raise the cause."""
        self._peer.spans.end(self._stamp)
        self._report(None if is_of_another_rank(error) else error)
        raise error
