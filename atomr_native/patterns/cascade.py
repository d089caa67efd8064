"""Cheap models first; expensive ones only if the cheap ones are not confident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.pool import Pool
from ..actors.ref import ActorRef
from ..errors import InvalidRequest
from ..plans.retry import as_retries

__all__ = ["Cascade", "CascadeResult"]


@dataclass(frozen=True, slots=True)
class CascadeResult:
    """The answer of a `Cascade`.

    Attributes
    ----------
    value : object
        Value of the deciding stage.
    confidence : float
        Confidence of that stage.
    stage : int
        Number of that stage, from 0.
    """

    value: Any
    confidence: float
    stage: int


@dataclass(frozen=True, slots=True)
class _Judged:
    request: Any
    stage: int
    asker: ReplyTo
    result: Any
    error: BaseException | None


class Cascade(Actor):
    """Asks one stage after the other, until one is sufficiently confident; the last stage always decides.

    Requests do not wait for each other.  If a stage fails, the request fails.

    Parameters
    ----------
    stages : sequence of ActorRef or Pool
        The stages, cheapest first.  Each answers a pair: a value and its confidence.
    threshold : float or sequence of float
        Minimum confidence for a decision: one for all stages, or one for each stage except the last.
    split : callable, optional
        Converts a stage's answer to that pair, if it is something else.
    retry : int
        How often a stage gets a message again that has failed there since a device restarted; see `ActorRef.ask`.
    """

    def __init__(
        self,
        stages: Sequence[ActorRef | Pool],
        *,
        threshold: float | Sequence[float] = 0.9,
        split: Callable[[Any], tuple[Any, float]] | None = None,
        retry: int = 0,
    ) -> None:
        self._stages = tuple(stages)
        if not self._stages or not all(isinstance(stage, ActorRef | Pool) for stage in self._stages):
            raise InvalidRequest(f"stages={stages!r}; they must be one or more ActorRefs or Pools")
        count = len(self._stages) - 1
        given = [threshold] * count if isinstance(threshold, int | float) else list(threshold)
        if len(given) != count or not all(isinstance(each, int | float) for each in given):
            raise InvalidRequest(f"threshold={threshold!r}; it must be a number, or {count} of them")
        self._thresholds = [float(each) for each in given]
        self._split = split
        self._retries = as_retries(retry)

    def receive(self, message: Any) -> None:
        """Begin or continue a request."""
        if isinstance(message, _Judged):
            self._judge(message)
        else:
            self._ask(message, 0, self.context.reply_later())

    def _ask(self, request: Any, stage: int, asker: ReplyTo) -> None:
        answer = self._stages[stage].ask(request, retry=self._retries)
        self.context.pipe_to_self(answer, lambda result, error: _Judged(request, stage, asker, result, error))

    def _judge(self, judged: _Judged) -> None:
        if judged.error is not None:
            judged.asker.fail(judged.error)
            return
        try:
            value, confidence = judged.result if self._split is None else self._split(judged.result)
            sure = judged.stage == len(self._thresholds) or confidence >= self._thresholds[judged.stage]
        except Exception as error:
            judged.asker.fail(
                InvalidRequest(
                    f"stage {judged.stage} answered {judged.result!r}, not a value and a confidence: {error}"
                )
            )
            return
        if sure:
            judged.asker.reply(CascadeResult(value, confidence, judged.stage))
        else:
            self._ask(judged.request, judged.stage + 1, judged.asker)
