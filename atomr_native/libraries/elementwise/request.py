"""Requests of the elementwise actor, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._support.public import public
from ...dtypes import dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from ...plans.spec import OVERWRITE, READ, WRITE, describe
from .attributes import LossAttributes, ProgramAttributes, ReduceAttributes
from .spec import output, resolve_loss, resolve_program, resolve_reduction

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "PROGRAM_VALUES",
    "ElementwiseRequest",
    "ReduceRequest",
    "SoftmaxCrossEntropyRequest",
    "SoftmaxCrossEntropyResult",
]

#: Values of a program's call before those of its operands.
PROGRAM_VALUES: Final = ("out", "program", "names")


@public
class SoftmaxCrossEntropyResult(NamedTuple):
    """Outputs of `ElementwiseActor.softmax_cross_entropy`.

    Attributes
    ----------
    loss : GpuRef
        The mean over all rows, of shape ().
    grad : GpuRef
        Its gradient, of the shape and dtype of the logits.

    Examples
    --------
    >>> logits, labels = device.zeros((2, 4)), device.put(np.array([0, 3]))
    >>> loss, grad = device.elementwise.softmax_cross_entropy(logits, labels)
    >>> grad.shape, loss.shape
    ((2, 4), ())
    """

    loss: GpuRef
    grad: GpuRef


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseRequest(Request[Any]):
    """A program of `atomr_native.libraries.elementwise.expressions` over arrays, as one message.

    Parameters
    ----------
    program
        One expression, statements, or a mapping from assigned name to expression.
    operands
        What each name stands for: a GpuRef, or a number, which travels with the message and is not part
        of the plan.
        Arrays that are assigned are written, and have one shape; the others broadcast to it.
    out
        What the name ``out`` (and a bare expression) is assigned to; allocated if missing.

    Raises
    ------
    InvalidRequest
        For anything wrong with the program, its operands' shapes, or arrays that overlap without being the same view.

    Examples
    --------
    >>> request = an.ElementwiseRequest(program="a * x", operands={"a": 2.0, "x": device.put(np.ones(2))})
    >>> device.elementwise.ask(request).result(timeout=30).numpy()
    array([2., 2.])
    """

    program: str | Mapping[str, str]
    operands: Mapping[str, Any] = field(default_factory=dict)
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve_program(self.program, self.operands, self.out)
        stored, reads = {name for name, _ in problem.program.stores}, problem.program.reads
        operands = []
        for name, array in problem.arrays.items():
            if name not in problem.alias:
                access = READ if name not in stored else READ | WRITE if name in reads else WRITE | OVERWRITE
                operands.append(Operand(describe(name, array, access), array))
        if problem.fresh is not None:
            operands.append(written("out", None, problem.fresh))
        names = list(self.operands)
        return Lowered(
            op="elementwise.program",
            operands=tuple(operands),
            collect=partial(_collect, tuple((name, problem.arrays.get(name)) for name in problem.assigned)),
            attributes=ProgramAttributes(
                shape=problem.shape,
                nodes=problem.program.nodes,
                stores=problem.program.stores,
                scalar_names=tuple(problem.scalars),
            ),
            scalars=tuple(
                Scalar(name, "int64" if isinstance(value, int) else "float64", value)
                for name, value in problem.scalars.items()
            ),
            numbers=tuple(len(PROGRAM_VALUES) + names.index(name) for name in problem.scalars),
            unread=tuple((name, problem.arrays[name]) for name in problem.alias),
        )


def _collect(results: tuple[tuple[str, Any], ...], arrays: Mapping[str, Any]) -> Any:
    """Return the outputs of a program; an array with two names is one operand."""
    found = tuple(arrays[name] if given is None else given for name, given in results)
    return found[0] if len(found) == 1 else found


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceRequest(Request["GpuRef"]):
    """A reduction of `x` over some of its axes.

    Sums, means and products are accumulated in float32 for floating types up to 32 bits (in float64 on the host
    device), in int64 (uint64) for integers, in x's own type for complex ones, and in float64 for the rest; means of
    integers in float64.  NaN wins in ``max`` and ``min``; ``argmax`` and ``argmin`` give the first of equals.

    Parameters
    ----------
    op
        ``"sum"``, ``"mean"``, ``"prod"``, ``"max"``, ``"min"``, ``"argmax"``, ``"argmin"``, ``"any"`` or ``"all"``.
    x
        Array; of a real dtype for extrema.
    axis
        An axis, several (not for argmax and argmin), or None for all.  Reduced axes vanish.
    out
        Where to store it, of any dtype; allocated if missing: in x's dtype for floating types and
        extrema, int64 for their indices, bool for ``any`` and ``all``, and what is accumulated in for integers.

    Examples
    --------
    >>> request = an.ReduceRequest(op="max", x=device.put(np.arange(6.0).reshape(2, 3)), axis=1)
    >>> device.elementwise.ask(request).result(timeout=30).numpy()
    array([2., 5.])
    """

    op: str
    x: Any
    axis: int | tuple[int, ...] | None = None
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        reduction = resolve_reduction(self.op, self.x, self.axis)
        return Lowered(
            op="elementwise.reduce",
            operands=(read("x", self.x), output("out", self.out, reduction.out, [("x", self.x)])),
            collect=itemgetter("out"),
            attributes=ReduceAttributes(reduction=self.op, axes=reduction.axes, accumulate=reduction.accumulate),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxCrossEntropyRequest(Request[SoftmaxCrossEntropyResult]):
    """Softmax over rows, mean cross entropy against class labels, and its gradient.

    ``loss = mean(-log(softmax(logits)[i, labels[i]]))`` and ``grad = (softmax(logits) - onehot(labels)) / N``,
    computed in float32, or float64 for float64.  All rows count: no label is one to ignore.  A label outside the
    classes is an error of the message on the host device, before anything is written; on a GPU, which cannot look
    before it computes, the loss and its row of the gradient are NaN.

    Parameters
    ----------
    logits
        (N, classes), floating; both at least 1.
    labels
        (N,), int32 or int64.
    grad_out
        Shape and dtype of the logits; allocated if missing.
    loss_out
        float32 of shape (); allocated if missing.

    Examples
    --------
    >>> request = an.SoftmaxCrossEntropyRequest(logits=device.zeros((2, 4)), labels=device.put(np.array([0, 3])))
    >>> round(float(device.elementwise.ask(request).result(timeout=30).loss.numpy()), 4)  # log(4)
    1.3863
    """

    logits: Any
    labels: Any
    grad_out: Any = None
    loss_out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        fresh = resolve_loss(self.logits, self.labels)
        others = [("logits", self.logits), ("labels", self.labels)]
        grad = output("grad", self.grad_out, fresh[0], others)
        if self.grad_out is not None:
            others.append(("grad", self.grad_out))
        outputs = (grad, output("loss", self.loss_out, fresh[1], others))
        for operand, (_, dtype) in zip(outputs, fresh, strict=True):
            if operand.spec.dtype != dtype_name(dtype):
                raise InvalidRequest(f"{operand.name}_out has dtype {operand.spec.dtype}; allowed: {dtype_name(dtype)}")
        return Lowered(
            op="elementwise.softmax_cross_entropy",
            operands=(read("logits", self.logits), read("labels", self.labels), *outputs),
            collect=_loss_result,
            attributes=LossAttributes("float64" if grad.spec.dtype == "float64" else "float32"),
        )


def _loss_result(arrays: Mapping[str, Any]) -> SoftmaxCrossEntropyResult:
    return SoftmaxCrossEntropyResult(arrays["loss"], arrays["grad"])
