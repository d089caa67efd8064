"""The elementwise actor, ``device.elementwise``: expression programs and small reductions as messages.

The language is that of `expressions`; requests and their rules are `ElementwiseRequest`,
`ReduceRequest` and `SoftmaxCrossEntropyRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import FORMS, LOSS, PROGRAM, REDUCE, comparable_program, plain_operands
from .operators import OperatorCalls
from .request import ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest, SoftmaxCrossEntropyResult

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["ElementwiseActor"]


@public
class ElementwiseActor(OperatorCalls, LibraryActor):
    """Elementwise programs on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first call of a structure waits
    for its plan, and that a full mailbox blocks or raises as the System was told.

    Examples
    --------
    >>> w, g = device.put(np.ones(3)), device.put(np.arange(3.0))
    >>> device.elementwise.run("w - lr * g", out=w, w=w, g=g, lr=0.5).numpy()
    array([1. , 0.5, 0. ])
    >>> device.elementwise.reduce("sum", g).numpy()
    array(3.)
    """

    _forms = FORMS

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
        text = program if program.__class__ is str else comparable_program(program)
        return self._calls.send(self, PROGRAM, (out, text, tuple(operands), *operands.values()))

    def plan(self, program: str | Mapping[str, str], /, *, out: GpuRef | None = None, **operands: Any) -> Plan:
        """Return the plan of a program; arrays lend their layouts, numbers are defaults that each message may replace.

        Does not wait for the plan to be built.
        """
        return self._plan_of(ElementwiseRequest(program=program, operands=plain_operands(operands), out=out))

    def plan_reduce(
        self, op: str, x: GpuRef, axis: int | tuple[int, ...] | None = None, *, out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of a reduction: ``plan.tell(x, out=out)``.  Does not wait for it to be built."""
        return self._plan_of(ReduceRequest(op=op, x=x, axis=axis, out=out))

    def plan_softmax_cross_entropy(
        self, logits: GpuRef, labels: GpuRef, *, grad_out: GpuRef | None = None, loss_out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of softmax, mean cross entropy and gradient: ``plan.tell(logits, labels, grad, loss)``.

        Does not wait for it to be built.
        """
        return self._plan_of(
            SoftmaxCrossEntropyRequest(logits=logits, labels=labels, grad_out=grad_out, loss_out=loss_out)
        )

    def reduce(
        self, op: str, x: GpuRef, axis: int | tuple[int, ...] | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send a reduction, such as ``"sum"``, ``"argmin"`` or ``"any"``, and return its output at once.

        See `ReduceRequest`.
        """
        made: GpuRef = self._calls.send(self, REDUCE, (x, out, op, axis))
        return made

    def softmax_cross_entropy(
        self, logits: GpuRef, labels: GpuRef, *, grad_out: GpuRef | None = None, loss_out: GpuRef | None = None
    ) -> SoftmaxCrossEntropyResult:
        """Send softmax, mean cross entropy and its gradient as one message; return both outputs at once.

        See `SoftmaxCrossEntropyRequest`.
        """
        made: SoftmaxCrossEntropyResult = self._calls.send(self, LOSS, (logits, labels, grad_out, loss_out))
        return made
