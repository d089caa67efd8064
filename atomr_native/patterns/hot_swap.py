"""Replacement of a serving model, without dropping a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.messages import Terminated
from ..actors.ref import ActorRef
from ..actors.supervision import Supervision
from ..errors import ActorStopped, InvalidRequest

__all__ = ["HotSwap", "Swap"]


@dataclass(frozen=True, slots=True)
class Swap:
    """A request to a `HotSwap` to serve with another model; the answer is the new version's number.

    Parameters
    ----------
    kind : type
        Class of the serving actor; a subclass of `Actor`.
    args, kwargs
        Arguments of its constructor.
    warm_up : object, optional
        A request that the new model must answer without an error before it serves.
    """

    kind: type[Actor]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    warm_up: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, type) or not issubclass(self.kind, Actor):
            raise InvalidRequest(f"kind={self.kind!r}; it must be a subclass of Actor")


@dataclass(frozen=True, slots=True)
class _Warm:
    owner: HotSwap  # a new one after a restart
    version: int
    error: BaseException | None


class HotSwap(Actor):
    """Forwards every request to the current model, its child, which answers it.

    After a `Swap` the old model continues to serve until the new one has started and answered its warm-up.  Then the
    new model gets further requests, and the old one finishes its own.  If the new model fails to start, the swap fails
    and the old model stays.  Swaps are executed one after the other.  If the model stops for good without a successor,
    this actor fails with `ActorStopped`.

    Parameters
    ----------
    first : Swap
        The first model.
    model_supervision : Supervision, optional
        Supervision of the models.
    """

    def __init__(self, first: Swap, *, model_supervision: Supervision | None = None) -> None:
        self._supervision = model_supervision
        self._version = 0
        self._coming: dict[int, tuple[ActorRef, ReplyTo]] = {}
        self._waiting: list[tuple[Swap, ReplyTo]] = []
        self._serving = self._spawn(first)

    def receive(self, message: Any) -> None:
        """Forward a request, or swap."""
        if isinstance(message, Swap):
            self._waiting.append((message, self.context.reply_later()))
            self._begin()
        elif isinstance(message, _Warm):
            self._end(message)
        elif isinstance(message, Terminated):
            if message.ref == self._serving:
                raise ActorStopped(f"the model {message.ref.path} has stopped: {message.error!r}")
        else:
            self.context.forward(self._serving, message)

    def _spawn(self, what: Swap) -> ActorRef:
        self._version += 1
        name = f"{what.kind.__name__}-v{self._version}"
        ref = self.context.spawn(what.kind, *what.args, name=name, supervision=self._supervision, **what.kwargs)
        self.context.watch(ref)
        return ref

    def _begin(self) -> None:
        if self._coming or not self._waiting:
            return
        what, asker = self._waiting.pop(0)
        try:
            ref = self._spawn(what)
        except InvalidRequest as error:
            asker.fail(error)
            self._begin()
            return
        version = self._version
        self._coming[version] = (ref, asker)
        ready = ref.started if what.warm_up is None else ref.ask(what.warm_up)
        self.context.pipe_to_self(ready, lambda _, error: _Warm(self, version, error))

    def _end(self, warm: _Warm) -> None:
        if warm.owner is not self:
            return
        ref, asker = self._coming.pop(warm.version)
        if warm.error is None:
            old, self._serving = self._serving, ref
            self.context.unwatch(old)
            old.stop()
            asker.reply(warm.version)
        else:
            self.context.unwatch(ref)
            ref.kill()
            asker.fail(warm.error)
        self._begin()
