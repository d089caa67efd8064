"""Plans of collectives."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._lib.sender import RanksMessage
from .._support.process_bound import ProcessBound
from .._support.public import public
from .prepared import Prepared
from .reply import CollectiveReply
from .request import CollectiveRequest

if TYPE_CHECKING:
    from .communicator import Communicator

__all__ = ["CollectivePlan"]


@public
class CollectivePlan(ProcessBound, RanksMessage):
    """A collective with everything fixed except addresses; made by `Communicator.plan`.

    Examples
    --------
    >>> comm = device.system.communicator(["host"])
    >>> x = device.put([1.0, 2.0])
    >>> plan = comm.plan(an.CollectiveRequest("all_reduce", [x], out=[x]))
    >>> plan.tell([x], out=[x])
    >>> plan.ask([x], out=[x]).result(timeout=60)[0] is x
    True
    >>> comm.close()
    """

    def __init__(self, communicator: Communicator, request: CollectiveRequest, prepared: Prepared) -> None:
        self._communicator = communicator
        self._request = request
        self._prepared = prepared
        prepared.arm(self, communicator)

    @property
    def request(self) -> CollectiveRequest:
        """The request that it was made from."""
        return self._request

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that take a longer way, with the reasons, of all ranks; waits for the builds."""
        return tuple(dict.fromkeys(note for plan in self._prepared.plans for note in plan.notes))

    def _with(self, arrays: Any, out: Any) -> CollectiveRequest:
        return replace(self._request, arrays=arrays, out=out)

    def _tell_slowly(self, arrays: Any, out: Any) -> None:
        """Send what `tell` does not send by itself."""
        if self._run(arrays, out, want_reply=False) is None:
            self._communicator.tell(self._with(arrays, out))

    def ask(self, arrays: Any = (), *, out: Any = None) -> CollectiveReply:
        """Send like `tell`, and return the reply."""
        reply: CollectiveReply | None = self._run(arrays, out, want_reply=True)
        return self._communicator.ask(self._with(arrays, out)) if reply is None else reply

    def _run(self, arrays: Any, out: Any, *, want_reply: bool) -> Any:
        return self._communicator.run_prepared(self._prepared, arrays, out, want_reply=want_reply)

    def __await__(self) -> Generator[Any, None, CollectivePlan]:
        """Return the plan, which is built already."""
        return self._built().__await__()

    async def _built(self) -> CollectivePlan:
        return self

    def __repr__(self) -> str:
        return f"<CollectivePlan {self._request.kind} of {self._communicator!r}>"
