"""The elementwise actor, ``device.elementwise``: expression programs and small reductions as messages.

The language is that of `atomr_native.expressions`; requests and their rules are `ElementwiseRequest`,
`ReduceRequest` and `SoftmaxCrossEntropyRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _elementwise_spec as specs
from ._elementwise_spec import ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest
from ._operands import check_handle, overlaps
from ._signature import Signature, signature_of
from .errors import InvalidRequest
from .expressions import check_program
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from ._matmul_spec import Fresh
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

#: Immediate calls remembered by an actor.
_CALLS = 4096

Request = ElementwiseRequest | ReduceRequest | SoftmaxCrossEntropyRequest


class SoftmaxCrossEntropyResult(NamedTuple):
    """Outputs of `ElementwiseActor.softmax_cross_entropy`."""

    loss: GpuRef
    grad: GpuRef


class _Call(NamedTuple):
    """What a call needs once its structure is known."""

    plan: Plan
    #: Message order: indices into the arrays given (out last), then what is allocated.
    take: tuple[int, ...]
    fresh: Fresh | None
    written: tuple[int, ...]


def _signature(made: specs.Elementwise, defaults: Mapping[str, Any]) -> Signature:
    """Return how a program's plan is called; a number without a default must be named by each message."""
    return signature_of(made.spec, made.scalars, tuple(defaults.get(name) for name in made.scalars))


class ElementwiseActor(LibraryActor):
    """Elementwise programs on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first call of a structure waits
    for its plan, and that a full mailbox blocks or raises as the System was told.
    """

    def __init__(self, device: Any, name: str = "elementwise") -> None:
        super().__init__(device, name)
        self._calls: dict[Any, Any] = {}

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
        key: list[Any] = [program if program.__class__ is str else check_program(program)]
        arrays: list[Any] = []
        numbers: list[float] = []
        same = None
        for name, value in operands.items():
            kind = value.__class__
            if kind is not float and kind is not int:
                kind = getattr(value, "layout", None)
                if kind is None or value.__class__ is type:
                    return self.run(program, out=out, **_plain(operands))
                arrays.append(value)
                if value is out:
                    same = name
            else:
                numbers.append(value)
            key += (name, kind)
        if out is not None and same is None:
            check_handle("out", out)
            arrays.append(out)
            key.append(out.layout)
        if len(arrays) > 1 and (shared := overlaps(arrays)):
            key.append(shared)
        if same is not None:  # the usual way to update in place: the layouts say the rest
            arrays.append(out)
            key.append(same)
        call = self._calls.get(found := tuple(key))
        if call is None:
            call = self._prepare(found, ElementwiseRequest(program=program, operands=operands, out=out))
        if call.fresh is not None:
            arrays.append(self._empty(*call.fresh))
        self._send(call.plan, tuple([arrays[i] for i in call.take]), tuple(numbers), False)
        return arrays[call.written[0]] if len(call.written) == 1 else tuple([arrays[i] for i in call.written])

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
        return cast("GpuRef", self.tell(ReduceRequest(op=op, x=x, axis=axis, out=out)))

    def softmax_cross_entropy(
        self, logits: GpuRef, labels: GpuRef, *, grad_out: GpuRef | None = None, loss_out: GpuRef | None = None
    ) -> SoftmaxCrossEntropyResult:
        """Send softmax, mean cross entropy and its gradient as one message; return both outputs at once.

        See `SoftmaxCrossEntropyRequest`.
        """
        request = SoftmaxCrossEntropyRequest(logits=logits, labels=labels, grad_out=grad_out, loss_out=loss_out)
        return cast("SoftmaxCrossEntropyResult", self.tell(request))

    def tell(self, request: Request) -> Any:
        """Send a request and return its outputs at once."""
        return self._request(request, False)

    def ask(self, request: Request) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _prepare(self, key: Any, request: ElementwiseRequest) -> _Call:
        """Check a program whose structure is new, make its plan, and remember both."""
        made = specs.elementwise_spec(request)
        given = [name for name, value in request.operands.items() if specs.number(value) is None]
        if request.out is not None or made.fresh is not None:
            given.append("out")
        call = _Call(
            plan=self._plan(made.spec, _signature(made, {})),
            take=tuple(given.index(name) for name in made.names),
            fresh=made.fresh,
            written=tuple(given.index(name) for name in made.written),
        )
        if len(self._calls) >= _CALLS:
            self._calls.clear()
        self._calls[key] = call
        return call

    def _request(self, request: Request, reply: bool) -> Any:
        refs: tuple[Any, ...]
        numbers: tuple[Any, ...] = ()
        result: Any
        if isinstance(request, ElementwiseRequest):
            operands = _plain(request.operands)
            made = specs.elementwise_spec(request)
            arrays = {name: value for name, value in operands.items() if name not in made.scalars}
            if request.out is not None:
                arrays["out"] = request.out
            if made.fresh is not None:
                arrays["out"] = self._empty(*made.fresh)
            for name, value in arrays.items():
                check_handle(name, value)
            refs = tuple(arrays[name] for name in made.names)
            numbers = tuple(operands[name] for name in made.scalars)
            written = tuple(arrays[name] for name in made.written)
            result = written[0] if len(written) == 1 else written
            plan = self._plan(made.spec, _signature(made, {}))
        elif isinstance(request, ReduceRequest):
            for name in ("x", "out"):
                check_handle(name, getattr(request, name))
            spec, fresh = specs.reduce_spec(request)
            plan = self._plan(spec)
            result = self._empty(*fresh) if request.out is None else request.out
            refs = (request.x, result)
        elif isinstance(request, SoftmaxCrossEntropyRequest):
            for name in ("logits", "labels", "grad_out", "loss_out"):
                check_handle(name, getattr(request, name))
            spec, grad_fresh, loss_fresh = specs.softmax_cross_entropy_spec(request)
            plan = self._plan(spec)
            grad = self._empty(*grad_fresh) if request.grad_out is None else request.grad_out
            loss = self._empty(*loss_fresh) if request.loss_out is None else request.loss_out
            refs, result = (request.logits, request.labels, grad, loss), SoftmaxCrossEntropyResult(loss, grad)
        else:
            raise InvalidRequest(
                f"{type(request).__name__} is no request of {self.__class__.__name__}; "
                f"allowed: ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest"
            )
        answer = self._send(plan, refs, numbers, reply, result)
        return answer if reply else result


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
