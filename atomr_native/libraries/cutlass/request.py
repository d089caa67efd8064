"""The request of the CUTLASS actor, and the keyword options of its methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..._support.checks import as_flag
from ..._support.public import public
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from .attributes import GemmAttributes, KernelChoice
from .code import GemmCode
from .config import GemmConfig
from .epilogue import EpilogueTree
from .spec import is_array, resolve_gemm

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["OPERANDS_AT", "GemmOptions", "GemmRequest"]

#: Where a call's values of operands and outputs begin, after its fields; see ``forms.py``.
OPERANDS_AT: Final = 14

#: Of the factors, in the plan of immediate calls with any.
_DEFAULTS: Final = {"alpha": 1.0, "beta": 0.0}


class GemmOptions(TypedDict, total=False):
    """Of `Cutlass.gemm`."""

    c: GpuRef | None
    out: GpuRef | None
    b_scale: GpuRef | None
    alpha: float | GpuRef
    beta: float | GpuRef
    epilogue: str | EpilogueTree | Callable[..., Any] | None
    operands: Mapping[str, float | GpuRef] | None
    outputs: Mapping[str, Any] | None
    out_dtype: object
    compute: str | None
    fast_accum: bool
    config: GemmConfig | None
    tune: bool


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRequest(Request[Any]):
    """A matrix product with an epilogue, by a kernel of CUTLASS that is compiled for it; checked when it is made.

    ``D = epilogue(A @ B)``, by default ``alpha * A @ B + beta * C``.  Axes in front of the last two are batches, and
    broadcast.

    Parameters
    ----------
    a, b
        (..., M, K) and (..., K, N), with contiguous rows or columns: float64, float32, float16, bfloat16, int8 or
        float8, of one dtype, but float8 may be mixed; and `b` may be int8 or float8 with an `a` of 16 bits, to which it
        is converted.
    b_scale
        Factors of such a `b`, of a's dtype: (..., G, N), a row for each of G equal parts of K.
    c
        An array for the epilogue's name ``c``: (..., M, N), or whatever broadcasts to it.  It may be `out`.
    out
        D; allocated if missing.
    alpha, beta
        Numbers, which travel with the message, or float32 (float64) arrays of one element.  With ``beta=0`` C is not
        read by the default epilogue.
    epilogue : str, EpilogueTree or function, optional
        What each element of D is made of: an expression such as ``"relu(alpha * acc + bias) * c"``, see
        `EpilogueTree`, or a Python function of the accumulator and of the operands that its parameters name.
    operands : mapping of str to array or number, optional
        What else the epilogue uses.  Arrays broadcast to D: (N,) is a row, (M, 1) a column, (M, N) a matrix, one
        element a scalar, each with or without axes of batches.
    outputs : mapping of str to dtype or array, optional
        Intermediate results to store: those that the text assigns under this name, or that `EpilogueTree.stored` names.
        Each has D's shape.  ``name = sum(value, axis)`` or ``max(value, axis)`` in the text, or `EpilogueTree.reduced`,
        store a reduction, of float32 (float64): (..., N) for axis 0, (..., M) for axis 1, (..., 1) without an axis.
    out_dtype
        Of D, if it is allocated: by default that of the operands, int32 for int8, bfloat16 for float8.
    compute : {None, "float32", "tf32", "float64", "int32"}
        How products are made; ``"tf32"`` lets float32 operands be rounded to TF32.  Sums are float32, float64 for
        float64, and int32 for int8.
    fast_accum : bool
        Whether sums of float8 products may be kept in the tensor cores' own precision.
    config : GemmConfig, optional
        The form of the kernel, where the heuristics shall not choose it.
    tune : bool
        Whether the plan has the fastest kernel on this GPU of those that fit `config`.  They compile together, up to
        nine, and are measured on scratch memory when the plan is made; results are kept on disk.  No effect on the host
        device.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, options and trees that cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 4), "float32")), device.put(np.eye(4, dtype="float32"))
    >>> request = an.GemmRequest(a=x, b=w, epilogue="relu(acc - shift)", operands={"shift": 0.25})
    >>> device.cutlass.tell(request).numpy().tolist()
    [[0.75, 0.75, 0.75, 0.75], [0.75, 0.75, 0.75, 0.75]]
    >>> an.GemmRequest(a=x, b=w, epilogue="relu(acc + bias)")
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: the epilogue uses 'bias', which is not given; given: acc, alpha, beta
    """

    a: Any
    b: Any
    c: Any = None
    out: Any = None
    epilogue: Any = None
    out_dtype: Any = None
    compute: str | None = None
    fast_accum: bool = False
    config: GemmConfig | None = None
    tune: bool = False
    operands: Any = None
    outputs: Any = None
    alpha: Any = 1.0
    beta: Any = 0.0
    b_scale: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands in message order: ``a, b``, ``b_scale`` if given, arrays of the epilogue in the order of their first
        use, ``out``, and what else is stored.
        """
        problem = resolve_gemm(self)
        scale = {} if self.b_scale is None else {"b_scale": self.b_scale}
        inputs = {"a": self.a, "b": self.b} | scale | problem.arrays
        if problem.in_place:
            del inputs["c"]
        given = dict(self.outputs or {})
        stored = {name: given[name] if is_array(given[name]) else None for name in problem.stores}
        operands: list[Operand] = [read(name, array) for name, array in inputs.items()]
        operands.append(written("out", self.out, problem.out, updated=problem.in_place))
        operands += [written(name, stored[name], fresh) for name, fresh in problem.stores.items()]
        names = tuple(self.operands or ())
        return Lowered(
            op="cutlass.gemm",
            operands=tuple(operands),
            collect=partial(_result, ("out", *problem.stores)),
            attributes=GemmAttributes(
                nodes=problem.nodes,
                scalars=tuple(problem.numbers),
                mode=problem.mode,
                in_place=problem.in_place,
                fast_accum=bool(self.fast_accum),
                compute=problem.compute,
                choice=KernelChoice() if self.config is None else self.config.choice(),
                tune=as_flag("tune", self.tune),
            ),
            scalars=tuple(
                Scalar(name, "float64", value, _DEFAULTS.get(name)) for name, value in problem.numbers.items()
            ),
            numbers=tuple(
                name if name in ("alpha", "beta") else OPERANDS_AT + names.index(name) for name in problem.numbers
            ),
            code=GemmCode(problem.functions),
            unread=(("c", self.c),) if self.c is not None and "c" not in problem.arrays else (),
        )


def _result(names: tuple[str, ...], arrays: Mapping[str, Any]) -> Any:
    """Return D, or a tuple of D and what else is stored."""
    found = tuple(arrays[name] for name in names)
    return found if len(found) > 1 else found[0]
