"""The tensor actor, ``device.tensor``: expressions over tensors by their modes, as messages.

Requests and their rules are in `EinsumRequest`, `TensorReduceRequest` and `TensorElementwiseRequest`;
docs/libraries/tensor.md has the methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..._support.options import check_options
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Request
from ...plans.tuning import as_progress
from .block_request import BlockContractionRequest
from .blocks import BlockTensor
from .explain import EinsumPath, explain
from .forms import EINSUM, ELEMENTWISE, FORMS, REDUCE
from .gradient import gradient_of
from .later import LaterTuned
from .request import EinsumRequest, frozen
from .spec import is_array, resolve_einsum
from .stand_in import stand_in
from .tail import tail_mapping

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.lowering import Lowered
    from ...plans.plan import Plan
    from ...plans.spec import PlanSpec

__all__ = ["Tensor"]


def _given(subscripts: Any, operands: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return subscripts and operands, also of NumPy's other form: operands and lists of modes in turn."""
    if subscripts.__class__ is str:
        return subscripts, operands
    if is_array(subscripts):
        values = (subscripts, *operands)
        return frozen([*values[1::2], *values[-1:]] if len(values) % 2 else values[1::2]), values[
            : len(values) // 2 * 2 : 2
        ]
    return frozen(subscripts), operands


def _tail(given: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the names and the arrays of a tail's operands."""
    if not given:
        return (), ()
    found = tail_mapping(given)
    return tuple(found), tuple(found.values())


@public
class Tensor(LaterTuned):
    """Tensors by their modes, on one device; messages to it run in order.

    Every method but `plan`, `einsum_path` and `einsum_gradient` enqueues and returns its result at once: the array that
    was given as ``out=``, or a new one, which is its own future.  None waits for the device, except that the first call
    of a structure waits for its plan, and that a full mailbox blocks or raises as the System was told.

    Errors are those of the requests.

    Examples
    --------
    >>> a, b = device.put(np.ones((2, 3))), device.put(np.arange(3.0))
    >>> device.tensor.einsum("ij,j->i", a, b).numpy()
    array([3., 3.])
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "tensor") -> None:
        super().__init__(device, name)

    def _specification(self, lowered: Lowered) -> PlanSpec:
        """Return the plan's specification; of another library's operation where one kernel of it does all."""
        if lowered.op.startswith("tensor.einsum") and self.owner.kind != "host":
            found = stand_in(lowered, self._target)
            if found is not None:
                return found
        return super()._specification(lowered)

    def einsum(
        self, subscripts: Any, /, *operands: Any, out: GpuRef | None = None, out_dtype: Any = None,
        compute: str | None = None, optimize: Any = "auto", memory_limit: int | None = None, route: str = "auto",
        tune: bool | str | float = False, deterministic: bool = False, order: str = "C",
        tail: Callable[..., Any] | None = None, tail_operands: Mapping[str, GpuRef] | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send an expression of any number of tensors, as `numpy.einsum`, as one message.

        ``einsum("ij,jk->ik", a, b)``, ``einsum([[0, 1], [1, 2], [0, 2]], a, b)`` or
        ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.  See `EinsumRequest`.
        """
        if subscripts.__class__ is not str:
            subscripts, operands = _given(subscripts, operands)
        path = optimize if optimize.__class__ is str else frozen(optimize)
        names, more = _tail(tail_operands)
        made: GpuRef = self._calls.send(
            self, EINSUM,
            (None, out, subscripts, False, out_dtype, compute, path, memory_limit, route, tune, deterministic, order,
             tail, names, 1, 0, *operands, *more),
        )  # fmt: skip
        return made

    def contract(
        self, subscripts: Any, /, *operands: Any, c: GpuRef | None = None, out: GpuRef | None = None,
        alpha: Any = 1, beta: Any = 0, conj: Any = False, out_dtype: Any = None, compute: str | None = None,
        optimize: Any = "auto", memory_limit: int | None = None, route: str = "auto", tune: bool | str | float = False,
        deterministic: bool = False, order: str = "C", tail: Callable[..., Any] | None = None,
        tail_operands: Mapping[str, GpuRef] | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send ``alpha * op(A) op(B) ... + beta * C``, of two tensors, three or more.  See `EinsumRequest`."""
        if subscripts.__class__ is not str:
            subscripts, operands = _given(subscripts, operands)
        path = optimize if optimize.__class__ is str else frozen(optimize)
        flags = conj if conj.__class__ is bool else frozen(conj)
        names, more = _tail(tail_operands)
        made: GpuRef = self._calls.send(
            self, EINSUM,
            (c, out, subscripts, flags, out_dtype, compute, path, memory_limit, route, tune, deterministic, order,
             tail, names, alpha, beta, *operands, *more),
        )  # fmt: skip
        return made

    def reduce(
        self, op: str, subscripts: Any, x: GpuRef, /, *, c: GpuRef | None = None, out: GpuRef | None = None,
        alpha: Any = 1, beta: Any = 0, out_dtype: Any = None, route: str = "auto", tune: bool | str | float = False,
        tail: Callable[..., Any] | None = None, tail_operands: Mapping[str, GpuRef] | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send a reduction over modes: ``reduce("sum", "ijk->ik", x)``.  See `TensorReduceRequest`."""
        given = subscripts if subscripts.__class__ is str else frozen(subscripts)
        names, more = _tail(tail_operands)
        made: GpuRef = self._calls.send(
            self, REDUCE, (x, c, out, op, given, out_dtype, route, tune, tail, names, alpha, beta, *more)
        )
        return made

    def permute(
        self, subscripts: Any, x: GpuRef, /, *, alpha: Any = 1, unary: str = "identity", out: GpuRef | None = None,
        out_dtype: Any = None, padding: Any = (), route: str = "auto", tune: bool | str | float = False,
    ) -> GpuRef:  # fmt: skip
        """Send a permutation, ``permute("ijk->kij", x)``, with a factor, an operator, a dtype, or zeros around it.

        See `TensorElementwiseRequest`.
        """
        given = subscripts if subscripts.__class__ is str else frozen(subscripts)
        padded = padding if padding.__class__ is tuple else frozen(padding)
        made: GpuRef = self._calls.send(
            self, ELEMENTWISE,
            (out, given, "add", "add", (unary,), "identity", out_dtype, padded, route, tune, alpha, 1, 1, x),
        )  # fmt: skip
        return made

    def binary(
        self, subscripts: Any, a: GpuRef, b: GpuRef, /, *, ab: str = "add", unary: Any = (), alpha: Any = 1,
        beta: Any = 1, out: GpuRef | None = None, out_dtype: Any = None, route: str = "auto",
        tune: bool | str | float = False,
    ) -> GpuRef:  # fmt: skip
        """Send an elementwise operation on two tensors: ``binary("ij,j->ij", a, b, ab="mul")``.

        See `TensorElementwiseRequest`.
        """
        given = subscripts if subscripts.__class__ is str else frozen(subscripts)
        operators = unary if unary.__class__ is tuple else frozen(unary)
        made: GpuRef = self._calls.send(
            self, ELEMENTWISE,
            (out, given, ab, "add", operators, "identity", out_dtype, (), route, tune, alpha, beta, 1, a, b),
        )  # fmt: skip
        return made

    def trinary(
        self, subscripts: Any, a: GpuRef, b: GpuRef, c: GpuRef, /, *, ab: str = "add", abc: str = "add",
        unary: Any = (), unary_ab: str = "identity", alpha: Any = 1, beta: Any = 1, gamma: Any = 1,
        out: GpuRef | None = None, out_dtype: Any = None, route: str = "auto", tune: bool | str | float = False,
    ) -> GpuRef:  # fmt: skip
        """Send an elementwise operation on three tensors: ``trinary("ij,j,i->ij", a, b, c, ab="mul")``.

        See `TensorElementwiseRequest`.
        """
        given = subscripts if subscripts.__class__ is str else frozen(subscripts)
        operators = unary if unary.__class__ is tuple else frozen(unary)
        made: GpuRef = self._calls.send(
            self, ELEMENTWISE,
            (out, given, ab, abc, operators, unary_ab, out_dtype, (), route, tune, alpha, beta, gamma, a, b, c),
        )  # fmt: skip
        return made

    def block_contract(
        self, subscripts: Any, a: BlockTensor, b: BlockTensor, /, *, c: BlockTensor | None = None,
        out: BlockTensor | None = None, blocks: Any = None, alpha: Any = 1, beta: Any = 0, conj: Any = False,
        compute: str | None = None, route: str = "auto",
    ) -> BlockTensor:  # fmt: skip
        """Send a contraction of two tensors of blocks, and return the result's.  See `BlockContractionRequest`."""
        request = BlockContractionRequest(
            subscripts=subscripts, a=a, b=b, c=c, out=out, blocks=blocks, alpha=alpha, beta=beta, conj=conj,
            compute=compute, route=route,
        )  # fmt: skip
        return request.result(self.tell(request))

    def plan(self, request: Request[GpuRef], *, progress: object = None) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts: ``plan.tell(a, b, out=d)``.

        Operands are called ``x0``, ``x1``, ..., and ``c``; numbers are defaults that each message may replace.  A plan
        for alpha=1 and beta=0 has no factors, and a plan for a factor of 0 stays one.  Does not wait for it to be
        built: ``plan.notes`` and ``plan.tuning`` do.

        Parameters
        ----------
        request : EinsumRequest, TensorReduceRequest or TensorElementwiseRequest
        progress : bool or callable
            With ``tune=True``: how tuning gets on.  True draws a bar; a function is called with (done, total, what) in
            the thread that reads from the worker, and must not wait for the device.
        """
        if not isinstance(request, tuple(FORMS)):
            raise self._refused(request)
        watcher = None if progress is None or progress is False else as_progress(progress, "tuning an expression")
        return self._plan_of(request, watcher=watcher)

    def einsum_path(self, subscripts: Any, /, *operands: Any, **options: Any) -> EinsumPath:
        """Return the path of an expression: its steps, their routes, operations and bytes.  Sends nothing.

        Parameters are those of `EinsumRequest`; NumPy arrays may stand for tensors.
        """
        subscripts, operands = _given(subscripts, operands)
        request = EinsumRequest(subscripts=subscripts, operands=operands, **options)
        return explain(resolve_einsum(request), request.route)

    def einsum_gradient(
        self, subscripts: Any, /, *operands: GpuRef, grad: GpuRef, wanted: Sequence[int] | None = None, **options: Any
    ) -> tuple[EinsumRequest, ...]:
        """Return the requests for the gradients of operands, by default of all; `tell` or `ask` sends them.

        Gradients of complex operands are those of PyTorch: grad times the conjugates of the others.  Where an operand
        has a diagonal, or modes of its own, or is broadcast, arrays of ones and identities are allocated and filled.

        Parameters
        ----------
        subscripts, operands
            The expression, as `einsum` takes it.
        grad : GpuRef
            The gradient of its result.
        wanted : sequence of int, optional
            Operands.
        **options
            `alpha`, a number, `conj`, `compute` and `route`, as of `EinsumRequest`.

        Raises
        ------
        InvalidRequest
            For invalid values.

        Examples
        --------
        >>> a, b, g = device.put(np.eye(2)), device.put(np.array([1.0, 2.0])), device.put(np.ones(2))
        >>> for request in device.tensor.einsum_gradient("ij,j->i", a, b, grad=g):
        ...     print(device.tensor.tell(request).numpy().tolist())
        [[1.0, 2.0], [1.0, 2.0]]
        [1.0, 1.0]
        """
        check_options("einsum_gradient", options, ("alpha", "conj", "compute", "route"))
        if is_array(options.get("alpha")):
            raise InvalidRequest("alpha is an array; allowed: a number")
        subscripts, operands = _given(subscripts, operands)
        request = EinsumRequest(subscripts=subscripts, operands=operands, **options)

        def eye(n: int, dtype: str) -> GpuRef:
            made: GpuRef = self.device.zeros((n, n), dtype)
            diagonal = made.reshape((n * n,))[:: n + 1] if n else made
            diagonal.fill(1)
            return made

        return gradient_of(
            request, grad, range(len(operands)) if wanted is None else wanted,
            lambda n, dtype: self.device.full((n,), 1, dtype), eye,
        )  # fmt: skip
