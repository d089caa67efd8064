"""Requests of the float8 actor: validation, and the plan specifications that both kinds of device build from.

A scale is what a code is multiplied by to get its number back, as in `device.blas_lt`: see docs/float8.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ._checks import as_integer, check_choice, check_flag
from ._matmul_scales import BLOCK, scale_shapes
from ._operands import (
    Fresh,
    check_disjoint,
    check_input,
    check_output,
    contiguous_strides,
    describe,
    describe_output,
    is_contiguous,
)
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import InvalidRequest, Unsupported
from .kernels import Part
from .plan_spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec

if TYPE_CHECKING:
    from .gpu_ref import GpuRef

__all__ = [
    "LIMITS",
    "SCALE_BLOCKS",
    "DelayedScaling",
    "DequantizeRequest",
    "FreshPart",
    "QuantizeRequest",
    "dequantize_kernels",
    "dequantize_spec",
    "quantize_kernels",
    "quantize_outputs",
    "quantize_spec",
    "scale_blocks",
]

#: Largest number of each format.
LIMITS: Final = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_WIDE: Final = ("float32", "float16", "bfloat16")
_SCALINGS: Final = ("tensor", "outer", "vec128", "blk128")
_MARGIN: Final = 60
_PAD: Final = 4  # rows of scales of 128 x 128 blocks have a multiple of this many in memory, for cuBLASLt
#: Rows and columns that share a scale; 0 for all.
SCALE_BLOCKS: Final = {"tensor": (0, 0), "outer": (1, 0), "vec128": (1, BLOCK), "blk128": (BLOCK, BLOCK)}
_HARDWARE: Final = (8, 9)  # the first compute capability that converts float8
_PAIRS: Final = (9, 0)  # the first one that compares two numbers of 16 bits at once


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedScaling:
    """Delayed scaling of one tensor of a training loop: arrays on the device that each quantisation updates.

    Made by `Float8.delayed`.  A quantisation with it uses `scale` as it is, puts the tensor's amax into the history at
    `position`, and makes the next scale: the largest finite amax of the history (or the one just recorded) times
    ``2**margin`` by the largest number of the format.  Where no recorded amax is finite and above 0, `scale` stays.

    Attributes
    ----------
    history : GpuRef
        The last amaxes, a ring; float32, of one axis.
    position : GpuRef
        Where the next one goes; int32, of one element.
    scale : GpuRef
        Of the next tensor; float32, of one element.
    dtype : str
        Format of the codes.
    margin : int
        Powers of two by which the scale is larger than it need be, from -60 to 60.
    amax : str
        ``"max"`` of the history, or ``"latest"``.
    """

    history: GpuRef
    position: GpuRef
    scale: GpuRef
    dtype: str = "float8_e4m3fn"
    margin: int = 0
    amax: str = "max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _float8("dtype", self.dtype))
        check_choice("amax", self.amax, ("max", "latest"))
        object.__setattr__(self, "margin", as_integer("margin", self.margin, -_MARGIN, _MARGIN))
        for name, dtype in (("history", "float32"), ("position", "int32"), ("scale", "float32")):
            ref = check_output(name, getattr(self, name))
            one = name != "history"
            if dtype_name(as_dtype(ref.dtype)) != dtype or len(ref.shape) != 1 or (one and ref.shape != (1,)):
                wanted = "(1,)" if one else "(length,)"
                raise InvalidRequest(
                    f"{name} has dtype {dtype_name(as_dtype(ref.dtype))} and shape {tuple(ref.shape)}; allowed: "
                    f"{dtype} of {wanted}"
                )
        if self.history.shape[0] < 1 or not is_contiguous(self.history):
            raise InvalidRequest(
                f"history has shape {tuple(self.history.shape)} and strides {tuple(self.history.strides)}; it must be "
                f"contiguous, of one element at least"
            )

    @property
    def members(self) -> dict[str, GpuRef]:
        """The arrays by name, for `Device.durable_group`."""
        return {"history": self.history, "position": self.position, "scale": self.scale}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRequest:
    """Quantisation to float8, checked when it is made.

    Parameters
    ----------
    x
        What to quantise: float32, float16 or bfloat16; of any shape for ``"tensor"``, else a matrix.
    dtype : str
        ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
    scaling : str
        What shares a scale: ``"tensor"`` everything, ``"outer"`` a row, ``"vec128"`` 128 neighbours of a row,
        ``"blk128"`` a block of 128 x 128.
    scale, state
        With ``"tensor"``: a scale that is given (float32, of one element, positive and finite), or delayed scaling.
    saturate : bool
        Whether what is beyond the largest number becomes that; otherwise it is NaN in float8_e4m3fn and infinity in
        float8_e5m2.
    transposed : bool
        Whether the transpose is written too (``"tensor"`` and ``"blk128"``).
    out, scale_out, transposed_out, transposed_scale_out
        Where results go; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.
    """

    x: Any
    dtype: str = "float8_e4m3fn"
    scaling: str = "tensor"
    scale: Any = None
    state: DelayedScaling | None = None
    saturate: bool = True
    transposed: bool = False
    out: Any = None
    scale_out: Any = None
    transposed_out: Any = None
    transposed_scale_out: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _float8("dtype", self.dtype))
        _check_quantize(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeRequest:
    """Numbers of float8 codes, ``q * scale``, checked when it is made.

    Parameters
    ----------
    q
        Codes, float8_e4m3fn or float8_e5m2.
    scale
        float32; its shape says what shares a scale, as in `device.blas_lt`: one element, or for q of (M, K) the shapes
        (M, 1), (M, ceil(K / 128)) and (ceil(M / 128), ceil(K / 128)).
    dtype : str
        Of the result: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
    out
        Where it goes; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.
    """

    q: Any
    scale: Any
    dtype: str = "float32"
    out: Any = None

    def __post_init__(self) -> None:
        name = dtype_name(as_dtype(self.dtype))
        if name not in _WIDE:
            raise InvalidRequest(f"dtype={self.dtype!r}; allowed: {', '.join(_WIDE)}")
        object.__setattr__(self, "dtype", name)
        q = check_input("q", self.q)
        _float8("q", q.dtype)
        scale_blocks(tuple(q.shape), check_input("scale", self.scale))
        if self.out is not None:
            _check_out("out", self.out, name, (tuple(q.shape),))
            check_disjoint([("out", self.out)], [("q", q), ("scale", self.scale)])


def _float8(what: str, dtype: object) -> str:
    try:
        name = dtype_name(as_dtype(dtype))
    except InvalidRequest:  # which names all dtypes
        name = repr(dtype)
    if name not in LIMITS:
        raise InvalidRequest(f"{what} is {name}; allowed: {', '.join(LIMITS)}")
    return name


def _check_out(name: str, out: Any, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    check_output(name, out)
    if dtype_name(as_dtype(out.dtype)) != dtype or tuple(out.shape) not in shapes:
        raise InvalidRequest(
            f"{name} has dtype {dtype_name(as_dtype(out.dtype))} and shape {tuple(out.shape)}; allowed: {dtype} of "
            f"{' or '.join(map(str, dict.fromkeys(shapes)))}"
        )


def _check_scale(name: str, scale: Any) -> None:
    check_input(name, scale)
    if dtype_name(as_dtype(scale.dtype)) != "float32" or tuple(scale.shape) not in ((), (1,)):
        raise InvalidRequest(
            f"{name} has dtype {dtype_name(as_dtype(scale.dtype))} and shape {tuple(scale.shape)}; allowed: float32 of "
            f"() or (1,)"
        )


def scale_blocks(shape: tuple[int, ...], scale: Any) -> tuple[int, int]:
    """Return how many rows and columns of a matrix share an element of `scale`, by its shape; 0 for all.

    Raises
    ------
    InvalidRequest
        For a shape that is no scale of an array of `shape`.
    """
    if dtype_name(as_dtype(scale.dtype)) != "float32":
        raise InvalidRequest(f"scale has dtype {dtype_name(as_dtype(scale.dtype))}; allowed: float32")
    shapes = scale_shapes("a", *shape) if len(shape) == 2 else {"tensor": ((), (1,))}
    for kind, allowed in shapes.items():
        if tuple(scale.shape) in allowed:
            return SCALE_BLOCKS[kind]
    listed = ", ".join(f"{kind} {' or '.join(map(str, allowed))}" for kind, allowed in shapes.items())
    raise InvalidRequest(f"scale has shape {tuple(scale.shape)}; allowed for codes of {shape}: {listed}")


def _check_quantize(r: QuantizeRequest) -> None:
    x = check_input("x", r.x)
    found = dtype_name(as_dtype(x.dtype))
    if found not in _WIDE:
        raise InvalidRequest(f"x has dtype {found}; allowed: {', '.join(_WIDE)}")
    check_choice("scaling", r.scaling, _SCALINGS)
    for name in ("saturate", "transposed"):
        check_flag(name, getattr(r, name))
    if (r.scaling != "tensor" or r.transposed) and len(x.shape) != 2:
        what = f"scaling={r.scaling!r}" if r.scaling != "tensor" else "transposed=True"
        raise InvalidRequest(f"x has shape {tuple(x.shape)}; with {what} it must be a matrix of 2 axes")
    if r.transposed and r.scaling in ("outer", "vec128"):
        raise Unsupported(
            f"transposed=True with scaling={r.scaling!r}: in the transpose a scale would change along the axis that a "
            f"matmul sums over; quantize(x.T, scaling={r.scaling!r}) makes the transpose with scales of its own"
        )
    if r.scaling != "tensor" and (r.scale is not None or r.state is not None):
        raise InvalidRequest(f"scale and state go with scaling='tensor', got {r.scaling!r}")
    if r.scale is not None and r.state is not None:
        raise InvalidRequest("scale and state are both given; allowed: one of them")
    if r.scale is not None:
        _check_scale("scale", r.scale)
        if r.scale_out is not None:
            raise InvalidRequest("scale_out with scale: the scale that is given is the scale; leave scale_out out")
    if r.state is not None:
        if not isinstance(r.state, DelayedScaling):
            raise InvalidRequest(f"state is a {type(r.state).__name__}; allowed: what device.float8.delayed() makes")
        if r.state.dtype != r.dtype:
            raise InvalidRequest(f"dtype={r.dtype!r}, but the state is for {r.state.dtype!r}; they must be equal")
    if not r.transposed and (r.transposed_out is not None or r.transposed_scale_out is not None):
        raise InvalidRequest("transposed_out and transposed_scale_out go with transposed=True")
    if r.transposed_scale_out is not None and r.scaling != "blk128":
        raise InvalidRequest("transposed_scale_out goes with scaling='blk128'; otherwise the transpose has the scale")
    fresh = quantize_outputs(r)
    outputs = []
    for name, layout in fresh.items():
        given = getattr(r, name)
        if given is not None:
            _check_out(name, given, layout.dtype, (layout.shape, layout.shape or (1,)))
            outputs.append((name, given))
    if r.state is not None:
        outputs += r.state.members.items()
    check_disjoint(outputs, [("x", x), *([("scale", r.scale)] if r.scale is not None else [])])


class FreshPart(NamedTuple):
    """An output that is to be allocated: a part of `whole`, transposed if `turned`, which has the shape `shape`."""

    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    turned: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next."""
        steps = contiguous_strides(self.whole, DTYPES[self.dtype].itemsize)
        return steps[::-1] if self.turned else steps


def _padded(rows: int, columns: int) -> FreshPart:
    return FreshPart("float32", (rows, columns), (rows, -(-columns // _PAD) * _PAD))


def quantize_outputs(r: QuantizeRequest) -> dict[str, FreshPart]:
    """Return the outputs in message order: how each is allocated where the request gives none."""
    shape = tuple(r.x.shape)
    found = {"out": FreshPart(r.dtype, shape, shape)}
    if r.transposed:
        found["transposed_out"] = FreshPart(r.dtype, shape[::-1], shape[::-1])
    if r.scaling == "tensor":
        if r.scale is None:
            found["scale_out"] = FreshPart("float32", (), ())
        return found
    rows, blocks = shape[0], -(-shape[1] // BLOCK)
    if r.scaling == "outer":
        found["scale_out"] = FreshPart("float32", (rows, 1), (rows, 1))
    elif r.scaling == "vec128":  # as cuBLASLt reads it: scales of one block column next to each other
        found["scale_out"] = FreshPart("float32", (rows, blocks), (blocks, rows), True)
    else:
        found["scale_out"] = _padded(-(-rows // BLOCK), blocks)
        if r.transposed:
            found["transposed_scale_out"] = _padded(blocks, -(-rows // BLOCK))
    return found


def quantize_spec(r: QuantizeRequest, code: tuple[tuple[str, Any], ...] = ()) -> PlanSpec:
    """Return the plan: operands x, scale if given, outputs, the state's; `code` is what a GPU's worker loads."""
    operands = [describe("x", r.x, READ)]
    if r.scale is not None:
        operands.append(describe("scale", r.scale, READ))
    for name, layout in quantize_outputs(r).items():
        given = getattr(r, name)
        operands.append(
            describe(name, given, WRITE | OVERWRITE)
            if given is not None
            else OperandSpec(name, layout.dtype, layout.shape, layout.strides, WRITE | OVERWRITE)
        )
    attributes: tuple[tuple[str, Any], ...] = (
        ("dtype", r.dtype), ("scaling", r.scaling), ("saturate", r.saturate), ("amax", _amax(r)),
    )  # fmt: skip
    if r.state is not None:
        for name, member in r.state.members.items():
            operands.append(describe(f"state_{name}", member, READ | WRITE))
        attributes += (("latest", r.state.amax == "latest"), ("margin", r.state.margin))
    return PlanSpec("float8.quantize", tuple(operands), (), (*attributes, *code))


def _amax(r: QuantizeRequest) -> str:
    return "given" if r.scale is not None else "now" if r.state is None else "recorded"


def quantize_kernels(r: QuantizeRequest, capability: tuple[int, int]) -> tuple[Part, ...]:
    """Return the kernels of a plan in the order of their launches."""
    source, hardware = dtype_name(as_dtype(r.x.dtype)), capability >= _HARDWARE
    types = (("source", source), ("dtype", r.dtype))
    pairs = ("pairs", capability >= _PAIRS)
    way = (*types, ("saturate", r.saturate), ("hardware", hardware), pairs)
    if r.scaling == "outer":
        return (Part("rows", way),)
    turned = ("transposed", r.transposed)
    if r.state is not None:
        return (Part("record", (*way, turned, ("latest", r.state.amax == "latest"))),)
    cast = Part("cast", (*way, ("scaling", r.scaling), ("amax", _amax(r)), turned))
    if r.scaling != "tensor" or r.scale is not None:
        return (cast,)
    return Part("amax", (types[0], pairs)), cast


def dequantize_spec(r: DequantizeRequest, code: tuple[tuple[str, Any], ...] = ()) -> PlanSpec:
    """Return the plan: operands q, scale, out."""
    shape = tuple(r.q.shape)
    out = describe_output("out", r.out, Fresh(shape, DTYPES[r.dtype]), WRITE | OVERWRITE)
    blocks = scale_blocks(shape, r.scale)
    operands = (describe("q", r.q, READ), describe("scale", r.scale, READ), out)
    return PlanSpec("float8.dequantize", operands, (), (("blocks", blocks), *code))


def dequantize_kernels(r: DequantizeRequest, capability: tuple[int, int]) -> tuple[Part, ...]:
    """Return the kernel of a plan."""
    hardware = capability >= _HARDWARE
    q = dtype_name(as_dtype(r.q.dtype))
    return (Part("dequantize", (("dtype", q), ("target", r.dtype), ("hardware", hardware))),)
