"""A node: a System, and what other processes may do with it."""

from __future__ import annotations

import logging
import pickle
import threading
import time
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import NO_ROOM, PUT, Envelope
from .._lib.guard import Lock
from .._support.error_text import error_text
from ..actors.answer import Answer, bare, open_answer
from ..dtypes import dtype_name
from ..errors import ActorStopped, AtomrError, InvalidRequest, LibraryError
from ..system import System, state_of
from .arrays import RemoteRef, as_bytes, from_bytes
from .carrier import Caller, NodeDied, NodeUnavailable, Place
from .exports import Exports
from .moving.server import Server
from .network import meet_at
from .peer import Peer
from .rank_messages import Given
from .session import Session
from .wire import pack, pack_error, unpack

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..actors.ref import ActorRef
    from ..arrays.gpu_ref import GpuRef
    from .moving.way import Way
    from .pairs import Sent

__all__ = ["Host"]

_log = logging.getLogger("atomr_native.ray")

_LINGER = 0.001  # seconds that a batch waits for the answers to its own asks
_DIRECT = ("deliver", "control")  # calls that come by connections, too
_SILENCE = 60.0  # seconds without a call after which a process is taken to have ended
_FORGOTTEN = 4096  # links whose calls are refused, should they come late


class Host:
    """The System of a node in one life, with the calls of `Link`.  All methods may be called by any thread.

    Parameters
    ----------
    place : Place
    caller : Caller
        To reach other nodes from here.
    records : dict of str to bytes
        The top-level actors of the node's last life.
    """

    def __init__(self, place: Place, caller: Caller, records: dict[str, bytes]) -> None:
        self.place = place
        self.system = System(**place.options)
        if not caller.shared:
            state_of(self.system).see_all_gpus(place.gpus)
            meet_at(state_of(self.system).environment, caller.address())
        self.arrays = Exports()
        self._lock = Lock()
        self._sessions: dict[str, Session] = {}
        self._forgotten: OrderedDict[str, None] = OrderedDict()  # links that have ended
        self._top: dict[str, Cell] = {}
        self._others: weakref.WeakValueDictionary[str, Cell] = weakref.WeakValueDictionary()
        self._keys: weakref.WeakKeyDictionary[Cell, str] = weakref.WeakKeyDictionary()
        self._closed = False
        self._server: Server | None = None
        try:
            self.peer = Peer(place.cluster, place.node, caller, self.system, self)
            for key, data in records.items():
                try:
                    self._do_spawn(key, data)
                except AtomrError as error:
                    _log.error("actor %s of %s cannot be spawned again: %s", key, place.node, error)
        except BaseException:
            self.system.close(0.0)
            raise

    def close(self, timeout: float) -> None:
        """Close the System, and leave the cluster.  Waits up to `timeout` seconds."""
        self._closed = True
        self.peer.spans.close()
        deadline = time.monotonic() + timeout
        try:
            self.system.close(timeout)
            self.peer.flush(deadline)
        finally:
            self.peer.close()
            self._end_server()

    def abort(self) -> None:
        """End the waits of links, as the death of the process does."""
        self._closed = True
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.close()
        self.peer.spans.close()
        self._end_server()

    def _end_server(self) -> None:
        with self._lock:
            server = self._server
        if server is not None:
            server.close()

    # ---- names of actors

    def key_of(self, cell: Cell) -> str:
        """Return the name of an actor of this node, for other processes."""
        with self._lock:
            key = self._keys.get(cell)
            if key is None:
                key = self._keys[cell] = f"{self.place.incarnation}.{cell.uid}"
                self._others[key] = cell
            return key

    def cell(self, key: str) -> Cell | None:
        """Return the actor of a name; None if it has stopped."""
        found = self._top.get(key) or self._others.get(key)
        return None if found is None or found.state == "stopped" else found

    def give(self, ref: GpuRef) -> tuple[Given, object]:
        """Name an array for the ranks of a communicator; return the name, and its hold."""
        ident, hold = self.arrays.export(ref)
        place = self.place
        return Given(place.node, place.incarnation, ident, ref.shape, ref.layout.dtype_name), hold

    # ---- calls of links

    def session(self, link: str) -> Session | None:
        """Return the state of a link; None for one that has ended, whose batches would run twice."""
        silent: list[str] = []
        with self._lock:
            found = self._sessions.get(link)
            if found is None:
                if link in self._forgotten:
                    return None
                now = time.monotonic()
                silent += (name for name, each in self._sessions.items() if now - each.seen > _SILENCE)
                found = self._sessions[link] = Session(link)
            found.seen = time.monotonic()
        for name in silent:
            self.bye(name)
        return found

    def deliver(
        self, link: str, batch: int, acked: int, items: list[tuple[Any, ...]], posts: list[tuple[Any, ...]]
    ) -> tuple[list[int], list[Any]] | None:
        """Put messages into mailboxes; return the places of those without room, and reports.

        A batch that has come before is not put again.  None, as from all calls of links, if the link has ended.
        """
        session = self.session(link)
        if session is None:
            return None
        asked: set[int] = set()
        with session.delivering:
            if batch > session.batch:
                session.refused = self._put_all(session, items, asked)
                session.batch = batch
                session.undone += posts
            self._operate_all(session)
            refused = session.refused
        return refused, session.linger(asked, acked, _LINGER)

    def collect(self, link: str, acked: int, seconds: float) -> list[Any] | None:
        """Wait for reports, and return those after number `acked`."""
        session = self.session(link)
        if session is None:
            return None
        if session.undone:
            with session.delivering:
                self._operate_all(session)
        return session.collect(acked, seconds)

    def control(self, link: str, number: int, data: bytes, blob: Any) -> tuple[bool, bytes, Any] | None:
        """Run an operation once, also if its call comes again; return (whether it succeeded, value, bytes)."""
        session = self.session(link)
        if session is None:
            return None
        outcome, first = session.outcome(number)
        if first:
            outcome.set_result(self._run(link, data, blob))
        return outcome.result()

    def bye(self, link: str) -> None:
        """Forget a link whose process leaves, or has left."""
        with self._lock:
            session = self._sessions.pop(link, None)
            self._forgotten[link] = None
            while len(self._forgotten) > _FORGOTTEN:
                self._forgotten.popitem(last=False)
        if session is not None:
            session.close()
        self.arrays.drop(link)

    # ---- messages

    def _put_all(self, session: Session, items: list[tuple[Any, ...]], asked: set[int]) -> list[int]:
        refused: list[int] = []
        full: set[str] = set()
        for at, (key, data, sender, number) in enumerate(items):
            if key in full or not self._put(session, key, data, sender, number):
                full.add(key)
                refused.append(at)
            elif number:
                asked.add(number)
        return refused

    def _put(self, session: Session, key: str, data: bytes, sender: Any, number: int) -> bool:
        """Put a message; False if there is no room now."""
        cell = self.cell(key)
        try:
            if cell is None:
                raise ActorStopped(f"the actor has stopped on {self.place.node}")
            if cell.capacity and cell.mailbox.overflow != "drop_oldest" and cell.depth >= cell.capacity:
                return False
            answer = None
            if number:
                answer = open_answer("")
                answer.cell = cell
            message = unpack(data, self.peer)
            envelope = Envelope(message, self.peer.sender(sender), answer)
            result = cell.enqueue(envelope)
            if result == NO_ROOM:
                return False
            if result != PUT:
                raise cell.stopped_error()
            if answer is not None:
                answer.add_done_callback(lambda done: self._answered(session, key, number, done))
        except AtomrError as error:
            packed = pack_error(error, self.peer, key)
            if number:
                session.report("failed", number, packed)
            else:
                session.report("dead", (key, f"a message of {len(data)} bytes"), packed)
        return True

    def _answered(self, session: Session, key: str, number: int, done: Answer) -> None:
        error = done.exception()
        if error is None:
            try:
                session.report("answered", number, pack(done.result(0), self.peer))
                return
            except AtomrError as refused:
                error = refused
        session.report("failed", number, pack_error(error, self.peer, key))

    def _operate_all(self, session: Session) -> None:
        """Do what came besides messages, each by itself; what fails is done at the link's next call."""
        for post in list(session.undone):
            try:
                self._operate(session, *post)
            except Exception:
                _log.exception("%r of another process failed; it is done later", post)
            else:
                session.undone.remove(post)

    def _operate(self, session: Session, name: str, subject: Any, option: Any = None) -> None:
        if name == "release":
            self.arrays.release(subject, session.link)
            return
        if name == "end_span":
            self.peer.spans.end(subject)
            return
        if name == "watch_device":
            threading.Thread(
                target=self._watch_device, args=(session, subject), name="atomr_native-watch", daemon=True
            ).start()
            return
        cell = self.cell(subject)
        if name == "watch":
            if subject not in session.watched:
                if cell is None:
                    session.report("ended", subject, None)
                else:
                    cell.ended.add_done_callback(lambda _: self._ended(session, subject, cell))
                session.watched.add(subject)
        elif name == "begin":
            if cell is None:
                session.report("began", subject, pack_error(ActorStopped("the actor has stopped"), self.peer, subject))
            else:
                cell.begun.add_done_callback(lambda done: self._began(session, subject, done))
        elif cell is not None:
            cell.stop(drain=option)

    def _watch_device(self, session: Session, name: str) -> None:
        """Report the restarts and the end of a device, which starts first if it has not yet."""

        def restarted(generation: int) -> None:
            session.report("device", name, pack(generation, self.peer))

        def ended(error: AtomrError) -> None:
            if not self._closed:
                session.report("device", name, pack_error(error, self.peer, name))

        try:
            device = self.system.device(name)
            device.on_generation(restarted)
            session.undo.append(lambda: device.forget(restarted))
            restarted(device.generation)
            device.on_end(ended)
            session.undo.append(lambda: device.forget(ended))
        except AtomrError as error:
            ended(error)

    def _ended(self, session: Session, key: str, cell: Cell) -> None:
        error = cell.final_error
        if not self._closed:
            session.report("ended", key, None if error is None else pack_error(error, self.peer, key))

    def _began(self, session: Session, key: str, done: Answer) -> None:
        error = done.exception()
        session.report("began", key, None if error is None else pack_error(error, self.peer, key))

    # ---- operations with a result

    def _run(self, link: str, data: bytes, blob: Any) -> tuple[bool, bytes, Any]:
        found: Any = None
        try:
            name, args = unpack(data, self.peer)
            extra = (link,) if name in ("put", "make", "lease", "take") else ()
            value = getattr(self, f"_do_{name}")(*extra, *args, *(() if blob is None else (blob,)))
            if name == "fetch":
                value, found = None, value
            return True, pack(value, self.peer).data, found
        except Exception as error:
            if not isinstance(error, AtomrError):
                _log.exception("an operation of %s failed", self.place.node)
            return False, pack_error(bare(error), self.peer, self.place.node).data, None

    def _do_spawn(self, key: str, data: bytes) -> ActorRef:
        with self._lock:
            found = self._top.get(key)
        if found is not None:
            return found.ref
        kind, args, kwargs, name, supervision, mailbox = unpack(data, self.peer)
        ref = self.system.spawn(kind, *args, name=name, supervision=supervision, mailbox=mailbox, **kwargs)
        cell: Any = ref.cell
        with self._lock:
            self._keys[cell] = key
            self._top[key] = cell
        cell.ended.add_done_callback(lambda _: self._forget(key))
        return ref

    def _forget(self, key: str) -> None:
        if self._closed:
            return
        with self._lock:
            self._top.pop(key, None)

        def forget() -> None:
            try:
                self.peer.caller.directory("forget", self.place.node, key)
            except (NodeDied, NodeUnavailable) as error:
                _log.debug("actor %s could not be forgotten: %s", key, error_text(error))

        threading.Thread(target=forget, name="atomr_native-forget", daemon=True).start()

    def _do_find(self, path: str) -> ActorRef | None:
        return self.system.find(path)

    def _do_stats(self) -> Any:
        return self.system.stats()

    def _do_actor_stats(self, key: str) -> dict[str, Any]:
        cell = self.cell(key)
        if cell is None:
            raise ActorStopped(f"the actor has stopped on {self.place.node}")
        return cell.stats()

    def _do_device(self, name: str) -> str:
        return self.system.device(name).name

    def _do_device_stats(self, name: str) -> Any:
        return self.system.device(name).stats()

    def _do_put(
        self, link: str, name: str, shape: tuple[int, ...], dtype: str, durable: bool, blob: Any
    ) -> tuple[Any, ...]:
        array = from_bytes(blob, shape, dtype)
        return self._exported(link, self.system.device(name).put(array, dtype, durable=durable))

    def _do_make(self, link: str, name: str, how: str, args: tuple[Any, ...], durable: bool) -> tuple[Any, ...]:
        if how not in ("empty", "full"):
            raise InvalidRequest(f"how={how!r}; allowed: 'empty', 'full'")
        return self._exported(link, getattr(self.system.device(name), how)(*args, durable=durable))

    def _exported(self, link: str, ref: Any) -> tuple[Any, ...]:
        return self.place.incarnation, self.arrays.add(ref, link), ref.shape, dtype_name(ref.dtype)

    def _do_way(self) -> Way:
        """Return how the bytes of this node's arrays are reached."""
        with self._lock:
            if self._closed:
                raise ActorStopped(f"{self.place.node} has been closed")
            if self._server is None:
                self._server = Server(self._named, self.peer.caller.address(), self._called)
            return self._server.way

    def _called(self, data: bytes, blob: Any) -> bytes:
        """Serve a call that has come by a connection."""
        try:
            method, args = pickle.loads(data)  # noqa: S301 - it comes from a process of the cluster
            if method not in _DIRECT:
                raise InvalidRequest(f"method={method!r}; allowed: {', '.join(_DIRECT)}")
            return pickle.dumps((True, getattr(self, method)(*args, *(() if blob is None else (blob,)))), 5)
        except Exception as error:
            _log.exception("a call of another process failed")
            return pickle.dumps((False, LibraryError("ray", 0, type(error).__name__, "call", str(error))), 5)

    def _named(self, key: str) -> GpuRef:
        incarnation, ident = map(int, key.split("."))
        found = self.peer.own_array(self.place.node, incarnation, ident)
        assert found is not None  # noqa: S101 - it is this node's own
        return found

    def _do_take(self, link: str, name: str, array: RemoteRef | GpuRef, dtype: Any, durable: bool) -> tuple[Any, ...]:
        device = self.system.device(name)
        if isinstance(array, RemoteRef):
            found = array.to_device(device)
            if durable or dtype is not None:
                found = device.copy(found, dtype=dtype, durable=durable)
        else:
            found = device.copy(array, dtype=dtype, durable=durable)
        return self._exported(link, found)

    def _do_lease(self, link: str, incarnation: int, ident: int) -> None:
        self.peer.own_array(self.place.node, incarnation, ident)
        self.arrays.lease(ident, link)

    def _do_fetch(self, incarnation: int, ident: int) -> Any:
        ref = self.peer.own_array(self.place.node, incarnation, ident)
        return None if ref is None else as_bytes(ref.numpy())

    def _do_settle(self, incarnation: int, ident: int) -> None:
        ref = self.peer.own_array(self.place.node, incarnation, ident)
        if ref is not None:
            ref.wait()

    def _do_send_far(self, incarnation: int, ident: int, stamp: tuple[str, int], new: bool, target: str) -> Sent:
        ref = self.peer.own_array(self.place.node, incarnation, ident)
        assert ref is not None  # noqa: S101 - it is this node's own
        return self.peer.pairs.send(ref, stamp, new, target)

    def _do_free(self, incarnation: int, ident: int) -> None:
        ref = self.peer.own_array(self.place.node, incarnation, ident)
        if ref is not None:
            ref.free()
            self.arrays.forget(ident)
