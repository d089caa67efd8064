"""The request of grouped products, and its rules: groups of rows, each with a matrix of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict

from ..._support.checks import as_flag, check_factor
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from .attributes import GemmAttributes, KernelChoice
from .code import GemmCode
from .config import GemmConfig
from .epilogue import EpilogueTree, flat
from .spec import WIDE, GemmProblem, epilogue_of, given_of, is_array, out_of, rule_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["GroupedGemmOptions", "GroupedGemmRequest"]

#: Where a call's values of operands begin, after its fields; see ``forms.py``.
_OPERANDS_AT: Final = 14
#: Of the factors, in the plan of immediate calls with any.
_DEFAULTS: Final = {"alpha": 1.0, "beta": 0.0}
_OFFSETS: Final = ("int32", "int64")


class GroupedGemmOptions(TypedDict, total=False):
    """Of `Cutlass.grouped_gemm`."""

    c: GpuRef | None
    out: GpuRef | None
    alpha: float | GpuRef
    beta: float | GpuRef
    epilogue: str | EpilogueTree | Callable[..., Any] | None
    operands: Mapping[str, float | GpuRef] | None
    out_dtype: object
    compute: str | None
    fast_accum: bool
    config: GemmConfig | None
    tune: bool


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmRequest(Request[Any]):
    """Products of groups of rows, each with a matrix of its own, by one kernel; checked when it is made.

    Rows ``offsets[g - 1]`` to ``offsets[g]`` of D, from 0 on for the first group, are ``epilogue(A @ B[g])`` of these
    rows of A: a layer of experts computes this.  The device reads the ends when the message runs, so a kernel may have
    computed them, no lane waits for them, and a recorded program takes those of each launch.  Groups may be empty.
    Rows of D from the last end on keep their content, which is undefined in an allocated D.  Ends outside of 0 to T
    count as the nearest of these; where ends decrease, it is not defined which of the groups writes a row.

    Parameters
    ----------
    a
        (T, K), with contiguous rows; dtypes are those of `GemmRequest`.
    b
        (G, K, N), with contiguous rows or columns.
    offsets
        (G,) int32 or int64: the ends of the groups.
    c
        An array for the epilogue's name ``c``: (T, N), or as other operands.  It may be `out`.
    out
        D, (T, N), with contiguous rows; allocated if missing.
    alpha, beta
        Numbers, which travel with the message, or float32 (float64) arrays of one element, or (G, 1, 1), one for each
        group.
    epilogue : str, EpilogueTree or function, optional
        As of `GemmRequest`, but nothing is stored beside D.
    operands : mapping of str to array or number, optional
        What else the epilogue uses: (N,) is a row, (G, 1, N) a row for each group, (T, 1) a column, one element a
        scalar, (G, 1, 1) a scalar for each group.
    out_dtype, compute, fast_accum, config
        As of `GemmRequest`.
    tune : bool
        As of `GemmRequest`; kernels are measured with groups of equal size.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, options and trees that cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> tokens, experts = device.put(np.ones((3, 4), "float32")), device.put(np.ones((2, 4, 2), "float32"))
    >>> ends, bias = device.put(np.array([0, 2], "int32")), device.put(np.zeros((2, 1, 2), "float32"))
    >>> request = an.GroupedGemmRequest(a=tokens, b=experts, offsets=ends, epilogue="acc + x", operands={"x": bias})
    >>> device.cutlass.tell(request).numpy()[:2].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    >>> an.GroupedGemmRequest(a=tokens, b=experts, offsets=ends[:1])
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: offsets has shape (1,); allowed: (2,), an end for each matrix of b
    """

    outputs: ClassVar[None] = None

    a: Any
    b: Any
    offsets: Any
    c: GpuRef | None = None
    out: GpuRef | None = None
    epilogue: str | EpilogueTree | Callable[..., Any] | None = None
    out_dtype: Any = None
    compute: str | None = None
    fast_accum: bool = False
    config: GemmConfig | None = None
    tune: bool = False
    operands: Any = None
    alpha: Any = 1.0
    beta: Any = 0.0

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands in message order: ``a, b, offsets``, arrays of the epilogue in the order of their first use, ``out``.
        """
        problem = _resolved(self)
        inputs = {"a": self.a, "b": self.b, "offsets": self.offsets} | problem.arrays
        if problem.in_place:
            del inputs["c"]
        operands: list[Operand] = [read(name, array) for name, array in inputs.items()]
        # Rows after the last group keep what they hold.
        operands.append(written("out", self.out, problem.out, updated=self.out is not None))
        names = tuple(self.operands or ())
        return Lowered(
            op="cutlass.grouped_gemm",
            operands=tuple(operands),
            collect=_result,
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
            numbers=tuple(name if name in _DEFAULTS else _OPERANDS_AT + names.index(name) for name in problem.numbers),
            code=GemmCode(problem.functions),
            unread=(("c", self.c),) if self.c is not None and "c" not in problem.arrays else (),
        )


def _result(arrays: Mapping[str, Any]) -> Any:
    return arrays["out"]


def _extents(request: GroupedGemmRequest) -> tuple[int, int, int]:
    """Return T, G and N."""
    a, b = tuple(check_input("a", request.a).shape), tuple(check_input("b", request.b).shape)
    if len(a) != 2:
        raise InvalidRequest(f"a has shape {a}; allowed: (T, K), the rows of all groups")
    if len(b) != 3 or not b[0]:
        raise InvalidRequest(f"b has shape {b}; allowed: (G, K, N), a matrix for each of 1 or more groups")
    if a[1] != b[1]:
        raise InvalidRequest(f"K={a[1]} in a {a} is not K={b[1]} in b {b}; they must be equal")
    if not a[1]:
        raise InvalidRequest(f"K=0 in a {a}; allowed: 1 or more")
    ends = check_input("offsets", request.offsets)
    if tuple(ends.shape) != b[:1]:
        raise InvalidRequest(f"offsets has shape {tuple(ends.shape)}; allowed: {b[:1]}, an end for each matrix of b")
    dtype = dtype_name(as_dtype(ends.dtype))
    if dtype not in _OFFSETS:
        raise InvalidRequest(f"offsets has dtype {dtype}; allowed: {', '.join(_OFFSETS)}")
    return a[0], b[0], b[2]


def _check_array(name: str, array: Any, extents: tuple[int, int, int], compute: str) -> None:
    """Check an array that the tree reads."""
    t, g, n = extents
    own = tuple(check_input(name, array).shape)
    dtype = dtype_name(as_dtype(array.dtype))
    each = (1,) * (3 - len(own)) + own
    matrix = name == "c" and own == (t, n)
    column = len(own) == 2 and own == (t, 1)
    row = len(own) <= 3 and each[0] in (1, g) and each[1] == 1 and each[2] in (1, n)
    if not (matrix or column or row):
        more = f"({t}, {n}), " if name == "c" else ""
        raise InvalidRequest(
            f"{name} has shape {own}; allowed: {more}({n},), ({g}, 1, {n}), ({t}, 1), (1,), ({g}, 1, 1)"
        )
    if each[1:] == (1, 1) and not matrix:
        allowed: tuple[str, ...] = (compute,)
    else:
        allowed = ("float64",) if compute == "float64" else (*WIDE, "int32", "int8") if matrix else WIDE
    if dtype not in allowed:
        raise InvalidRequest(f"{name} has dtype {dtype}; allowed: {', '.join(allowed)}")


def _resolved(request: GroupedGemmRequest) -> GemmProblem:
    """Check a request and return the problem that it poses."""
    t, g, n = _extents(request)
    a, b = (dtype_name(as_dtype(array.dtype)) for array in (request.a, request.b))
    rule = rule_of(a, b)
    mode = rule.modes[0] if request.compute is None else request.compute
    if not isinstance(mode, str) or mode not in rule.modes:
        raise InvalidRequest(f"compute={mode!r}; allowed for these operands: {', '.join(rule.modes)}")
    as_flag("fast_accum", request.fast_accum)
    if request.config is not None and not isinstance(request.config, GemmConfig):
        raise InvalidRequest(f"config is a {type(request.config).__name__}; allowed: None, GemmConfig")
    out: Fresh = out_of(request, (t, n), rule)
    tree = epilogue_of(request)
    nodes, functions = flat(tree)
    stored = [node[1] for node in nodes if node[0] in ("store", "reduce")]
    if stored:
        raise InvalidRequest(f"the epilogue stores {', '.join(map(str, stored))}; allowed: nothing beside out")
    arrays: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name, value in given_of(request, tree).items():
        if name == "offsets":
            raise InvalidRequest("operand 'offsets' is a product's own; allowed: other names")
        if is_array(value):
            _check_array(name, value, (t, g, n), rule.compute)
            arrays[name] = value
        else:
            check_factor(name, value, imaginary=False, more=", or an array")
            numbers[name] = float(value)
    in_place = "c" in arrays and request.c is request.out
    if in_place and tuple(arrays["c"].shape) != (t, n):
        raise InvalidRequest(f"c is out, of shape {tuple(arrays['c'].shape)}; allowed: {(t, n)}")
    inputs = [("a", request.a), ("b", request.b), ("offsets", request.offsets)]
    inputs += [(name, array) for name, array in arrays.items() if not (in_place and name == "c")]
    check_disjoint([] if request.out is None else [("out", request.out)], inputs)
    return GemmProblem(nodes, functions, arrays, numbers, {}, out, mode, rule.compute, in_place)
