"""The ranks of one process in a communicator whose GPUs, on several nodes, meet by NCCL.

Each process has a page with the words of all ranks (`relay`), and a sequence number for each message.  A message goes
to all ranks of a process at once, when each of them has come to it, so the processes have the same messages in the same
order.  A span is of one generation: it ends with the first loss.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._lib.guard import Lock
from .._lib.seats import Page
from .._lib.sender import Sequence as Count
from .._lib.sender import send_ranks
from .._support.error_text import error_text
from ..arrays.owner import owner_of
from ..communicators.request import replace_step
from ..errors import ActorStopped, AtomrError
from ..libraries.collective.attributes import CollectiveAttributes, Step
from ..plans.failures import mark_of_another_rank
from ..plans.plan import Plan
from ..plans.signature import signature_of
from ..plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec, describe
from .relay import Relay
from .traffic import Traffic

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from ..plans.reply import Reply
    from ..system import System

__all__ = ["Part", "Span", "Spans"]

_log = logging.getLogger("atomr_native.ray")

_CLOSE_S = 5.0  # seconds that messages have to end
_PLANS = 256


@dataclass(frozen=True)
class Part:
    """A rank's part of a message."""

    plan: Plan
    refs: tuple[GpuRef, ...]
    numbers: tuple[float, ...]


class Span:
    """The ranks of a process, in one generation.

    Parameters
    ----------
    system : System
    names : sequence of str
        The node and device of each rank, in all processes.
    devices : mapping of int to Device
        The ranks of this process.
    ended : callable
        Called when the span ends.
    pair : bool
        Whether it is for transfers between two GPUs.
    """

    def __init__(
        self, system: System, names: Sequence[str], devices: Mapping[int, Device], ended: Callable[[], object], *,
        pair: bool = False,
    ) -> None:  # fmt: skip
        self.names, self.size, self.devices, self.pair = tuple(names), len(names), dict(devices), pair
        self.joined = False  # all ranks have met
        self._calls = itertools.count(1)
        self._registry = system._communicators()  # noqa: SLF001 - its numbers are the System's
        self._owners = {rank: owner_of(device) for rank, device in devices.items()}
        page = Page([f"rank {number}" for number in range(self.size)])
        self._number = self._registry.seat(page, devices)
        self._count = Count()
        self._lock = threading.RLock()  # and not that of the condition: see `Link.lock`
        self._change = threading.Condition(self._lock)
        self._parts: dict[int, dict[int, Part]] = {}
        self._replies: dict[int, dict[int, Reply] | AtomrError] = {}
        self._plans: dict[tuple[int, PlanSpec[Any]], Plan] = {}  # the one that was used last is the last
        self._last: dict[int, Plan] = {}  # of each rank's last message, after which its lane has ended all others
        self._told = ended
        self._over = False
        self.connecting = threading.Lock()
        self.connected = False
        self.relay = Relay(page, self.size, devices, self._end)

    def next_call(self) -> int:
        """Return the number of a call that needs no number of the meeting."""
        return next(self._calls)

    def plan(self, rank: int, kind: str, step: Step, x: GpuRef | None, out: GpuRef | None, *, scaled: bool) -> Plan:
        """Return the plan of a rank's part; waits until the worker has built it.

        Raises
        ------
        Unsupported
            If the worker has no NCCL, or one that is too old.
        """
        operands: list[OperandSpec] = []
        for name, ref, access in (("x", x, READ), ("out", out, WRITE | OVERWRITE)):
            if ref is not None:
                step = replace_step(step, **{name: len(operands)})
                operands.append(describe(f"{name}{len(operands)}", ref, access))
        if scaled:
            step = replace_step(step, number=2)
        scalars = ("int64", "int64", *(("float64",) if scaled else ()))
        attributes = CollectiveAttributes(self._number, rank, self.size, (step,))
        spec = PlanSpec(f"collective.{kind}", tuple(operands), scalars, attributes)
        with self._lock:
            found = self._plans.pop((rank, spec), None)
            if found is None:
                names = ("meeting", "sequence", *(("factor",) if scaled else ()))
                owner = self._owners[rank]
                signature = signature_of(spec, names, (0,) * len(names))
                found = Plan.make(owner, self._registry.lane_of(owner), spec, signature)
            self._plans[rank, spec] = found
            while len(self._plans) > _PLANS:
                self._plans.pop(next(iter(self._plans)))
        found.wait()
        return found

    def send(self, call: int, rank: int, part: Part) -> Reply:
        """Send a rank's part of a call, once all ranks of this process have come to it.

        Raises
        ------
        ActorStopped
            If the span has ended: another rank takes no part.
        AtomrError
            If the message cannot be sent.
        """
        with self._lock:
            parts = self._parts.setdefault(call, {})
            parts[rank] = part
            if len(parts) == len(self.devices) and not self._over:
                self._replies[call] = self._send(parts)
                self._change.notify_all()
            while call not in self._replies and not self._over:
                self._change.wait()
            found = self._replies.get(call)
            parts.pop(rank, None)
            if not parts:
                self._parts.pop(call, None)
                self._replies.pop(call, None)
        if isinstance(found, dict):
            return found[rank]
        raise _elsewhere() if found is None else found

    def _send(self, parts: dict[int, Part]) -> dict[int, Reply] | AtomrError:
        whole = [parts[rank] for rank in sorted(parts)]
        plans, operands = [part.plan for part in whole], [part.refs for part in whole]
        numbers = [part.numbers for part in whole]
        try:
            replies: Sequence[Reply] = send_ranks(self._count, self._number, plans, operands, numbers, True, True)
        except AtomrError as error:
            return error
        self._last = {rank: part.plan for rank, part in parts.items()}
        return dict(zip(sorted(parts), replies, strict=True))

    def close(self) -> None:
        """End: messages that other ranks have not come to fail.  Idempotent; does not wait."""
        self.relay.close()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            self._change.notify_all()
        self._told()
        threading.Thread(target=self._forget, name="atomr_native-span", daemon=True).start()

    def _forget(self) -> None:
        """Have the workers forget the communicator, once its messages are over."""
        deadline = time.monotonic() + _CLOSE_S
        with self._lock:
            plans = list(self._last.values())
        try:
            over = all(
                plan.core.wait_ticket(plan.lane, plan.last_ticket, max(0.0, deadline - time.monotonic()))
                for plan in plans
            )
            self._registry.forget(self._number, list(self._owners.values()), over=over)
        except AtomrError as error:
            _log.debug("a communicator over nodes stays open in a worker: %s", error_text(error))


def _elsewhere() -> AtomrError:
    """Return the error of a rank that could have taken part."""
    return mark_of_another_rank(ActorStopped("not run: another rank does not take part"))


class Spans:
    """The spans of a process, by the stamp of their generation."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spans: dict[tuple[str, int], Span] = {}
        self.traffic = Traffic()

    def open(
        self, stamp: tuple[str, int], system: System, names: Sequence[str], devices: Mapping[int, Device], *,
        pair: bool = False,
    ) -> Span:  # fmt: skip
        """Return the span of a stamp, made by the first rank that comes."""
        with self._lock:
            found = self._spans.get(stamp)
            if found is None:
                found = self._spans[stamp] = Span(system, names, devices, lambda: self._ended(stamp), pair=pair)
            return found

    def joining(self, first: str, second: str) -> tuple[str, int] | None:
        """Return the stamp of a communicator that connects two GPUs; None if there is none."""
        for stamp, span in list(self._spans.items()):
            if span.joined and not span.pair and first in span.names and second in span.names:
                return stamp
        return None

    def _ended(self, stamp: tuple[str, int]) -> None:
        """Forget a span, and end the pairs that no communicator spans any more."""
        self._spans.pop(stamp, None)
        for each in list(self._spans.values()):
            if each.pair and self.joining(*each.names) is None:
                each.close()

    def find(self, stamp: tuple[str, int]) -> Span | None:
        """Return the span of a stamp; None if it has ended."""
        return self._spans.get(stamp)

    def end(self, stamp: tuple[str, int]) -> None:
        """End the span of a stamp.  Does not wait."""
        found = self._spans.get(stamp)
        if found is not None:
            found.close()

    def close(self) -> None:
        """End all."""
        for each in list(self._spans.values()):
            each.close()
