"""One model, several tenants: each gets its share, regardless of the others' load."""

from __future__ import annotations

import functools
import heapq
import itertools
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.pool import Pool
from ..actors.ref import ActorRef
from ..errors import InvalidRequest, MailboxFull
from ..plans.retry import as_retries

__all__ = ["FairShare", "ForTenant"]


@dataclass(frozen=True, slots=True)
class ForTenant:
    """A request of a tenant, for a `FairShare`.

    Parameters
    ----------
    tenant : str
        Name of the tenant.
    request : object
        Message for the target.
    cost : float
        The part of the tenant's share that it uses.
    """

    tenant: str
    request: Any
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class _Done:
    owner: FairShare  # a new one after a restart
    asker: ReplyTo
    result: Any
    error: BaseException | None


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value <= sys.float_info.max


class _Tenant:
    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.queue: deque[tuple[float, ForTenant, ReplyTo]] = deque()
        self.finish = 0.0  # virtual time at which its requests so far have used their share
        self.served = 0


class FairShare(Actor):
    """Forwards requests of tenants in proportion to their weights, a bounded number at a time.

    Weighted fair queueing by start time: an idle tenant earns no credit, and a tenant with many requests delays only
    itself.

    Parameters
    ----------
    target : ActorRef or Pool
        The actor that answers the requests.
    weights : mapping of str to float
        The weight of each tenant.
    in_flight : int
        Maximum number of concurrent requests at the target.
    queue : int
        Maximum number of waiting requests of one tenant; further ones fail with `MailboxFull`.
    retry : int
        How often the target gets a message again that has failed there since a device restarted; see `ActorRef.ask`.
    """

    def __init__(
        self,
        target: ActorRef | Pool,
        weights: Mapping[str, float],
        *,
        in_flight: int = 1,
        queue: int = 1024,
        retry: int = 0,
    ) -> None:
        if not isinstance(target, ActorRef | Pool):
            raise InvalidRequest(f"target={target!r}; allowed: an ActorRef, a Pool")
        if not isinstance(weights, Mapping) or not weights or not all(map(_is_amount, weights.values())):
            raise InvalidRequest(f"weights={weights!r}; allowed: a mapping of tenants to positive numbers")
        for name, value in (("in_flight", in_flight), ("queue", queue)):
            if type(value) is not int or value < 1:
                raise InvalidRequest(f"{name}={value!r}; it must be a positive integer")
        self._target = target
        self._tenants = {name: _Tenant(float(weight)) for name, weight in weights.items()}
        self._free = in_flight
        self._limit = queue
        self._retries = as_retries(retry)
        self._now = 0.0  # virtual time: the start of the request forwarded last
        self._order = itertools.count()
        self._heads: list[tuple[float, int, str]] = []  # start of each tenant's first request

    def receive(self, message: Any) -> None:
        """Accept a request, or record the end of one."""
        if isinstance(message, _Done):
            self._free += message.owner is self
            if message.error is None:
                message.asker.reply(message.result)
            else:
                message.asker.fail(message.error)
            self._let_through()
        elif isinstance(message, ForTenant):
            self._take_in(message)
        else:
            self.context.unhandled()

    def _take_in(self, message: ForTenant) -> None:
        try:
            tenant = self._tenants.get(message.tenant)
        except TypeError:  # it cannot be hashed
            tenant = None
        if tenant is None:
            self.context.fail(
                InvalidRequest(f"unknown tenant {message.tenant!r}; allowed: {', '.join(map(repr, self._tenants))}")
            )
            return
        if not _is_amount(message.cost):
            self.context.fail(InvalidRequest(f"cost={message.cost!r}; it must be a positive number"))
            return
        if len(tenant.queue) >= self._limit:
            self.context.fail(
                MailboxFull(
                    f"tenant {message.tenant!r} has {self._limit} requests waiting", message.tenant, self._limit
                )
            )
            return
        start = max(self._now, tenant.finish)
        tenant.finish = start + message.cost / tenant.weight
        tenant.queue.append((start, message, self.context.reply_later()))
        if len(tenant.queue) == 1:
            heapq.heappush(self._heads, (start, next(self._order), message.tenant))
        self._let_through()

    def _let_through(self) -> None:
        while self._free > 0 and self._heads:
            start, _, name = heapq.heappop(self._heads)
            tenant = self._tenants[name]
            _, message, asker = tenant.queue.popleft()
            if tenant.queue:
                heapq.heappush(self._heads, (tenant.queue[0][0], next(self._order), name))
            self._now = start
            self._free -= 1
            tenant.served += 1
            answer = self._target.ask(message.request, retry=self._retries)
            self.context.pipe_to_self(answer, functools.partial(_Done, self, asker))
