"""The elementwise actor, ``device.elementwise``: expression programs and small reductions as messages.

The language is that of `atomr_native.expressions`; requests and their rules are `ElementwiseRequest`,
`ReduceRequest` and `SoftmaxCrossEntropyRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from . import _elementwise_spec as specs
from ._elementwise_spec import ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest
from ._messages import Form, Message, form_of, new
from ._operands import check_handle
from ._signature import Signature, signature_of
from .errors import InvalidRequest
from .expressions import check_program
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .reply import Reply

__all__ = [
    "ElementwiseActor",
    "ElementwiseRequest",
    "ReduceRequest",
    "SoftmaxCrossEntropyRequest",
    "SoftmaxCrossEntropyResult",
]

Request = ElementwiseRequest | ReduceRequest | SoftmaxCrossEntropyRequest


class SoftmaxCrossEntropyResult(NamedTuple):
    """Outputs of `ElementwiseActor.softmax_cross_entropy`."""

    loss: GpuRef
    grad: GpuRef


def _taken(r: ElementwiseRequest) -> tuple[Any, ...]:
    """Return the values of a program's call: out, program, names, and the operands of these names."""
    return (r.out, _text(r.program), tuple(r.operands), *r.operands.values())


def _made(values: tuple[Any, ...]) -> ElementwiseRequest:
    out, program, names, *operands = values
    return ElementwiseRequest(
        program=dict(program) if isinstance(program, tuple) else program,
        operands=_plain(dict(zip(names, operands, strict=True))),
        out=out,
    )


def _text(program: str | Mapping[str, str]) -> Any:
    """Return a program as something that can be compared."""
    return program if isinstance(program, str) else check_program(program)


_PROGRAM: Final = Form(_made, _taken, ("out", "program", "names"), b"aoo", (None, None, None), b"n")
_REDUCE: Final = form_of(ReduceRequest, "x out", "op axis")
_LOSS: Final = form_of(SoftmaxCrossEntropyRequest, "logits labels grad_out loss_out")


def _signature(made: specs.Elementwise, defaults: Mapping[str, Any]) -> Signature:
    """Return how a program's plan is called; a number without a default must be named by each message."""
    return signature_of(made.spec, made.scalars, tuple(defaults.get(name) for name in made.scalars))


class ElementwiseActor(LibraryActor):
    """Elementwise programs on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first call of a structure waits
    for its plan, and that a full mailbox blocks or raises as the System was told.
    """

    _forms = {  # noqa: RUF012 - of the base class
        ElementwiseRequest: _PROGRAM,
        ReduceRequest: _REDUCE,
        SoftmaxCrossEntropyRequest: _LOSS,
    }

    def __init__(self, device: Any, name: str = "elementwise") -> None:
        super().__init__(device, name)

    def run(self, program: str | Mapping[str, str], /, *, out: GpuRef | None = None, **operands: Any) -> Any:
        """Send a program over arrays and numbers, as one message.

        ``run("w - lr * g", out=w, w=w, g=g, lr=0.1)`` or
        ``run("m = b * m + g; w -= lr * m", m=m, w=w, g=g, b=0.9, lr=0.1)``.
        See `ElementwiseRequest` for the parameters; numbers may change from call to call at no cost.

        Returns
        -------
        GpuRef or tuple of GpuRef
            What is written, in the order of assignment.

        Raises
        ------
        InvalidRequest
            Before anything is enqueued.
        OutOfMemory
            If `out` cannot be allocated.
        MailboxFull
            If the mailbox stays full.
        """
        text = program if program.__class__ is str else _text(program)
        return self._calls.send(self, _PROGRAM, (out, text, tuple(operands), *operands.values()))

    def plan(self, program: str | Mapping[str, str], /, *, out: GpuRef | None = None, **operands: Any) -> Plan:
        """Return the plan of a program; arrays lend their layouts, numbers are defaults that each message may replace.

        Does not wait for the plan to be built.
        """
        operands = _plain(operands)
        made = specs.elementwise_spec(ElementwiseRequest(program=program, operands=operands, out=out))
        return self._plan(made.spec, _signature(made, operands))

    def plan_reduce(
        self, op: str, x: GpuRef, axis: int | tuple[int, ...] | None = None, *, out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of a reduction: ``plan.tell(x, out=out)``.  Does not wait for it to be built."""
        spec, _ = specs.reduce_spec(ReduceRequest(op=op, x=x, axis=axis, out=out))
        return self._plan(spec)

    def plan_softmax_cross_entropy(
        self, logits: GpuRef, labels: GpuRef, *, grad_out: GpuRef | None = None, loss_out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of softmax, mean cross entropy and gradient: ``plan.tell(logits, labels, grad, loss)``.

        Does not wait for it to be built.
        """
        request = SoftmaxCrossEntropyRequest(logits=logits, labels=labels, grad_out=grad_out, loss_out=loss_out)
        return self._plan(specs.softmax_cross_entropy_spec(request)[0])

    def reduce(
        self, op: str, x: GpuRef, axis: int | tuple[int, ...] | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send a reduction (``"sum"``, ``"mean"``, ``"max"``, ``"argmax"``) and return its output at once.

        See `ReduceRequest`.
        """
        made: GpuRef = self._calls.send(self, _REDUCE, (x, out, op, axis))
        return made

    def softmax_cross_entropy(
        self, logits: GpuRef, labels: GpuRef, *, grad_out: GpuRef | None = None, loss_out: GpuRef | None = None
    ) -> SoftmaxCrossEntropyResult:
        """Send softmax, mean cross entropy and its gradient as one message; return both outputs at once.

        See `SoftmaxCrossEntropyRequest`.
        """
        made: SoftmaxCrossEntropyResult = self._calls.send(self, _LOSS, (logits, labels, grad_out, loss_out))
        return made

    def tell(self, request: Request) -> Any:
        """Send a request and return its outputs at once."""
        return self._request(request, False)

    def ask(self, request: Request) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _message(self, request: Request) -> Message:
        result: Any
        if isinstance(request, ElementwiseRequest):
            return self._program(request)
        if isinstance(request, ReduceRequest):
            for name in ("x", "out"):
                check_handle(name, getattr(request, name))
            spec, fresh = specs.reduce_spec(request)
            result = new(*fresh) if request.out is None else request.out
            return Message(self._plan(spec), (request.x, result), result)
        for name in ("logits", "labels", "grad_out", "loss_out"):
            check_handle(name, getattr(request, name))
        spec, grad_fresh, loss_fresh = specs.softmax_cross_entropy_spec(request)
        grad: Any = new(*grad_fresh) if request.grad_out is None else request.grad_out
        loss: Any = new(*loss_fresh) if request.loss_out is None else request.loss_out
        operands = (request.logits, request.labels, grad, loss)
        return Message(self._plan(spec), operands, SoftmaxCrossEntropyResult(loss, grad))

    def _program(self, request: ElementwiseRequest) -> Message:
        operands = _plain(request.operands)
        made = specs.elementwise_spec(request)
        arrays = {name: value for name, value in operands.items() if name not in made.scalars}
        if request.out is not None:
            arrays["out"] = request.out
        for name, value in arrays.items():
            check_handle(name, value)
        if made.fresh is not None:
            arrays["out"] = new(*made.fresh)
        written = tuple(arrays[name] for name in made.written)
        names = list(operands)
        return Message(
            self._plan(made.spec, _signature(made, {})),
            tuple(arrays[name] for name in made.names),
            written[0] if len(written) == 1 else written,
            tuple(len(_PROGRAM.names) + names.index(name) for name in made.scalars),
        )


def _plain(operands: Mapping[str, Any]) -> dict[str, Any]:
    """Return operands with NumPy and Boolean scalars as Python numbers; refuse what is neither number nor GpuRef."""
    plain = {}
    for name, value in operands.items():
        scalar = specs.number(value)
        if scalar is None:
            if value is None:
                raise InvalidRequest(f"{name} is None; an operand is a GpuRef or a number")
            check_handle(name, value)
        plain[name] = value if scalar is None else scalar
    return plain
