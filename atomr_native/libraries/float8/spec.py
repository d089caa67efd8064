"""Rules of quantisation to float8, as pure functions of layouts.

A scale is what a code is multiplied by to get its number back, as in `device.blas_lt`: see docs/libraries/float8.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._support.checks import check_choice, check_flag
from ...arrays.operands import check_input, check_output, contiguous_strides
from ...compile.shipped import Part
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from .._scaling import BLOCK, scale_shapes

if TYPE_CHECKING:
    from .request import QuantizeRequest

__all__ = [
    "LIMITS",
    "SCALE_BLOCKS",
    "WIDE",
    "FreshPart",
    "Quantization",
    "as_float8",
    "check_out",
    "check_quantize",
    "dequantize_kernels",
    "quantize_kernels",
    "quantize_outputs",
    "scale_blocks",
]

#: Largest number of each format.
LIMITS: Final = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
#: Dtypes that are quantised, and dequantised to.
WIDE: Final = ("float32", "float16", "bfloat16")
_SCALINGS: Final = ("tensor", "outer", "vec128", "blk128")
_PAD: Final = 4  # rows of scales of 128 x 128 blocks have a multiple of this many in memory, for cuBLASLt
#: Rows and columns that share a scale; 0 for all.
SCALE_BLOCKS: Final = {"tensor": (0, 0), "outer": (1, 0), "vec128": (1, BLOCK), "blk128": (BLOCK, BLOCK)}
_HARDWARE: Final = (8, 9)  # the first compute capability that converts float8
_PAIRS: Final = (9, 0)  # the first one that compares two numbers of 16 bits at once


def as_float8(what: str, dtype: object) -> str:
    """Return the name of a float8 dtype."""
    try:
        name = dtype_name(as_dtype(dtype))
    except InvalidRequest:  # which names all dtypes
        name = repr(dtype)
    if name not in LIMITS:
        raise InvalidRequest(f"{what} is {name}; allowed: {', '.join(LIMITS)}")
    return name


def check_out(name: str, out: Any, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Raise `InvalidRequest` if an output that was given has another dtype or shape."""
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


def check_quantize(r: QuantizeRequest) -> None:
    """Check a request except for its outputs.

    Raises
    ------
    InvalidRequest, Unsupported
        As `QuantizeRequest` says.
    """
    x = check_input("x", r.x)
    found = dtype_name(as_dtype(x.dtype))
    if found not in WIDE:
        raise InvalidRequest(f"x has dtype {found}; allowed: {', '.join(WIDE)}")
    check_choice("scaling", r.scaling, _SCALINGS)
    for name in ("saturate", "transposed"):
        check_flag(name, getattr(r, name))
    if (r.scaling != "tensor" or r.transposed) and len(x.shape) != 2:
        what = f"scaling={r.scaling!r}" if r.scaling != "tensor" else "transposed=True"
        raise InvalidRequest(f"x has shape {tuple(x.shape)}; with {what} it must be a matrix of 2 axes")
    _check_transposed(r)
    _check_scales(r)


def _check_transposed(r: QuantizeRequest) -> None:
    if r.transposed and r.scaling in ("outer", "vec128"):
        raise Unsupported(
            f"transposed=True with scaling={r.scaling!r}: in the transpose a scale would change along the axis that a "
            f"matmul sums over; quantize(x.T, scaling={r.scaling!r}) makes the transpose with scales of its own"
        )
    if not r.transposed and (r.transposed_out is not None or r.transposed_scale_out is not None):
        raise InvalidRequest("transposed_out and transposed_scale_out go with transposed=True")
    if r.transposed_scale_out is not None and r.scaling != "blk128":
        raise InvalidRequest("transposed_scale_out goes with scaling='blk128'; otherwise the transpose has the scale")


def _check_scales(r: QuantizeRequest) -> None:
    if r.scaling != "tensor" and (r.scale is not None or r.state is not None):
        raise InvalidRequest(f"scale and state go with scaling='tensor', got {r.scaling!r}")
    if r.scale is not None and r.state is not None:
        raise InvalidRequest("scale and state are both given; allowed: one of them")
    if r.scale is not None:
        _check_scale("scale", r.scale)
        if r.scale_out is not None:
            raise InvalidRequest("scale_out with scale: the scale that is given is the scale; leave scale_out out")
    if r.state is not None and r.state.dtype != r.dtype:
        raise InvalidRequest(f"dtype={r.dtype!r}, but the state is for {r.state.dtype!r}; they must be equal")


class FreshPart(NamedTuple):
    """An output to allocate: of `shape`, as a part of an array of `whole`, or if `turned` of its transpose."""

    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    turned: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of the axis in bytes."""
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


class Quantization(NamedTuple):
    """Everything that decides the kernels of a quantisation.

    Attributes
    ----------
    source, dtype : str
        Dtypes of x and of the codes.
    scaling : str
    saturate, transposed : bool
    amax : str
        Where scales come from: ``"given"``, ``"now"`` from x, or ``"recorded"`` in delayed scaling.
    latest : bool
        Whether delayed scaling looks at the last amax only.
    """

    source: str
    dtype: str
    scaling: str
    saturate: bool
    transposed: bool
    amax: str
    latest: bool = False


def quantize_kernels(q: Quantization, capability: tuple[int, int]) -> tuple[Part, ...]:
    """Return the kernels of a quantisation in the order of their launches."""
    pairs = ("pairs", capability >= _PAIRS)
    types = (("source", q.source), ("dtype", q.dtype))
    options = (*types, ("saturate", q.saturate), ("hardware", capability >= _HARDWARE), pairs)
    if q.scaling == "outer":
        return (Part("rows", options),)
    transposed = ("transposed", q.transposed)
    if q.amax == "recorded":
        return (Part("record", (*options, transposed, ("latest", q.latest))),)
    cast = Part("cast", (*options, ("scaling", q.scaling), ("amax", q.amax), transposed))
    if q.scaling != "tensor" or q.amax == "given":
        return (cast,)
    return Part("amax", (types[0], pairs)), cast


def dequantize_kernels(q: str, target: str, capability: tuple[int, int]) -> tuple[Part, ...]:
    """Return the kernel of a dequantisation, from codes of dtype `q` to numbers of dtype `target`."""
    return (Part("dequantize", (("dtype", q), ("target", target), ("hardware", capability >= _HARDWARE))),)
