"""An OpenTelemetry span for each ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._support.error_text import error_text
from ..errors import InvalidRequest
from . import observers
from .optional import need
from .snapshot import check_system

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..plans.plan import Plan
    from ..plans.reply import Reply
    from ..system import System

__all__ = ["spans"]


class _Span:
    """The span of one ask to an actor; it ends with the answer, which may be later than the handler."""

    __slots__ = ("_owner", "_span", "_token")

    def __init__(self, owner: _Spans, span: Any) -> None:
        self._owner, self._span = owner, span
        self._token: Any = None

    def begin(self, cell: Cell) -> None:
        """Make it the current span, so asks of the handler become its children."""
        self._span.add_event("begun", {"actor": cell.path})
        context = self._owner.trace.set_span_in_context(self._span)
        self._token = self._owner.context.attach(context)

    def leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._owner.context.detach(token)

    def end(self, failed: bool) -> None:
        pass

    def answered(self, answer: Any) -> None:
        self._owner.finish(self._span, answer.exception())


class _Spans:
    def __init__(self, system: System, tracer: Any) -> None:
        what = "spans"
        self.trace = need("opentelemetry.trace", "opentelemetry-api", what)
        self.context = need("opentelemetry.context", "opentelemetry-api", what)
        if tracer is None:
            tracer = self.trace.get_tracer("atomr_native")
        elif not callable(getattr(tracer, "start_span", None)):
            raise InvalidRequest(f"tracer={tracer!r}; it must be a Tracer of OpenTelemetry, or None")
        self._system, self._tracer = system, tracer

    def sent(self, cell: Cell, envelope: Any) -> _Span | None:
        if envelope.answer is None or cell.tree.system is not self._system:
            return None
        sender = envelope.sender
        attributes = {"messaging.system": "atomr_native", "messaging.destination.name": cell.path,
                      "atomr_native.message": type(envelope.message).__name__}  # fmt: skip
        if sender is not None:
            attributes["atomr_native.sender"] = sender.path
        span = self._tracer.start_span(f"ask {cell.path}", kind=self.trace.SpanKind.PRODUCER, attributes=attributes)
        made = _Span(self, span)
        envelope.answer.add_done_callback(made.answered)
        return made

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        if reply is None or plan.device.system is not self._system:
            return
        lane = plan.core.lane_names.get(plan.lane, str(plan.lane))
        attributes = {"messaging.system": "atomr_native", "messaging.destination.name": f"{plan.device.name}/{lane}",
                      "atomr_native.message": plan.spec.op, "atomr_native.ticket": ticket}  # fmt: skip
        span = self._tracer.start_span(
            f"ask {plan.device.name}/{lane}", kind=self.trace.SpanKind.PRODUCER, attributes=attributes
        )
        observers.when_resolved(plan, ticket, span.end)

    def finish(self, span: Any, error: BaseException | None) -> None:
        if error is not None:
            span.record_exception(error)
            span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, error_text(error)))
        span.end()


@contextlib.contextmanager
def spans(system: System, tracer: Any = None) -> Iterator[None]:
    """Make an OpenTelemetry span for each ask of a System, for the duration of a ``with`` block.

    A span lasts from the ask to its answer.  It is the current span while the actor handles the message, so asks of the
    handler are its children, in any thread.  The span of an ask to a device does not record failure.

    Parameters
    ----------
    system : System
        The System whose actors and devices are observed.
    tracer : opentelemetry.trace.Tracer, optional
        By default the tracer of the global provider.

    Raises
    ------
    Unsupported
        If opentelemetry is not installed.
    """
    observer = _Spans(check_system(system), tracer)
    observers.add(observer)
    try:
        yield
    finally:
        observers.remove(observer)
