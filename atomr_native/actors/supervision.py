"""What happens to an actor that fails."""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from ..errors import InvalidRequest

__all__ = ["AllForOne", "Decider", "Directive", "OneForOne", "Supervision"]

_log = logging.getLogger("atomr_native.actors")


class Directive(enum.Enum):
    """What a supervisor does about a failed actor."""

    RESUME = "resume"  #: Go on with the next message; the state stays.
    RESTART = "restart"  #: A new instance behind the same address and mailbox; the failing message is not retried.
    STOP = "stop"  #: Stop it for good.
    ESCALATE = "escalate"  #: The supervisor fails with the same error, and its own supervisor decides.


Decider: TypeAlias = (
    Mapping[type[BaseException], "Directive | str"] | Callable[[BaseException], "Directive | str"] | None
)


class Supervision:
    """A strategy of supervision; use `OneForOne` or `AllForOne`.

    Parameters
    ----------
    decide : mapping or callable, optional
        Directives by type of exception, of which the most specific counts, or a function of the exception. What no
        entry covers: restart, and for exceptions that are no `Exception`, such as `SystemExit`, escalate.
    max_restarts : int or None
        An actor that is to restart more often than this within `within` is stopped; counted for each actor by itself.
        None: no limit.
    within : float
        Seconds of that window.
    backoff, max_backoff : float
        The first restart in the window comes at once, the second after `backoff` seconds, each later one after
        twice the pause of the one before, up to `max_backoff`.
    jitter : float
        By how much of itself, from 0 to 1, a pause is made longer or shorter at random.

    Notes
    -----
    Actors that were given the same strategy object, or none of their own, form the group of an `AllForOne`.
    """

    __slots__ = ("_decide", "backoff", "jitter", "max_backoff", "max_restarts", "within")
    #: Whether a directive other than resume and escalate goes to the whole group.
    together = False

    def __init__(
        self,
        decide: Decider = None,
        *,
        max_restarts: int | None = 3,
        within: float = 60.0,
        backoff: float = 0.05,
        max_backoff: float = 5.0,
        jitter: float = 0.2,
    ) -> None:
        if max_restarts is not None and (type(max_restarts) is not int or max_restarts < 0):
            raise InvalidRequest(f"max_restarts={max_restarts!r}; it must be an integer from 0, or None")
        for name, value, high in (
            ("within", within, float("inf")), ("backoff", backoff, 1e9),
            ("max_backoff", max_backoff, 1e9), ("jitter", jitter, 1.0),
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
                raise InvalidRequest(f"{name}={value!r}; it must be a number from 0 to {high:g}")
        self._decide = decide if decide is None or callable(decide) else _table(decide)
        self.max_restarts = max_restarts
        self.within = float(within)
        self.backoff = float(backoff)
        self.max_backoff = float(max_backoff)
        self.jitter = float(jitter)

    def decide(self, error: BaseException) -> Directive:
        """Return the directive for an error."""
        decide = self._decide
        if callable(decide):
            try:
                return _directive(decide(error))
            except Exception:
                _log.exception("the decider of a supervision failed for %r; escalating", error)
                return Directive.ESCALATE
        if decide is not None:
            for kind in type(error).__mro__:
                found = decide.get(kind)
                if found is not None:
                    return found
        return Directive.RESTART if isinstance(error, Exception) else Directive.ESCALATE

    def pause(self, history: deque[float], now: float, random: Random) -> float | None:
        """Note a restart at `now`; return the seconds to wait before it, or None if the budget is spent."""
        while history and now - history[0] >= self.within:
            history.popleft()
        history.append(now)
        if self.max_restarts is not None and len(history) > self.max_restarts:
            return None
        if len(history) == 1:
            return 0.0
        pause = min(self.backoff * 2.0 ** min(len(history) - 2, 60), self.max_backoff)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_restarts={self.max_restarts}, within={self.within:g})"


class OneForOne(Supervision):
    """Only the actor that failed is restarted or stopped."""

    __slots__ = ()


class AllForOne(Supervision):
    """All actors of the group are restarted or stopped when one of them fails."""

    __slots__ = ()
    together = True


def _directive(value: object) -> Directive:
    try:
        return Directive(value)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in Directive)
        raise InvalidRequest(f"directive {value!r}; allowed: a Directive, or {allowed}") from None


def _table(decide: object) -> dict[type[BaseException], Directive]:
    if not isinstance(decide, Mapping):
        raise InvalidRequest(f"decide={decide!r}; it must map exception types to directives, or be a function")
    for kind in decide:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidRequest(f"decide has the key {kind!r}; each must be an exception type")
    return {kind: _directive(value) for kind, value in decide.items()}
