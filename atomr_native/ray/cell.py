"""Actors of other nodes: a mailbox in this process, emptied by the link to their node."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import BOUNDED, PUT, SHUT, CellBase, Envelope, current_cell
from ..actors._refusal import Refusal
from ..actors.answer import Answer, open_answer
from ..actors.mailbox import Mailbox
from ..actors.ref import ActorRef
from ..errors import ActorStopped, AtomrError, MailboxFull, NodeLost
from . import _peers
from .wire import Packed, pack

if TYPE_CHECKING:
    from ..actors.tree import ActorTree
    from .link import Link

__all__ = ["RemoteActorRef", "RemoteCell", "resolve_actor"]


class RemoteCell(Refusal, CellBase):
    """An actor of another node, as this process sees it.

    Its mailbox has the size and the policy of the actor's own, so a sender waits, is rejected or displaces the oldest
    message here as it would there.

    Attributes
    ----------
    key : str
        Its name within the node; that of a top-level actor of the cluster begins with ``"a"``, and outlives the node.
    held : deque of Envelope
        Messages for which the actor had no room yet; before those of the mailbox.
    """

    ref: ActorRef

    def __init__(
        self,
        capacity: int,  # noqa: ARG002 - the native part's
        spin_us: int,  # noqa: ARG002
        evicts: bool,  # noqa: ARG002
        *,
        link: Link,
        tree: ActorTree,
        key: str,
        path: str,
        mailbox: Mailbox,
    ) -> None:
        self.link, self.tree, self.key, self.path, self.mailbox = link, tree, key, path, mailbox
        self.name = path.rpartition("/")[2]
        self.uid = f"{link.node}/{key}"
        self.state = "running"
        self.final_error: BaseException | None = None
        self.rooms: deque[Callable[[], object]] = deque()
        self.held: deque[Envelope] = deque()
        self.retry_at = self.pause = 0.0
        self.asked = 0  # asks that its node has
        self.stops = False  # it is to stop after the messages that are here
        self.watchers: dict[Any, None] = {}
        self.ended = open_answer(f"the end of {path}")
        self._begun: Answer | None = None
        self.ref = RemoteActorRef.__new__(RemoteActorRef)
        self.ref.cell = self  # type: ignore[assignment]  # it has the parts of a Cell that references use

    @property
    def begun(self) -> Answer:
        """Resolved when it has started; asks its node."""
        if self._begun is None:
            self._begun = open_answer(f"the start of {self.path}")
            if self.state == "stopped":
                self._begun.fail(self.stopped_error())
            else:
                self.link.post(("begin", self.key))
        return self._begun

    @property
    def durable(self) -> bool:
        """Whether the node's next life has it again."""
        return self.key.startswith("a")

    @property
    def load(self) -> int:
        """Number of messages that wait in this process, and of asks without an answer."""
        return self.depth + len(self.held) + self.asked

    def alive_here(self) -> None:
        """Raise `ActorStopped` in a forked child."""
        if self.abandoned:
            raise ActorStopped("this cluster was joined before a fork; join it in the child process")

    def enqueue(self, envelope: Envelope, bound: int = BOUNDED) -> int:
        """Put a message, as bytes; the link sends it."""
        message = envelope.message
        if type(message) is not Packed:
            envelope.message = pack(message, self.link.peer)
        result = super().enqueue(envelope, bound)
        if result == PUT:
            self.link.notify(self)
        elif result == SHUT:
            envelope.message = message  # a pool chooses another actor by it
        return result

    def enqueue_system(self, message: tuple[Any, ...]) -> bool:
        """Register or remove a watcher; other operations are the node's."""
        with self.link.lock:
            if self.state == "stopped":
                return False
            if message[0] == "watch":
                self.watchers[message[1]] = None
            elif message[0] == "unwatch":
                self.watchers.pop(message[1], None)
        self.link.know(self)
        return True

    def stop(self, *, drain: bool) -> None:
        """Stop the actor, after the messages sent before or at once."""
        self.alive_here()
        self.shut(False)
        if drain:
            self.stops = True
            self.link.notify(self)
            return
        self.discard(self.stopped_error())
        self.link.post(("stop", self.key, False))

    def ends(self, error: BaseException | None) -> None:
        """Note that it has stopped for good, and tell its watchers."""
        with self.link.lock:
            if self.state == "stopped":
                return
            self.state = "stopped"
            self.final_error = error
            watchers, self.watchers = list(self.watchers), {}
        self.shut(True)
        self.discard(self.stopped_error())
        for watcher in watchers:
            watcher.enqueue_system(("died", self.ref))
        if self._begun is not None:
            self._begun.fail(self.stopped_error())
        self.ended.resolve(None)

    def began(self, error: BaseException | None) -> None:
        """Note that it has started, or will not."""
        if error is None:
            self.begun.resolve(None)
        else:
            self.begun.fail(error)

    def discard(self, error: AtomrError) -> None:
        """Answer the messages that wait here with an error; tells become dead letters."""
        while self.held:
            self.give_up(self.held.popleft(), error)
        while (item := self._take()) is not None:
            if isinstance(item, Envelope):
                self.give_up(item, error)

    def give_up(self, envelope: Envelope, error: AtomrError) -> bool:
        """Fail an ask; a tell becomes a dead letter, unless its sender gets the error."""
        if envelope.answer is None and not isinstance(error, MailboxFull):
            self.tree.dead_letter(self.path, envelope, error)
            return False
        return super().give_up(envelope, error)

    def stopped_error(self) -> Any:
        """Return why it takes no messages."""
        if isinstance(self.final_error, NodeLost):
            return NodeLost(f"actor {self.path}: {self.final_error}", self.link.node)
        return ActorStopped(f"actor {self.path} has stopped")

    def stats(self) -> dict[str, Any]:
        """Return the counters of the actor, from its node.  Waits."""
        found: dict[str, Any] = self.link.control("actor_stats", self.key)
        return found


class RemoteActorRef(ActorRef):
    """The address of an actor on another node; used as any `ActorRef`."""

    __slots__ = ()

    def tell(self, message: object, *, sender: Any = None) -> bool:
        """Send a message; see `ActorRef`."""
        cell: Any = self.cell
        envelope = Envelope(message, _sender() if sender is None else sender)
        result = cell.enqueue(envelope)
        return bool(result == PUT or cell.refused(envelope, result))

    def _ask(self, kind: type[Any], message: object, timeout: float | None, sender: Any) -> Any:  # noqa: ARG002
        answer = open_answer("")
        if timeout is not None:
            answer.deadline = time.monotonic() + timeout
        cell: Any = self.cell
        answer.cell = cell
        envelope = Envelope(message, _sender() if sender is None else sender, answer)
        result = cell.enqueue(envelope)
        if result != PUT:
            cell.refused(envelope, result)
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        cell: Any = self.cell
        box = cell.mailbox
        return resolve_actor, (cell.link.peer.cluster, cell.link.node, cell.key, cell.path, box.capacity, box.overflow)


def _sender() -> Any:
    cell = current_cell()
    return None if cell is None else cell.ref


def resolve_actor(cluster: str, node: str, key: str, path: str, capacity: int | None, overflow: Any) -> ActorRef:
    """Return the address of an actor in this process, which may be its node's."""
    return _peers.current(cluster).actor(node, key, path, Mailbox(capacity, overflow))
