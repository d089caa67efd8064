"""Arrays from a GPU of another machine to one of this process by NCCL, where a communicator spans both.

The two GPUs have a communicator of their own, which is made by the first array and ends with the communicators that
span them.  Every transfer is a message of both: it follows the writers that its array has had, and later writers follow
it.  It goes ahead only if no collective over nodes is at work in the two processes (`traffic`); otherwise, and after
each failure, the bytes go the other way, whose errors are the array's own.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support.error_text import error_text
from ..arrays.layout import layout_of
from ..errors import ActorStopped, AskTimeout, AtomrError, LibraryError
from ..libraries.collective.attributes import Step
from .carrier import NodeDied, NodeUnavailable
from .span import Part

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .arrays import RemoteRef
    from .peer import Peer
    from .rank_messages import Stamp
    from .relay import Meet
    from .span import Span

__all__ = ["LEAST", "Pairs", "Sent"]

_log = logging.getLogger("atomr_native.ray")

LEAST = 1 << 20  # bytes from which an array goes by NCCL
_SOURCE, _TARGET = 0, 1  # ranks
_PATIENCE_S = 0.5  # seconds that a transfer waits for other work of the two processes
_ASKED_S = 0.005  # of these, seconds at once in the array's process: two that ask each other must both let go
_CONNECT_S = 20.0  # seconds to connect, and to begin
_TRIES = 3  # after so many failures arrays go by TCP, until the communicator's next generation
_SLOWEST = 10e6  # bytes a second


@dataclass(frozen=True)
class Sent:
    """The answer of an array's process.

    Attributes
    ----------
    begun : bool
        Whether it sends; otherwise the bytes go another way this time.
    meet : Meet, optional
        Where it is reached, if the two have not met before.
    """

    begun: bool
    meet: Meet | None = None


class Pairs:
    """A process's part of the transfers by NCCL.

    Parameters
    ----------
    peer : Peer
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stamps: dict[tuple[str, str], Stamp] = {}  # of source and target; changed by transfers only
        self._failures: Counter[tuple[str, str, Stamp]] = Counter()  # of each generation

    # ---- the receiver

    def take(self, ref: RemoteRef, device: Device) -> GpuRef | None:
        """Return a copy of an array of another node; None if it is to go another way.  Waits for the bytes.

        Raises
        ------
        NodeLost, AtomrError
            Of the array, before it is sent.
        """
        names = self._names(ref, device)
        generation = None if names is None else self._peer.spans.joining(*names)
        if names is None or generation is None or not self._is_far(ref):
            return None
        if self._failures[(*names, generation)] >= _TRIES:
            return None
        ref.wait()
        traffic, end = self._peer.spans.traffic, time.monotonic() + _PATIENCE_S
        while traffic.begin(max(0.0, end - time.monotonic())):
            try:
                found = self._taken(ref, device, names)
            except (AtomrError, OSError) as error:
                self._failures[(*names, generation)] += 1
                _log.warning("an array from %s to %s goes by TCP, and not by NCCL: %s", *names, error_text(error))
                return None
            finally:
                traffic.end()
            if found is not None or time.monotonic() > end:
                return found
            time.sleep(_ASKED_S * random.random())  # noqa: S311 - the two come at different times
        return None

    def _names(self, ref: RemoteRef, device: Device) -> tuple[str, str] | None:
        host = self._peer.host
        if host is None or device.system is not host.system or device.kind != "cuda" or ref.nbytes < LEAST:
            return None
        return f"{ref.node}/{ref.device}", f"{host.place.node}/{device.name}"

    def _is_far(self, ref: RemoteRef) -> bool:
        """Whether the array is on another machine, that processes of this one reach."""
        link = self._peer.link(ref.node)
        try:
            life = link.connect(self._peer.tree.timeout)
            way = link.calls.way(life) if life.direct else None
        except (NodeDied, NodeUnavailable):
            return False
        return way is not None and not way.near

    def _taken(self, ref: RemoteRef, device: Device, names: tuple[str, str]) -> GpuRef | None:
        spans = self._peer.spans
        stamp = self._stamps.get(names)
        new = stamp is None or spans.find(stamp) is None
        if stamp is None or new:
            stamp = self._stamps[names] = (os.urandom(8).hex(), 1)
        try:
            sent: Sent = ref.ask_source("send_far", stamp, new, names[_TARGET])
            if not sent.begun:
                return None
            span = self._open(stamp, names, _TARGET, device)
            if sent.meet is not None:
                span.relay.connect(sent.meet)
                self._connect(span, _TARGET)
            made = device.empty(ref.shape, ref.dtype)
            self._run(span, _TARGET, made)
            return made
        except BaseException:
            spans.end(stamp)
            self._peer.link(ref.node).post(("end_span", stamp))  # the other one may not have met this one
            raise

    # ---- the array's process

    def send(self, ref: GpuRef, stamp: Stamp, new: bool, target: str) -> Sent:
        """Begin to send an array, if that is possible at once.  Waits until its worker is prepared.

        Raises
        ------
        Unsupported
            If the worker has no NCCL, or one that is too old.
        """
        spans, host = self._peer.spans, self._peer.host
        assert host is not None  # noqa: S101 - it has the array
        names = (f"{host.place.node}/{ref.device.name}", target)
        if spans.joining(*names) is None or not spans.traffic.begin(_ASKED_S):
            return Sent(False)
        try:
            if not new and spans.find(stamp) is None:
                raise ActorStopped("the two have lost each other")
            span = self._open(stamp, names, _SOURCE, ref.device)
            x = ref if ref.layout.contiguous else ref.device.copy(ref)
            self._plan(span, _SOURCE, x)
            meet = span.relay.listen(self._peer.caller.address()) if new else None
            threading.Thread(
                target=self._work, args=(span, stamp, x, new), name="atomr_native-send", daemon=True
            ).start()
        except OSError as error:
            self._give_up(stamp)
            raise LibraryError("nccl", error.errno or 0, type(error).__name__, "connect", error_text(error)) from None
        except BaseException:
            self._give_up(stamp)
            raise
        return Sent(True, meet)

    def _give_up(self, stamp: Stamp) -> None:
        self._peer.spans.end(stamp)
        self._peer.spans.traffic.end()

    def _work(self, span: Span, stamp: Stamp, x: GpuRef, new: bool) -> None:
        try:
            if new:
                self._connect(span, _SOURCE)
            self._run(span, _SOURCE, x)
        except AtomrError as error:
            _log.debug("an array was not sent by NCCL: %s", error_text(error))
            self._peer.spans.end(stamp)
        finally:
            self._peer.spans.traffic.end()

    # ---- both

    def _open(self, stamp: Stamp, names: tuple[str, str], rank: int, device: Device) -> Span:
        spans = self._peer.spans
        span = spans.open(stamp, device.system, names, {rank: device}, pair=True)
        if spans.joining(*names) is None:  # it has ended meanwhile, and may not have seen this one
            raise ActorStopped("no communicator spans the two any more")
        return span

    def _connect(self, span: Span, rank: int) -> None:
        plan = span.plan(rank, "barrier", Step("connect", "uint8", 0), None, None, scaled=False)
        self._wait(span.send(span.next_call(), rank, Part(plan, (), ())), _CONNECT_S)

    @staticmethod
    def _plan(span: Span, rank: int, array: GpuRef) -> Part:
        flat = array.view_as(layout_of((array.nbytes,), np.dtype(np.uint8)), array.offset)
        x, out = (flat, None) if rank == _SOURCE else (None, flat)
        step = Step("send", "uint8", array.nbytes, root=_SOURCE, target=_TARGET)
        return Part(span.plan(rank, "send", step, x, out, scaled=False), (flat,), ())

    def _run(self, span: Span, rank: int, array: GpuRef) -> None:
        part = self._plan(span, rank, array)
        self._wait(span.send(span.next_call(), rank, part), _CONNECT_S + array.nbytes / _SLOWEST)

    @staticmethod
    def _wait(reply: Any, seconds: float) -> None:
        if not reply.wait(seconds):
            raise AskTimeout(f"no transfer by NCCL within {seconds:.0f} s")
        error = reply.exception()
        if error is not None:
            raise error
