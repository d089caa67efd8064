"""The request of convolutions with epilogue trees, and its rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict

from ..._support.checks import as_flag, as_integer, check_choice, check_factor
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from .attributes import EXTENTS, OPERANDS, ConvolutionAttributes, KernelChoice
from .code import GemmCode
from .config import GemmConfig
from .epilogue import EpilogueTree, flat
from .spec import WIDE, GemmProblem, epilogue_of, given_of, is_array, out_of, rule_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["FusedConvolutionOptions", "FusedConvolutionRequest"]

#: Where a call's values of operands begin, after its fields; see ``forms.py``.
_OPERANDS_AT: Final = 17
_DEFAULTS: Final = {"alpha": 1.0, "beta": 0.0}
_MOST: Final = 2**31 - 1


class FusedConvolutionOptions(TypedDict, total=False):
    """Of the convolutions of `Cutlass`."""

    c: GpuRef | None
    out: GpuRef | None
    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...]
    dilation: int | tuple[int, ...]
    alpha: float | GpuRef
    beta: float | GpuRef
    epilogue: str | EpilogueTree | Callable[..., Any] | None
    operands: Mapping[str, float | GpuRef] | None
    out_dtype: object
    compute: str | None
    config: GemmConfig | None
    tune: bool


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class FusedConvolutionRequest(Request[Any]):
    """A convolution or a gradient of it, with an epilogue, by a kernel of CUTLASS; checked when it is made.

    Channels are the last axis of all arrays: images x are (N, H, W, C) or (N, D, H, W, C), filters w (K, R, S, C) or
    (K, T, R, S, C), and results y, as their gradients dy, (N, P, Q, K) or (N, Z, P, Q, K).  Filters are not turned
    round, as in PyTorch.

    Parameters
    ----------
    operation : {"forward", "data_gradient", "filter_gradient"}
        What D is: y, the gradient by x, or that by w.
    a, b
        The two arrays: x and w; dy and w; dy and x.  Of one dtype: float64, float32, float16 or bfloat16, and int8
        forward.
    size : tuple of int, optional
        Spatial extents of a gradient's D: (H, W) or (R, S), or of three axes.
    stride, padding, dilation : int or tuple of int
        A number for each spatial axis, or one for all; zeros are put around x on both sides.
    c, out, alpha, beta, epilogue, operands
        As of `GemmRequest`, for ``D = epilogue(convolution)``.  An operand has D's shape; or it has its extents along
        the last axis, a number for each channel, or (N, P, Q, 1), one for each pixel; or it is one element.  For the
        gradient by w a row is (1, R, S, C) or (R, S, C), and a column (K, 1, 1, 1).
    out_dtype, compute, config, tune
        As of `GemmRequest`; ``config.splits`` lets several blocks share the sums of a tile.

    Raises
    ------
    InvalidRequest
        For shapes, dtypes, options and trees that cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, w = device.put(np.ones((1, 4, 4, 2), "float32")), device.put(np.ones((3, 3, 3, 2), "float32"))
    >>> bias = device.put(np.array([0, 1, -100], "float32"))
    >>> request = an.FusedConvolutionRequest(
    ...     operation="forward", a=x, b=w, padding=1, epilogue="relu(acc + bias)", operands={"bias": bias}
    ... )
    >>> device.cutlass.tell(request).numpy()[0, 1, 1].tolist()
    [18.0, 19.0, 0.0]
    >>> an.FusedConvolutionRequest(operation="forward", a=x, b=w, stride=0)
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: stride=0; allowed: 1 to 2147483647, or a tuple of 2 such numbers
    """

    outputs: ClassVar[None] = None
    fast_accum: ClassVar[bool] = False

    operation: str
    a: Any
    b: Any
    size: Any = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    c: Any = None
    out: Any = None
    epilogue: Any = None
    out_dtype: Any = None
    compute: str | None = None
    config: GemmConfig | None = None
    tune: bool = False
    operands: Any = None
    alpha: Any = 1.0
    beta: Any = 0.0

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands in message order: the two arrays, arrays of the epilogue in the order of their first use, ``out``.
        """
        problem, extents, rank = _resolved(self)
        first, second = OPERANDS[self.operation]
        inputs = {first: self.a, second: self.b} | problem.arrays
        if problem.in_place:
            del inputs["c"]
        operands: list[Operand] = [read(name, array) for name, array in inputs.items()]
        operands.append(written("out", self.out, problem.out, updated=problem.in_place))
        names = tuple(self.operands or ())
        return Lowered(
            op="cutlass.convolution",
            operands=tuple(operands),
            collect=_result,
            attributes=ConvolutionAttributes(
                nodes=problem.nodes,
                scalars=tuple(problem.numbers),
                mode=problem.mode,
                in_place=problem.in_place,
                fast_accum=False,
                compute=problem.compute,
                choice=KernelChoice() if self.config is None else self.config.choice(),
                tune=as_flag("tune", self.tune),
                operation=self.operation,
                spatial=rank - 2,
                extents=extents,
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


def _each(option: str, value: Any, axes: int, low: int) -> tuple[int, ...]:
    """Return a number for each spatial axis."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    try:
        if len(given) != axes:
            raise InvalidRequest
        return tuple(as_integer(option, one, low, _MOST) for one in given)
    except InvalidRequest:
        raise InvalidRequest(
            f"{option}={value!r}; allowed: {low} to {_MOST}, or a tuple of {axes} such numbers"
        ) from None


def _shapes(request: FusedConvolutionRequest) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the two arrays."""
    names, found = OPERANDS[request.operation], []
    for name, array in zip(names, (request.a, request.b), strict=True):
        shape = tuple(check_input(name, array).shape)
        if len(shape) not in (4, 5) or 0 in shape[1:]:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: two or three spatial axes, and channels last")
        found.append(shape)
    if len(found[0]) != len(found[1]):
        raise InvalidRequest(f"{names[0]} has shape {found[0]} and {names[1]} has shape {found[1]}; allowed: as many "
                             "axes")  # fmt: skip
    return found[0], found[1]


def _geometry(request: FusedConvolutionRequest) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return D's shape, and the numbers of a convolution in the order of `EXTENTS`."""
    check_choice("operation", request.operation, OPERANDS)
    first, second = _shapes(request)
    axes = len(first) - 2
    stride, padding, dilation = (
        _each(name, getattr(request, name), axes, low) for name, low in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    if request.operation == "forward":
        if request.size is not None:
            raise InvalidRequest(f"size={request.size!r} of a convolution forward; allowed: None")
        size: tuple[int, ...] = ()
    else:
        if request.size is None:
            raise InvalidRequest(f"size is None; allowed for a gradient: {axes} spatial extents of it")
        size = _each("size", request.size, axes, 1)
    names = OPERANDS[request.operation]
    if request.operation == "filter_gradient":
        images, filters = second, (first[-1], *size, second[-1])
        if first[0] != second[0]:
            raise InvalidRequest(f"dy has {first[0]} images and x has {second[0]}; they must be as many")
        results: tuple[int, ...] | None = first
    else:
        filters = second
        of = -1 if request.operation == "forward" else 0
        if first[-1] != filters[of]:
            grouped = of and first[-1] > filters[of] and not first[-1] % filters[of]
            raise InvalidRequest(
                f"{names[0]} has {first[-1]} channels and w has shape {filters}; allowed: {first[-1]} "
                f"{'channels' if of else 'filters'}"
                + (f"; of {first[-1] // filters[of]} groups: device.cudnn.convolution(groups=)" if grouped else "")
            )
        images = first if request.operation == "forward" else (first[0], *size, filters[-1])
        results = None if request.operation == "forward" else first
    made = []
    for i in range(axes):
        reach = images[1 + i] + 2 * padding[i] - dilation[i] * (filters[1 + i] - 1) - 1
        if reach < 0:
            raise InvalidRequest(
                f"the filter's extent {filters[1 + i]}, dilated by {dilation[i]}, is beyond x's {images[1 + i]} with "
                f"padding={padding[i]} along spatial axis {i}; allowed: smaller filters"
            )
        made.append(reach // stride[i] + 1)
    expected = (images[0], *made, filters[0])
    if results is not None and results != expected:
        raise InvalidRequest(f"dy has shape {results}; allowed for this size, stride, padding and dilation: {expected}")
    for name, shape in (("x", images), ("w", filters), ("y", expected)):
        if math.prod(shape[1:]) > _MOST or math.prod(shape[:-1]) > _MOST:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: {_MOST} elements of an image, and pixels")
    out = {"forward": expected, "data_gradient": images, "filter_gradient": filters}[request.operation]
    deep = 3 - axes
    numbers = (images[0], *(1,) * deep, *images[1:], filters[0], *(1,) * deep, *filters[1:-1], *(1,) * deep, *made,
               *(0,) * deep, *padding, *(1,) * deep, *stride, *(1,) * deep, *dilation)  # fmt: skip
    assert len(numbers) == len(EXTENTS)  # noqa: S101 - a number for each name
    return out, numbers


def _check_array(name: str, array: Any, shape: tuple[int, ...], lead: int, compute: str) -> None:
    """Check an array that the tree reads."""
    own = tuple(check_input(name, array).shape)
    full = (1,) * (len(shape) - len(own)) + own
    ones = (1,) * len(shape)
    row, column = (*ones[:lead], *shape[lead:]), (*shape[:lead], *ones[lead:])
    if full not in (shape, row, column, ones):
        raise InvalidRequest(f"{name} has shape {own}; allowed: {shape}, {shape[lead:]}, {column}, (1,)")
    dtype = dtype_name(as_dtype(array.dtype))
    if full == ones != shape:
        allowed: tuple[str, ...] = (compute,)
    else:
        allowed = ("float64",) if compute == "float64" else (*WIDE, "int32", "int8") if name == "c" else WIDE
    if dtype not in allowed:
        raise InvalidRequest(f"{name} has dtype {dtype}; allowed: {', '.join(allowed)}")


def _resolved(request: FusedConvolutionRequest) -> tuple[GemmProblem, tuple[int, ...], int]:
    """Check a request; return the problem that it poses, its geometry, and the number of axes."""
    shape, numbers_of = _geometry(request)
    dtypes = [dtype_name(as_dtype(array.dtype)) for array in (request.a, request.b)]
    rule = rule_of(dtypes[0], dtypes[1])
    if dtypes[0].startswith("float8") or (dtypes[0] == "int8" and request.operation != "forward"):
        raise InvalidRequest(
            f"a convolution ({request.operation}) of {dtypes[0]}; allowed: float64, float32, float16, bfloat16, int8 "
            "forward"
        )
    mode = rule.modes[0] if request.compute is None else request.compute
    if not isinstance(mode, str) or mode not in rule.modes:
        raise InvalidRequest(f"compute={mode!r}; allowed for these operands: {', '.join(rule.modes)}")
    if request.config is not None and not isinstance(request.config, GemmConfig):
        raise InvalidRequest(f"config is a {type(request.config).__name__}; allowed: None, GemmConfig")
    out: Fresh = out_of(request, shape, rule)
    tree = epilogue_of(request)
    nodes, functions = flat(tree)
    stored = [node[1] for node in nodes if node[0] in ("store", "reduce")]
    if stored:
        raise InvalidRequest(f"the epilogue stores {', '.join(map(str, stored))}; allowed: nothing beside out")
    names = OPERANDS[request.operation]
    lead = 1 if request.operation == "filter_gradient" else len(shape) - 1  # axes that are rows of the product
    arrays: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name, value in given_of(request, tree).items():
        if name in names:
            raise InvalidRequest(f"operand {name!r} is a convolution's own; allowed: other names")
        if is_array(value):
            _check_array(name, value, shape, lead, rule.compute)
            arrays[name] = value
        else:
            check_factor(name, value, imaginary=False, more=", or an array")
            numbers[name] = float(value)
    in_place = "c" in arrays and request.c is request.out
    if in_place and tuple(arrays["c"].shape) != shape:
        raise InvalidRequest(f"c is out, of shape {tuple(arrays['c'].shape)}; allowed: {shape}")
    inputs = [*zip(names, (request.a, request.b), strict=True)]
    inputs += [(name, array) for name, array in arrays.items() if not (in_place and name == "c")]
    check_disjoint([] if request.out is None else [("out", request.out)], inputs)
    problem = GemmProblem(nodes, functions, arrays, numbers, {}, out, mode, rule.compute, in_place)
    return problem, numbers_of, len(shape)
