"""Strategies for failed actors."""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from .._support.error_text import error_text
from .._support.public import public
from ..errors import InvalidRequest

__all__ = ["AllForOne", "Decider", "Directive", "OneForOne", "Supervision"]

_log = logging.getLogger("atomr_native.actors")


@public
class Directive(enum.Enum):
    """A supervisor's decision about a failed actor."""

    RESUME = "resume"  #: Continue with the next message; the state is kept.
    RESTART = "restart"  #: A new instance behind the same address and mailbox; the failing message is not retried.
    STOP = "stop"  #: Stop it for good.
    ESCALATE = "escalate"  #: The supervisor fails with the same error, and its own supervisor decides.


Decider: TypeAlias = (
    Mapping[type[BaseException], "Directive | str"] | Callable[[BaseException], "Directive | str"] | None
)


@public
class Supervision:
    """A strategy of supervision; use `OneForOne` or `AllForOne`.

    Parameters
    ----------
    decide : mapping or callable, optional
        Directives by exception type, the most specific first, or a function of the exception.  Exceptions without an
        entry restart the actor; those outside `Exception`, such as `SystemExit`, escalate.
    max_restarts : int or None
        An actor that would restart more often than this within `within` is stopped; counted separately for each actor.
        None: no limit.
    within : float
        Length of the window, seconds.
    backoff, max_backoff : float
        The first restart in the window comes at once, the second after `backoff` seconds, each later one after twice
        the previous pause, up to `max_backoff`.
    jitter : float
        Random variation of a pause, as a fraction from 0 to 1.

    Notes
    -----
    Actors with the same strategy object, or without one, form the group of an `AllForOne`.
    """

    __slots__ = ("_decide", "backoff", "jitter", "max_backoff", "max_restarts", "within")
    #: Whether directives other than resume and escalate apply to the whole group.
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
            raise InvalidRequest(f"max_restarts={max_restarts!r}; it must be a non-negative integer, or None")
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
            except (Exception, SystemExit):
                _log.exception("the decider of a supervision failed for %s; escalating", error_text(error))
                return Directive.ESCALATE
        if decide is not None:
            for kind in type(error).__mro__:
                found = decide.get(kind)
                if found is not None:
                    return found
        return Directive.RESTART if isinstance(error, Exception) else Directive.ESCALATE

    def pause(self, history: deque[float], now: float, random: Random) -> float | None:
        """Record a restart at `now`; return the seconds to wait before it, or None if the budget is spent."""
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


@public
class OneForOne(Supervision):
    """Only the actor that failed is restarted or stopped."""

    __slots__ = ()


@public
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
