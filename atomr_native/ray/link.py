"""The way from this process to one node: messages in batches, answers, and the loss of the node.

One batch is on its way at a time, and it has a number that the node remembers: so a batch may be sent again when
nothing is known of it, and is run once.  Calls go by a connection of the two processes where there is one, and through
the engine otherwise, whose own queue holds three calls of a link at most.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import Envelope
from .._lib.guard import Lock, shielded_service
from ..actors.answer import bare
from ..errors import AtomrError, InvalidRequest, LibraryError, NodeLost
from .calls import Calls, Life, lasting
from .carrier import NodeDied, NodeUnavailable
from .device_life import DeviceLife
from .directory import LOST, UP
from .moving.client import Broken
from .wire import Packed, pack, unpack

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .cell import RemoteCell
    from .peer import Peer

__all__ = ["Link"]

_log = logging.getLogger("atomr_native.ray")

BATCH = 256  # messages in one call
POLL = 5.0  # seconds that one call waits for answers
_AGAIN = 0.02  # seconds before a call without a result is made again
_LONGEST = 1.0  # seconds before a call that fails again and again is made once more
_NO_ROOM = (0.001, 0.05)  # seconds before a full mailbox is tried again: the first pause, and the longest


class Link:
    """Messages to one node, in order for each actor; calls, and the node's reports."""

    def __init__(self, peer: Peer, node: str) -> None:
        self.peer, self.node = peer, node
        #: Guards everything here; reentrant, since finalizers post.  An interrupt at the beginning of a block of the
        #: condition, which is Python, would keep it for ever.
        self.lock = threading.RLock()
        self.change = threading.Condition(self.lock)
        self.life: Life | None = None
        self.lost: NodeLost | None = None
        self.cells: weakref.WeakValueDictionary[str, RemoteCell] = weakref.WeakValueDictionary()
        self._watched: dict[str, RemoteCell] = {}  # cells with watchers, which must not be collected
        self._ready: dict[RemoteCell, None] = {}
        self._posts: deque[tuple[Any, ...]] = deque()
        self._asks: dict[int, tuple[Any, RemoteCell, Packed]] = {}
        self._devices: dict[str, DeviceLife] = {}  # those that are watched here
        self._numbers = itertools.count(1)
        self.calls = Calls(peer, node, self._numbers)
        self._last = 0
        self._events = threading.RLock()
        self._closed = False
        self._busy = False
        self._beginning = Lock()
        self._threads: list[threading.Thread] = []

    # ---- from any thread

    def notify(self, cell: RemoteCell) -> None:
        """Have the messages of an actor sent."""
        with self.lock:
            self._ready[cell] = None
            self._start()
            self.change.notify_all()

    def know(self, cell: RemoteCell) -> None:
        """Have the node report the end of an actor; keep its cell while it is watched."""
        with self.lock:
            if cell.watchers:
                self._watched[cell.key] = cell
            else:
                self._watched.pop(cell.key, None)
            life = self.life
            if life is None or cell.key not in life.known:
                self._posts.append(("watch", cell.key))
                if life is not None:
                    life.known.add(cell.key)
                self._start()
                self.change.notify_all()

    def watch_device(self, name: str) -> DeviceLife:
        """Return the callbacks of a device of the node, which reports its restarts from now on."""
        with self.lock:
            found = self._devices.get(name)
            if found is not None:
                return found
            found = self._devices[name] = DeviceLife(f"{self.node}/{name}", self._last, self.peer.events.post)
            lost = self.lost
        if lost is None:
            self.post(("watch_device", name))
        else:
            found.ended(lost)
        return found

    def post(self, operation: tuple[Any, ...]) -> None:
        """Have the node do something without a result."""
        with self.lock:
            if self.lost is None and not self._closed:
                self._posts.append(operation)
                self._start()
                self.change.notify_all()

    def control(self, name: str, *args: Any, blob: Any = None) -> Any:
        """Call an operation of the node, and return its value.  Waits, also for a node that restarts.

        Raises
        ------
        NodeLost
            If the node is lost, before or meanwhile.
        AtomrError
            The operation's own.
        """
        packed = pack((name, args), self.peer)
        life = self.connect(self.peer.tree.timeout)
        with self.lock:
            number = next(self._numbers)
        while True:
            try:
                call = self.calls.by_engine if name == "fetch" else self.calls.make
                good, data, found = call(life, "control", life.id, number, packed.data, blob)
                break
            except NodeUnavailable:
                time.sleep(_AGAIN)
            except NodeDied:
                self.down(life)
                raise self._lost_error(True, life=life) from None
        value = unpack(data, self.peer)
        if not good:
            raise value
        return value if found is None else (value, found)

    def bring(
        self, incarnation: int, ident: int, device: Device | None, out: GpuRef | None = None,
        part: tuple[int, int] | None = None,
    ) -> Any:  # fmt: skip
        """Return a copy of an array of the node, by the shortest way; None if only the engine reaches the node.

        `out` and `part` as for `Client.take`.  Waits for its last writer, and for the bytes.

        Raises
        ------
        NodeLost
            If the node is lost.
        AtomrError
            The array's own.
        """
        life = self.connect(self.peer.tree.timeout)
        if life.incarnation != incarnation or not life.direct:
            return None
        try:
            way = self.calls.way(life)
            return None if way is None else self.peer.moves.take(way, f"{incarnation}.{ident}", device, out, part)
        except Broken as error:
            _log.debug("bytes of %s go through the engine: %s", self.node, error)
            life.direct = life.direct and not error.never
        except NodeUnavailable:
            _log.debug("the way to %s is not known yet", self.node)
        except NodeDied:
            self.down(life)
            raise self._lost_error(True, life=life) from None
        return None

    def connect(self, timeout: float | None = None) -> Life:
        """Return the node's present life; wait for it up to `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        after = 0
        while True:
            with self.lock:
                if self.life is not None:
                    return self.life
                if self.lost is not None:
                    raise self._lost_error(False)
                if self._closed:
                    raise InvalidRequest(f"cluster {self.peer.cluster!r} has been closed in this process")
                after = self._last
            try:
                state, incarnation, handle = self.peer.caller.directory("wait", self.node, after, 0.5)
            except NodeDied:
                self._lose("its cluster has ended")
                continue
            except NodeUnavailable:
                continue
            if state == LOST:
                self._lose("it is not restarted any more")
            elif state == UP:
                self._open(Life(incarnation, handle))
            elif end is not None and time.monotonic() > end:
                raise self._lost_error(False, f"it was not back within {timeout:g} s")

    def flush(self, deadline: float) -> None:
        """Wait until what was sent here has left, or the deadline is over."""
        with self.lock:
            while (self._ready or self._posts or self._busy) and self.lost is None and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self.change.wait(min(left, 0.1))

    def gather(self) -> None:
        """Take the answers that the node has now."""
        life = self.life
        while life is not None:
            try:
                self.take(life, self.calls.by_engine(life, "collect", life.id, life.acked, 0.0))
                return
            except NodeUnavailable:
                time.sleep(_AGAIN)
            except NodeDied:
                self.down(life)
                return

    def close(self) -> None:
        """End the threads; messages that have not left fail."""
        with self.lock:
            life, already, self._closed = self.life, self._closed, True
            threads = list(self._threads)
            self.change.notify_all()
        if already:
            return
        if life is not None:
            with contextlib.suppress(NodeDied, NodeUnavailable):
                self.peer.caller.call(life.handle, "bye", life.id)
        self._lose("this process has closed the cluster")
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(2.0)

    # ---- lives

    def _open(self, life: Life) -> None:
        with self.lock:
            if self.life is not None or self.lost is not None or life.incarnation <= self._last:
                return
            self.life, self._last = life, life.incarnation
            for key, cell in list(self.cells.items()):
                if cell.state != "stopped":
                    life.known.add(key)
                    self._posts.append(("watch", key))
            self._posts = deque(each for each in self._posts if each[0] != "watch_device")
            self._posts.extend(("watch_device", name) for name in self._devices)
            self._start()
            self.change.notify_all()

    def down(self, life: Life) -> None:
        """Note the end of a life: what was on its way is answered."""
        with self.lock:
            if self.life is not life:
                return
            self.life = None
            if life.forgotten:
                self._last = life.incarnation - 1  # it may be opened again, under another id
            asks, self._asks = self._asks, {}
            for _, cell, _ in asks.values():
                cell.asked = 0
            self._posts = deque(lasting(self._posts))
            gone = [cell for cell in self.cells.values() if not cell.durable]
            self.change.notify_all()
        if life.way is not None:
            self.peer.moves.forget(life.way)
        for answer, _, _ in asks.values():
            answer.fail(self._lost_error(True, life=life))
        for cell in gone:
            cell.ends(self._lost_error(False, life=life))

    def _lose(self, why: str) -> None:
        with self.lock:
            if self.lost is not None:
                return
            self.lost = NodeLost(f"{self.node} is lost: {why}", self.node)
            life, self.life = self.life, None
            asks, self._asks = self._asks, {}
            cells = {*self.cells.values(), *self._ready, *self._watched.values()}
            devices = list(self._devices.values())
            self._ready.clear()
            self._posts.clear()
            self._watched.clear()
            self.change.notify_all()
        if life is not None and life.way is not None:
            self.peer.moves.forget(life.way)
        for answer, _, _ in asks.values():
            answer.fail(self._lost_error(life is not None))
        for cell in cells:
            cell.ends(self.lost)
        for device in devices:
            device.ended(self.lost)

    def _lost_error(self, may_have_run: bool, why: str = "", *, life: Life | None = None) -> NodeLost:
        if self.lost is not None:
            return NodeLost(str(self.lost), self.node, may_have_run)
        forgotten = life is not None and life.forgotten
        text = f"{self.node} {'did not hear this process for long, and forgot it' if forgotten else 'was lost'}"
        if may_have_run:
            text += " while it had this message, which may have run or not"
        elif why:
            text += f": {why}"
        return NodeLost(text, self.node, may_have_run)

    # ---- the threads

    def _start(self) -> None:
        if len(self._threads) < 2 and not self._closed and not self._beginning.locked():
            self._begin()

    @shielded_service
    def _begin(self) -> None:
        """Start the threads, each once."""
        with self._beginning:
            for body, name in ((self._pump, "send"), (self._collect, "collect"))[len(self._threads) :]:
                thread = threading.Thread(target=body, name=f"atomr_native-{name}-{self.node}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _pump(self) -> None:
        while True:
            try:
                self.connect()
            except AtomrError:
                return
            with self.lock:
                while self.life is not None and not self._closed and not self._posts:
                    now = time.monotonic()
                    pauses = [cell.retry_at - now for cell in self._ready]
                    if pauses and min(pauses) <= 0:
                        break
                    self.change.wait(min(pauses) if pauses else None)
                if self._closed:
                    return
                if self.life is None:
                    continue
                life, batch, posts = self.life, self._gather(), list(self._posts)
                self._posts.clear()
                self._busy = True
                life.batch += 1
            try:
                self._send(life, batch, posts)
            finally:
                del batch, posts  # which hold arrays of others
                with self.lock:
                    self._busy = False
                    self.change.notify_all()

    def _gather(self) -> list[tuple[RemoteCell, Envelope]]:
        """Take messages of the actors that have some, each within its share."""
        now = time.monotonic()
        batch: list[tuple[RemoteCell, Envelope]] = []
        for cell in list(self._ready):
            if cell.retry_at > now:
                continue
            share = min(cell.capacity or BATCH, BATCH - len(batch))
            del self._ready[cell]
            while share > 0:
                item = cell.held.popleft() if cell.held else cell._take()  # noqa: SLF001 - as the actor's thread does
                if item is None:
                    break
                if isinstance(item, Envelope):
                    batch.append((cell, item))
                    share -= 1
            if cell.depth or cell.held or cell.stops:
                self._ready[cell] = None  # behind the others; one that stops is looked at again below
        return batch

    def _send(self, life: Life, batch: list[tuple[RemoteCell, Envelope]], posts: list[tuple[Any, ...]]) -> None:
        items = [self._item(*each) for each in batch]
        pause = _AGAIN
        while True:
            try:
                refused, events = self.calls.make(life, "deliver", life.id, life.batch, life.acked, items, posts)
                break
            except NodeUnavailable:
                if self._closed:
                    return
                time.sleep(_AGAIN)
            except NodeDied:
                for cell, envelope in batch:
                    if envelope.answer is None:
                        cell.give_up(envelope, self._lost_error(True, life=life))
                self.down(life)
                self._keep(posts)
                return
            except Exception as error:
                self._fail(batch, items, error)
                if not posts or not self._pause(life, pause):
                    self._keep(posts)
                    return
                # The rest of the batch, under its number: the node may have it already.
                batch.clear()
                items, pause = [], min(2 * pause, _LONGEST)
        self._sent(batch, items, refused if batch else [])
        self.take(life, events)

    def _item(self, cell: RemoteCell, envelope: Envelope) -> tuple[Any, ...]:
        """Return a message as it goes to the node; note its ask."""
        number = 0
        packed = envelope.message
        if envelope.answer is not None:
            with self.lock:
                number = next(self._numbers)
                self._asks[number] = (envelope.answer, cell, packed)
                cell.asked += 1
        return cell.key, packed.data, self.peer.address_of(envelope.sender), number

    def _fail(self, batch: list[Any], items: list[Any], error: Exception) -> None:
        """Answer the messages of a batch with an unknown error."""
        _log.exception("a batch of %d messages to %s failed", len(batch), self.node)
        failure = LibraryError("ray", 0, type(error).__name__, f"messages to {self.node}", str(error))
        with self.lock:
            for cell, item in zip((cell for cell, _ in batch), items, strict=True):
                if self._asks.pop(item[3], None) is not None:
                    cell.asked -= 1
        for cell, envelope in batch:
            cell.give_up(envelope, failure)

    def _pause(self, life: Life, seconds: float) -> bool:
        """Wait; return False as soon as the life has ended, or the link is closed."""
        with self.lock:
            return not self.change.wait_for(lambda: self.life is not life, seconds)

    def _keep(self, posts: list[tuple[Any, ...]]) -> None:
        """Leave to the node's next life what one that has ended may not have done."""
        with self.lock:
            if self.lost is None:
                self._posts.extendleft(reversed(lasting(posts)))

    def _sent(self, batch: list[Any], items: list[Any], refused: list[int]) -> None:
        """Keep what had no room; stop the actors that are to stop."""
        with self.lock:
            for at in reversed(refused):
                cell, envelope = batch[at]
                if self._asks.pop(items[at][3], None) is not None:
                    cell.asked -= 1
                cell.held.appendleft(envelope)
            full = {batch[at][0] for at in refused}
            for cell in {cell for cell, _ in batch} | {cell for cell in self._ready if cell.stops}:
                if cell in full:
                    cell.pause = min(max(2 * cell.pause, _NO_ROOM[0]), _NO_ROOM[1])
                    cell.retry_at = time.monotonic() + cell.pause
                    self._ready[cell] = None
                    continue
                cell.pause = cell.retry_at = 0.0
                if cell.stops and not cell.held and not cell.depth:
                    cell.stops = False
                    self._ready.pop(cell, None)
                    self._posts.append(("stop", cell.key, True))

    def _collect(self) -> None:
        while True:
            with self.lock:
                while self.life is None and self.lost is None and not self._closed:
                    self.change.wait()
                if self._closed or self.lost is not None:
                    return
                life = self.life
            if life is None:
                continue
            try:
                events = self.calls.by_engine(life, "collect", life.id, life.acked, POLL)
            except NodeUnavailable:
                time.sleep(_AGAIN)
            except NodeDied:
                self.down(life)
            except Exception:
                _log.exception("answers of %s could not be read", self.node)
                time.sleep(_AGAIN)
            else:
                self.take(life, events)

    def take(self, life: Life, events: list[tuple[int, str, Any, bytes | None]]) -> None:
        """Act on what the node reports, each report once."""
        with self._events:
            for number, kind, name, data in events:
                if number <= life.acked or self.life is not life:
                    continue
                life.acked = number
                value: Any
                try:
                    value = None if data is None else unpack(data, self.peer)
                except AtomrError as error:  # of an answer that cannot be unpickled here
                    kind, value = ("failed" if kind == "answered" else kind), bare(error)
                self._act(life, kind, name, value)

    def _act(self, life: Life, kind: str, name: Any, value: Any) -> None:
        if kind == "device":
            device = self._devices.get(name)
            if device is not None:
                device.report(life.incarnation, value)
        elif kind in ("answered", "failed"):
            with self.lock:
                found = self._asks.pop(name, None)
                if found is not None:
                    found[1].asked -= 1
            if found is not None and kind == "answered":
                found[0].resolve(value)
            elif found is not None:
                found[0].fail(value)
        elif kind == "dead":
            cell, text = self.cells.get(name[0]), name[1]
            path = cell.path if cell is not None else name[0]
            self.peer.tree.dead_letter(path, Envelope(text), value)
        else:
            cell = self.cells.get(name)
            if cell is not None and kind == "ended":
                cell.ends(value)
            elif cell is not None:
                cell.began(value)
            if kind == "ended":
                self._watched.pop(name, None)
