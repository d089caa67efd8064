"""Traces of messages, in the JSON trace event format that Perfetto and Chrome read."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from .._lib.actor_cell import current_cell
from .._lib.guard import Lock
from ..errors import InvalidRequest
from . import observers
from .lane_spans import LaneSpans
from .snapshot import check_system

if TYPE_CHECKING:
    from .._lib.sender import Core
    from ..actors.cell import Cell
    from ..plans.plan import Plan
    from ..plans.reply import Reply
    from ..system import System

__all__ = ["Trace", "trace"]

_log = logging.getLogger("atomr_native.observe")
_ACTORS = 1  # number of the actors' process in the trace; devices follow


class _Message:
    """One message to an actor: the times of its send, begin and end."""

    __slots__ = ("actor", "asked", "begun", "done", "failed", "inside", "kind", "number", "owner", "sender_track",
                 "sent", "slot", "track", "uid")  # fmt: skip

    def __init__(self, owner: Trace, number: int, cell: Cell, envelope: Any, track: int, inside: bool) -> None:
        self.owner = owner
        self.number = number
        self.actor, self.uid = cell.path, cell.uid  # not the cell, which may stop and disappear
        self.kind = type(envelope.message).__name__
        self.asked = envelope.answer is not None
        self.sender_track, self.inside = track, inside
        self.track = self.slot = -1
        self.begun = self.done = 0
        self.failed = False
        self.sent = time.monotonic_ns()

    def begin(self, cell: Cell) -> None:
        self.slot, self.track = self.owner.take_slot(cell)
        self.begun = time.monotonic_ns()

    def leave(self) -> None:
        pass

    def end(self, failed: bool) -> None:
        self.done, self.failed = time.monotonic_ns(), failed
        self.owner.free_slot(self)


class _Device:
    """One message to a device: time of its send, its dependencies, and for an ask, time of its resolution."""

    __slots__ = ("core", "device", "done", "inside", "lane", "lane_name", "needs", "number", "op", "sender_track",
                 "sent", "ticket")  # fmt: skip

    def __init__(self, number: int, plan: Plan, ticket: int, track: int, inside: bool) -> None:
        self.number = number
        self.core, self.lane, self.ticket = plan.core, plan.lane, ticket
        self.device = plan.device.name
        self.lane_name = self.core.lane_names.get(plan.lane, str(plan.lane))
        self.op = plan.spec.op
        self.needs = self.core.dependencies(plan.lane, ticket)
        self.sender_track, self.inside = track, inside
        self.sent, self.done = time.monotonic_ns(), 0

    def resolved(self) -> None:
        self.done = time.monotonic_ns()


_Spans: TypeAlias = "dict[tuple[Core, int, int], tuple[int, int]]"


class Trace:
    """A recording of a System's messages; made by `trace`, a context manager.

    Attributes
    ----------
    path : pathlib.Path
        The file that `stop` writes.
    dropped : int
        Messages after `limit`, which the trace lacks.
    untimed : int
        Messages of devices without times of their lane, since they came too fast; known at the end.
    """

    def __init__(self, path: str | os.PathLike[str], system: System, limit: int) -> None:
        self.path = Path(path)
        self._system = system
        self._limit = limit
        self._messages: list[_Message | _Device] = []
        self._numbers = itertools.count(1)
        self._tracks: dict[tuple[str, int, int], tuple[int, str]] = {}
        self._slots: dict[int, set[int]] = {}  # for each actor, the tracks in use; for its thread
        self._lock = Lock()
        self._running = True
        self.dropped = 0
        self.untimed = 0
        self._began = time.monotonic_ns()
        self._lanes = LaneSpans(system, limit)
        observers.add(self)

    # ---- recording

    def sent(self, cell: Cell, envelope: Any) -> _Message | None:
        """Record a message to an actor; see `observers.Observer`."""
        if cell.tree.system is not self._system or not self._room():
            return None
        track, inside = self._here()
        made = _Message(self, next(self._numbers), cell, envelope, track, inside)
        self._messages.append(made)
        return made

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        """Record a message to a device; see `observers.Observer`."""
        if plan.device.system is not self._system or not self._room():
            return
        made = _Device(next(self._numbers), plan, ticket, *self._here())
        self._messages.append(made)
        if reply is None:
            made.done = -1
        else:
            observers.when_resolved(plan, ticket, made.resolved)

    def _here(self) -> tuple[int, bool]:
        """Return the track of the sender, and whether it is handling a traced message."""
        here: Any = current_cell()
        if here is None:
            thread = threading.current_thread()
            return self._track("thread", threading.get_ident(), 0, thread.name), False
        at_work = here.at_work()
        mark = None if at_work is None or at_work.mark is None else at_work.mark.of(_Message, self)
        if mark is None:
            return self._track("actor", here.uid, 0, here.path), False
        return mark.track, True

    def _room(self) -> bool:
        if not self._running:
            return False
        if len(self._messages) < self._limit:
            return True
        self.dropped += 1
        return False

    def _track(self, kind: str, number: int, slot: int, name: str) -> int:
        found = self._tracks.get((kind, number, slot))
        if found is None:
            with self._lock:
                text = name if slot == 0 else f"{name} #{slot + 1}"
                found = self._tracks.setdefault((kind, number, slot), (len(self._tracks) + 1, text))
        return found[0]

    def take_slot(self, cell: Cell) -> tuple[int, int]:
        """Assign a track to a message that begins; concurrent messages of one actor have separate tracks.  Internal."""
        used = self._slots.setdefault(cell.uid, set())
        slot = next(i for i in itertools.count() if i not in used)
        used.add(slot)
        return slot, self._track("actor", cell.uid, slot, cell.path)

    def free_slot(self, message: _Message) -> None:
        """Free the track of a message that has ended.  Internal."""
        self._slots[message.uid].discard(message.slot)

    # ---- writing

    def stop(self) -> None:
        """Stop recording and write the file, including waiting and running messages.  Idempotent.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        with self._lock:
            if not self._running:
                return
            self._running = False
        observers.remove(self)
        spans = self._lanes.stop()
        end = time.monotonic_ns()
        self.untimed = self._lanes.lost
        if self.dropped:
            _log.warning("%s holds the first %d messages; %d more came", self.path, self._limit, self.dropped)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write('{"displayTimeUnit":"ns","otherData":')
                json.dump({"producer": "atomr_native", "dropped": self.dropped, "untimed": self.untimed}, file)
                file.write(',"traceEvents":[\n')
                for number, event in enumerate(self._events(spans, end)):
                    file.write(",\n" if number else "")
                    json.dump(event, file, separators=(",", ":"))
                file.write("\n]}\n")
            part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)
        self._messages = []

    def _events(self, spans: _Spans, end: int) -> Iterator[dict[str, Any]]:
        name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
        yield _name("process_name", _ACTORS, 0, f"actors of {name}")
        for track, text in list(self._tracks.values()):
            yield _name("thread_name", _ACTORS, track, text)
        places: dict[tuple[Core, int], tuple[int, int]] = {}  # process and track of lanes
        processes: dict[str, int] = {}
        there = set()
        for message in self._messages:
            if isinstance(message, _Device):
                there.add((message.core, message.lane, message.ticket))
                if (message.core, message.lane) not in places:
                    process = processes.setdefault(message.device, _ACTORS + 1 + len(processes))
                    places[message.core, message.lane] = process, len(places) + 1
                    yield _name("thread_name", process, len(places), message.lane_name)
        for device, process in processes.items():
            yield _name("process_name", process, 0, f"device {device}")
        spans = {key: span for key, span in spans.items() if key in there}
        for message in self._messages:
            if isinstance(message, _Message):
                yield from self._of_actor(message, end)
            else:
                yield from self._of_device(message, places, spans, end)

    def _at(self, ns: int) -> float:
        return (ns - self._began) / 1000  # the format counts in microseconds

    def _of_actor(self, message: _Message, end: int) -> Iterator[dict[str, Any]]:
        sent, number = self._at(message.sent), message.number
        began = message.begun if message.track >= 0 and message.begun else 0
        if not message.inside:
            yield _send(message.kind, message.sender_track, sent)
        waits = {"cat": "mailbox", "name": f"{message.actor} mailbox", "id": number, "pid": _ACTORS,
                 "tid": message.sender_track}  # fmt: skip
        yield {"ph": "b", "ts": sent, "args": {"message": message.kind, "handled": bool(began)}, **waits}
        yield {"ph": "e", "ts": self._at(began or end), **waits}
        if not began:
            return
        done = message.done or end
        flow = {"cat": "message", "name": message.kind, "id": number, "pid": _ACTORS}
        yield {"ph": "s", "tid": message.sender_track, "ts": sent, **flow}
        yield {"ph": "X", "cat": "message", "name": message.kind, "pid": _ACTORS, "tid": message.track,
               "ts": self._at(began), "dur": (done - began) / 1000,
               "args": {"asked": message.asked, "failed": message.failed, "finished": bool(message.done),
                        "queued_us": (began - message.sent) / 1000}}  # fmt: skip
        yield {"ph": "f", "bp": "e", "tid": message.track, "ts": self._at(began), **flow}

    def _of_device(
        self, message: _Device, places: dict[tuple[Core, int], tuple[int, int]], spans: _Spans, end: int
    ) -> Iterator[dict[str, Any]]:
        process, track = places[message.core, message.lane]
        where = {"name": message.op, "pid": process, "tid": track}
        span = spans.get((message.core, message.lane, message.ticket))
        # A lane may begin before the sender has read the clock.
        sent = self._at(message.sent if span is None else min(message.sent, span[0]))
        if message.done >= 0:
            number = f"{message.device}/{message.lane_name}/{message.ticket}"
            yield {"ph": "b", "cat": "device", "id": number, "ts": sent, **where,
                   "args": {"ticket": message.ticket, "resolved": bool(message.done)}}  # fmt: skip
            yield {"ph": "e", "cat": "device", "id": number, "ts": self._at(message.done or end), **where}
        if span is None:
            if message.done < 0:  # told, and either still waiting or without times
                yield {"ph": "i", "cat": "device", "s": "t", "ts": sent, "args": {"ticket": message.ticket}, **where}
            return
        began = self._at(span[0])
        if not message.inside:
            yield _send(message.op, message.sender_track, sent)
        flow = {"cat": "message", "name": message.op, "id": message.number}
        yield {"ph": "s", "pid": _ACTORS, "tid": message.sender_track, "ts": sent, **flow}
        yield {"ph": "X", "cat": "lane", "ts": began, "dur": _length(span), **where,
               "args": {"ticket": message.ticket, "asked": message.done >= 0,
                        "queued_us": max(0, span[0] - message.sent) / 1000}}  # fmt: skip
        yield {"ph": "f", "bp": "e", "pid": process, "tid": track, "ts": began, **flow}
        for lane, ticket in message.needs:
            before = spans.get((message.core, lane, ticket))
            if before is not None:
                arrow = {"cat": "dependency", "name": "dependency", "id": next(self._numbers), "pid": process}
                last = self._at(before[0]) + _length(before) - 0.001  # still in its slice
                yield {"ph": "s", "tid": places[message.core, lane][1], "ts": last, **arrow}
                yield {"ph": "f", "bp": "e", "tid": track, "ts": began, **arrow}

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _name(what: str, process: int, track: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": text}}


def _send(what: str, track: int, at: float) -> dict[str, Any]:
    """Make a slice for a sender outside any slice, since an arrow begins in a slice."""
    return {"ph": "X", "cat": "send", "name": f"send {what}", "pid": _ACTORS, "tid": track, "ts": at, "dur": 0.1}


def _length(span: tuple[int, int]) -> float:
    return max(1, span[1] - span[0]) / 1000


def trace(path: str | os.PathLike[str], system: System, *, limit: int = 1_000_000) -> Trace:
    """Record the messages of a System from now until `Trace.stop`, or for the duration of a ``with`` block.

    Parameters
    ----------
    path : path
        Path of the file, which is written at the end.
    system : System
        The System whose actors and devices are traced.
    limit : int
        Maximum number of recorded messages, up to 600 bytes each; later ones are only counted.

    Raises
    ------
    InvalidRequest
        If the folder of `path` does not exist, or another argument is invalid.
    """
    check_system(system)
    if type(limit) is not int or limit < 1:
        raise InvalidRequest(f"limit={limit!r}; it must be a positive integer")
    if not isinstance(path, str | os.PathLike):
        raise InvalidRequest(f"path={path!r}; it must be the path of a file to write")
    if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
        raise InvalidRequest(f"path={str(path)!r}; it must be a file in an existing folder")
    return Trace(path, system, limit)
