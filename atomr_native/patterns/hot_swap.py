"""Replacing a model while it serves, without dropping a request."""

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
    """Ask a `HotSwap` to serve with another model; the answer is the new version's number.

    Parameters
    ----------
    kind : type
        The actor that serves; a subclass of `Actor`.
    args, kwargs
        Of its constructor.
    warm_up : object, optional
        A request that the new one must answer without an error before it serves.
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
    owner: HotSwap  # which is another after a restart
    version: int
    error: BaseException | None


class HotSwap(Actor):
    """Passes every request on to the model of now, its child, which answers it.

    After a `Swap` the model of before goes on serving until the new one is there and has answered its warm-up; then
    the new one gets what comes, and the old one finishes what it has.  A new one that fails to start is told to who
    asked for the swap, and the old one stays. Swaps are done one after the other.  A model that stops for good
    while no other is there makes this actor fail with `ActorStopped`.

    Parameters
    ----------
    first : Swap
        The model to begin with.
    model_supervision : Supervision, optional
        Of the models.
    """

    def __init__(self, first: Swap, *, model_supervision: Supervision | None = None) -> None:
        self._supervision = model_supervision
        self._version = 0
        self._coming: dict[int, tuple[ActorRef, ReplyTo]] = {}
        self._waiting: list[tuple[Swap, ReplyTo]] = []
        self._serving = self._spawn(first)

    def receive(self, message: Any) -> None:
        """Pass a request on, or swap."""
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
