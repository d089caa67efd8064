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
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import current_cell
from ..errors import InvalidRequest
from . import observers
from .snapshot import check_system

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..plan import Plan
    from ..reply import Reply
    from ..system import System

__all__ = ["Trace", "trace"]

_log = logging.getLogger("atomr_native.observe")
_ACTORS = 1  # number of the process of actors in the trace; devices come after it


class _Message:
    """One message to an actor: when it was sent, begun, done."""

    __slots__ = ("actor", "asked", "begun", "done", "failed", "inside", "kind", "number", "owner", "sender_track",
                 "sent", "slot", "track", "uid")  # fmt: skip

    def __init__(self, owner: Trace, number: int, cell: Cell, envelope: Any, track: int, inside: bool) -> None:
        self.owner = owner
        self.number = number
        self.actor, self.uid = cell.path, cell.uid  # not the cell, which may stop and go
        self.kind = type(envelope.message).__name__
        self.asked = envelope.answer is not None
        self.sender_track, self.inside = track, inside
        self.track = self.slot = -1
        self.begun = self.done = 0
        self.failed = False
        self.sent = time.monotonic_ns()

    def begin(self, cell: Cell) -> None:
        self.slot, self.track = self.owner._enter(cell)
        self.begun = time.monotonic_ns()

    def leave(self) -> None:
        pass

    def end(self, failed: bool) -> None:
        self.done, self.failed = time.monotonic_ns(), failed
        self.owner._exit(self)


class _Device:
    """One message to a device: when it was sent, and, if it was asked, resolved."""

    __slots__ = ("device", "done", "lane", "op", "sent", "ticket")

    def __init__(self, plan: Plan, ticket: int) -> None:
        self.device = plan.device.name
        self.lane = plan.core.lane_names.get(plan.lane, str(plan.lane))
        self.op = plan.spec.op
        self.ticket = ticket
        self.sent, self.done = time.monotonic_ns(), 0

    def resolved(self) -> None:
        self.done = time.monotonic_ns()


class Trace:
    """A recording of a System's messages; made by `trace`, a context manager.

    Attributes
    ----------
    path : pathlib.Path
        Where `stop` writes.
    dropped : int
        Messages that came after `limit`, and are not in it.
    """

    def __init__(self, path: str | os.PathLike[str], system: System, limit: int) -> None:
        self.path = Path(path)
        self._system = system
        self._limit = limit
        self._messages: list[_Message | _Device] = []
        self._numbers = itertools.count(1)
        self._tracks: dict[tuple[str, int, int], tuple[int, str]] = {}
        self._slots: dict[int, set[int]] = {}  # of each actor, which of its tracks are in use; its thread's
        self._lock = threading.Lock()
        self._running = True
        self.dropped = 0
        self._began = time.monotonic_ns()
        observers.add(self)

    # ---- while it runs

    def sent(self, cell: Cell, envelope: Any) -> _Message | None:
        """Note a message to an actor; see `observers.Observer`."""
        if cell.tree.system is not self._system or not self._room():
            return None
        here: Any = current_cell()
        inside = False
        if here is None:
            thread = threading.current_thread()
            track = self._track("thread", threading.get_ident(), 0, thread.name)
        else:
            at_work = here.at_work()
            mark = None if at_work is None or at_work.mark is None else at_work.mark.of(_Message, self)
            inside = mark is not None
            track = self._track("actor", here.uid, 0, here.path) if mark is None else mark.track
        made = _Message(self, next(self._numbers), cell, envelope, track, inside)
        self._messages.append(made)
        return made

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        """Note a message to a device; see `observers.Observer`."""
        if plan.device.system is not self._system or not self._room():
            return
        made = _Device(plan, ticket)
        self._messages.append(made)
        if reply is None:
            made.done = -1
        else:
            observers.when_resolved(plan, ticket, made.resolved)

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

    def _enter(self, cell: Cell) -> tuple[int, int]:
        """Give a message that begins a track: with several at work in one actor, each has its own."""
        used = self._slots.setdefault(cell.uid, set())
        slot = next(i for i in itertools.count() if i not in used)
        used.add(slot)
        return slot, self._track("actor", cell.uid, slot, cell.path)

    def _exit(self, message: _Message) -> None:
        self._slots[message.uid].discard(message.slot)

    # ---- at the end

    def stop(self) -> None:
        """End the recording and write the file; what is still waiting or at work is in it as such.  Idempotent.

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
        end = time.monotonic_ns()
        if self.dropped:
            _log.warning("%s holds the first %d messages; %d more came", self.path, self._limit, self.dropped)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write('{"displayTimeUnit":"ns","otherData":')
                json.dump({"producer": "atomr_native", "dropped": self.dropped}, file)
                file.write(',"traceEvents":[\n')
                for number, event in enumerate(self._events(end)):
                    file.write(",\n" if number else "")
                    json.dump(event, file, separators=(",", ":"))
                file.write("\n]}\n")
            part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)
        self._messages = []

    def _events(self, end: int) -> Iterator[dict[str, Any]]:
        name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
        yield _name("process_name", _ACTORS, 0, f"actors of {name}")
        for track, text in list(self._tracks.values()):
            yield _name("thread_name", _ACTORS, track, text)
        lanes: dict[str, tuple[int, dict[str, int]]] = {}
        for message in self._messages:
            if isinstance(message, _Message):
                yield from self._of_actor(message, end)
                continue
            if message.device not in lanes:
                lanes[message.device] = (_ACTORS + 1 + len(lanes), {})
                yield _name("process_name", lanes[message.device][0], 0, f"device {message.device}")
            process, tracks = lanes[message.device]
            if message.lane not in tracks:
                tracks[message.lane] = len(tracks) + 1
                yield _name("thread_name", process, tracks[message.lane], message.lane)
            yield from self._of_device(message, process, tracks[message.lane], end)

    def _at(self, ns: int) -> float:
        return (ns - self._began) / 1000  # the format counts in microseconds

    def _of_actor(self, message: _Message, end: int) -> Iterator[dict[str, Any]]:
        sent, number = self._at(message.sent), message.number
        began = message.begun if message.track >= 0 and message.begun else 0
        if not message.inside:  # a flow begins in a slice
            yield {"ph": "X", "cat": "send", "name": f"send {message.kind}", "pid": _ACTORS,
                   "tid": message.sender_track, "ts": sent, "dur": 0.1}  # fmt: skip
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

    def _of_device(self, message: _Device, process: int, track: int, end: int) -> Iterator[dict[str, Any]]:
        where = {"cat": "device", "name": message.op, "pid": process, "tid": track}
        sent = self._at(message.sent)
        if message.done < 0:  # told: nobody is told when it is done
            yield {"ph": "i", "s": "t", "ts": sent, "args": {"ticket": message.ticket}, **where}
            return
        number = f"{message.device}/{message.lane}/{message.ticket}"
        arguments = {"ticket": message.ticket, "resolved": bool(message.done)}
        yield {"ph": "b", "id": number, "ts": sent, "args": arguments, **where}
        yield {"ph": "e", "id": number, "ts": self._at(message.done or end), **where}

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _name(what: str, process: int, track: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": text}}


def trace(path: str | os.PathLike[str], system: System, *, limit: int = 1_000_000) -> Trace:
    """Record the messages of a System from now until `Trace.stop`, or for the length of a ``with`` block.

    Parameters
    ----------
    path : path
        Of the file, which is written at the end.
    system : System
        Whose messages: to its actors, and to its devices.
    limit : int
        Messages that are kept, in about 300 bytes each; later ones are only counted.

    Raises
    ------
    InvalidRequest
        If `path` is in no folder, or another argument makes no sense.
    """
    check_system(system)
    if type(limit) is not int or limit < 1:
        raise InvalidRequest(f"limit={limit!r}; it must be an integer from 1")
    if not isinstance(path, str | os.PathLike):
        raise InvalidRequest(f"path={path!r}; it must be the path of a file to write")
    if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
        raise InvalidRequest(f"path={str(path)!r}; it must be a file in a folder that exists")
    return Trace(path, system, limit)
