"""Actors of tests: they keep received messages until the test reads them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._support.timeouts import seconds_of
from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.mailbox import Mailbox
from ..actors.messages import Terminated
from ..actors.ref import ActorRef
from ..errors import InvalidRequest
from ..system import state_of

if TYPE_CHECKING:
    from ..system import System

__all__ = ["Probe"]


class _Recorder(Actor):
    def __init__(self, note: Callable[[Any, ActorRef | None, ReplyTo], None]) -> None:
        self._note = note

    def receive(self, message: Any) -> None:
        if isinstance(message, _Watch):
            self.context.watch(message.ref)
            return
        self._note(message, self.context.sender, self.context.reply_later())


class _Watch:
    def __init__(self, ref: ActorRef) -> None:
        self.ref = ref


class Probe:
    """An actor played by the test: pass on `ref`, then expect messages, and answer them.

    Parameters
    ----------
    system : System
        The System of the actor.
    name : str, optional
        Name of the actor.
    timeout : float
        Default seconds that each `expect` waits.
    """

    def __init__(self, system: System, name: str | None = None, *, timeout: float = 5.0) -> None:
        self._change = threading.Condition()
        self._messages: deque[tuple[Any, ActorRef | None, ReplyTo]] = deque()
        self.timeout = seconds_of(timeout, limited=True)
        self._stepper = state_of(system).stepper
        self._last: tuple[Any, ActorRef | None, ReplyTo] | None = None
        self.ref = system.spawn(_Recorder, self._note, name=name, mailbox=Mailbox(None))

    def _note(self, message: Any, sender: ActorRef | None, reply_to: ReplyTo) -> None:
        with self._change:
            self._messages.append((message, sender, reply_to))
            self._change.notify_all()

    def expect(
        self, what: object = None, *, matching: Callable[[Any], object] | None = None, timeout: float | None = None
    ) -> Any:
        """Wait for the next message, check it, and return it.

        Parameters
        ----------
        what : type or object, optional
            The required type, or a value that it must equal.
        matching : callable, optional
            A predicate that must be true for it.
        timeout : float, optional
            Seconds.

        Raises
        ------
        AssertionError
            If none comes, or a different one.
        """
        limit = self.timeout if timeout is None else seconds_of(timeout, limited=True)
        if not self._await(limit):
            raise AssertionError(f"{self.ref.path} has got no message within {limit} s; expected {what or 'one'}")
        with self._change:
            self._last = self._messages.popleft()
        message = self._last[0]
        if isinstance(what, type):
            if not isinstance(message, what):
                raise AssertionError(f"{self.ref.path} expected a {what.__name__}, and got {message!r}")
        elif what is not None and message != what:
            raise AssertionError(f"{self.ref.path} expected {what!r}, and got {message!r}")
        if matching is not None and not matching(message):
            raise AssertionError(f"{self.ref.path} got {message!r}, which does not match")
        return message

    def expect_no_message(self, within: float = 0.1) -> None:
        """Check that no message comes; under a deterministic scheduler, that none is pending.

        Raises
        ------
        AssertionError
            If one comes.
        """
        if self._await(seconds_of(within, "within", limited=True)):
            raise AssertionError(f"{self.ref.path} expected no message, and got {self._messages[0][0]!r}")

    def expect_terminated(self, ref: ActorRef, *, timeout: float | None = None) -> Terminated:
        """Wait for the `Terminated` of a watched actor, as the next message."""
        message: Terminated = self.expect(Terminated, matching=lambda m: m.ref == ref, timeout=timeout)
        return message

    def watch(self, ref: ActorRef) -> None:
        """Watch an actor; its `Terminated` comes to this probe."""
        self.ref.tell(_Watch(ref))

    def tell(self, ref: ActorRef, message: object) -> None:
        """Send a message as this probe, so it gets the answers."""
        ref.tell(message, sender=self.ref)

    @property
    def sender(self) -> ActorRef | None:
        """The sender of the last expected message."""
        return self._expected()[1]

    def reply(self, value: object = None) -> bool:
        """Answer the last expected message; see `Context.reply`."""
        _, sender, reply_to = self._expected()
        if reply_to.wanted:
            return reply_to.reply(value)
        return sender is not None and sender.tell(value, sender=self.ref)

    def fail(self, error: BaseException) -> bool:
        """Answer the last expected message with an error."""
        return self._expected()[2].fail(error)

    def _expected(self) -> tuple[Any, ActorRef | None, ReplyTo]:
        if self._last is None:
            raise InvalidRequest(f"{self.ref.path} has expected no message yet")
        return self._last

    def _await(self, seconds: float) -> bool:
        if self._stepper is not None:
            return bool(self._stepper.run_until(lambda: self._messages, seconds))
        end = time.monotonic() + seconds
        with self._change:
            return bool(self._change.wait_for(lambda: self._messages, max(0.0, end - time.monotonic())))
