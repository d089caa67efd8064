"""Mixture of experts: a gate selects experts, which work concurrently, and their results are weighted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.pool import Pool
from ..actors.ref import ActorRef
from ..errors import InvalidRequest
from ..plans.retry import as_retries

__all__ = ["Mixture"]


class _Part:
    def __init__(self, work: _Work, index: int, result: Any, error: BaseException | None) -> None:
        self.work, self.index, self.result, self.error = work, index, result, error


class _Work:
    def __init__(self, asker: ReplyTo, weights: list[float]) -> None:
        self.asker, self.weights = asker, weights
        self.results: list[Any] = [None] * len(weights)
        self.left = len(weights)


class Mixture(Actor):
    """Asks the `top_k` experts with the highest scores concurrently, and answers their weighted sum.

    The weights are the softmax of the selected experts' scores.  If an expert fails, the request fails.

    Parameters
    ----------
    experts : sequence of ActorRef or Pool
        The experts; their answers have one common type.
    gate : callable
        Returns a score for each expert, from the request.
    top_k : int
        Number of selected experts.
    combine : callable, optional
        ``combine(results, weights)``, instead of the sum of ``weight * result``; for example a function that computes
        it on a device.
    retry : int
        How often an expert gets a message again that has failed there since a device restarted; see `ActorRef.ask`.
    """

    def __init__(
        self,
        experts: Sequence[ActorRef | Pool],
        gate: Callable[[Any], Sequence[float]],
        *,
        top_k: int = 2,
        combine: Callable[[list[Any], list[float]], Any] | None = None,
        retry: int = 0,
    ) -> None:
        self._experts = tuple(experts)
        if not self._experts or not all(isinstance(expert, ActorRef | Pool) for expert in self._experts):
            raise InvalidRequest(f"experts={experts!r}; they must be one or more ActorRefs or Pools")
        if not callable(gate):
            raise InvalidRequest(f"gate={gate!r}; it must be a function of the request")
        if type(top_k) is not int or not 1 <= top_k <= len(self._experts):
            raise InvalidRequest(f"top_k={top_k!r}; it must be an integer from 1 to {len(self._experts)}")
        self._gate, self._top_k = gate, top_k
        self._combine = combine or _weighted_sum
        self._retries = as_retries(retry)

    def receive(self, message: Any) -> None:
        """Begin a request, or record an expert's answer."""
        if isinstance(message, _Part):
            self._arrived(message)
            return
        try:
            chosen, weights = self._choose(message)
        except Exception as error:
            self.context.fail(error)
            return
        work = _Work(self.context.reply_later(), weights)
        for index, expert in enumerate(chosen):
            self.context.pipe_to_self(
                self._experts[expert].ask(message, retry=self._retries), functools.partial(_Part, work, index)
            )

    def _choose(self, message: Any) -> tuple[list[int], list[float]]:
        scores = [float(score) for score in self._gate(message)]
        if len(scores) != len(self._experts) or any(map(math.isnan, scores)):
            raise InvalidRequest(f"the gate returned {scores}; it must return {len(self._experts)} numbers")
        chosen = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[: self._top_k]
        highest = scores[chosen[0]]
        weights = [math.exp(scores[i] - highest) if scores[i] != highest else 1.0 for i in chosen]
        total = sum(weights)
        return chosen, [weight / total for weight in weights]

    def _arrived(self, part: _Part) -> None:
        work = part.work
        if part.error is not None:
            work.asker.fail(part.error)
            return
        work.results[part.index] = part.result
        work.left -= 1
        if work.left == 0:
            try:
                value = self._combine(work.results, work.weights)
            except Exception as error:
                work.asker.fail(error)
            else:
                work.asker.reply(value)


def _weighted_sum(results: list[Any], weights: list[float]) -> Any:
    total = results[0] * weights[0]
    for result, weight in zip(results[1:], weights[1:], strict=True):
        total = total + result * weight
    return total
