"""Layouts of a product's operands, as a kernel sees them: majors, leading dimensions, batch strides, alignments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...dtypes import as_dtype
from ...errors import Unsupported
from .attributes import OPERANDS, ConvolutionAttributes

if TYPE_CHECKING:
    from ...plans.spec import OperandSpec, PlanSpec
    from .attributes import GemmAttributes

__all__ = ["Array", "Problem", "broadcast_kind", "problem_of", "spread_axes"]

#: Bytes that the widest access moves.
_WIDEST: Final = 16


@dataclass(frozen=True, slots=True)
class Array:
    """An operand as a kernel sees it.

    Attributes
    ----------
    operand : int
        Its place in the message.
    dtype : str
    kind : str
        ``"matrix"``, ``"row"``, ``"column"`` or ``"scalar"``: how it is broadcast.
    layout : {"row", "column"}
        Of a matrix: its contiguous direction.
    ld, batch : int
        Elements from one row, or column, to the next, and from one matrix of the batch to the next.
    alignment : int
        Elements of which its address, ld, batch stride and contiguous extent are multiples; at most 16 bytes.
    """

    operand: int
    dtype: str
    kind: str
    layout: str
    ld: int
    batch: int
    alignment: int

    @property
    def nbytes(self) -> int:
        """Bytes of `alignment`."""
        return self.alignment * as_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Problem:
    """A product as a kernel sees it: D is M x N with contiguous rows, or columns of a product with few.

    Attributes
    ----------
    m, n, k, batch : int
    a, b, d : Array
    arrays : tuple of (str, Array)
        The tree's arrays and outputs by name.
    transposed : bool
        Whether it is the product of the transposes, since D's columns are contiguous.
    offsets : Array or None
        Ends of groups of rows, for a grouped product, of which `batch` is the number of groups.
    scale : Array or None
        Factors for groups of `group` neighbours along K, of the operand that is converted.
    group : int
    """

    m: int
    n: int
    k: int
    batch: int
    a: Array
    b: Array
    d: Array
    arrays: tuple[tuple[str, Array], ...]
    transposed: bool
    offsets: Array | None = None
    scale: Array | None = None
    group: int = 0

    @property
    def mixed(self) -> bool:
        """Whether elements of the second operand are of 16 bits, and the first one's are converted to them."""
        return as_dtype(self.a.dtype).itemsize < as_dtype(self.b.dtype).itemsize


def broadcast_kind(shape: tuple[int, ...]) -> str:
    """Return how an array of this shape is broadcast over D."""
    rows = shape[-2] if len(shape) > 1 else 1
    columns = shape[-1] if shape else 1
    return "matrix" if rows > 1 and columns > 1 else "row" if columns > 1 else "column" if rows > 1 else "scalar"


def spread_axes(shape: tuple[int, ...], strides: tuple[int, ...], kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides with the axis of D that a row (..., N), a column (..., M) or a scalar () lacks."""
    if kind == "column":
        return (*shape, 1), (*strides, 0)
    if kind == "scalar" or len(shape) < 2:
        return shape or (1,), strides or (0,)
    return (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])


def _refusal(spec: OperandSpec, what: str) -> Unsupported:
    return Unsupported(
        f"{spec.name} of shape {spec.shape} has strides {spec.strides}; {what}: device.copy({spec.name}) is so",
        rule="cutlass.layout",
        lifted_by=("copy",),
    )


def _batch_stride(spec: OperandSpec, batch: tuple[int, ...]) -> int:
    """Return the stride over all batch axes as one, in elements; 0 where the array has none."""
    shape, strides = spec.shape[:-2], spec.strides[:-2]
    missing = len(batch) - len(shape)
    padded = [(1, 0)] * missing + list(zip(shape, strides, strict=True))
    steps = [0 if own == 1 else stride for own, stride in padded]
    found = None
    reach = 0
    for extent, step in reversed(list(zip(batch, steps, strict=True))):
        if extent == 1:
            continue
        if found is None:
            found = step
        elif step != reach:
            raise _refusal(spec, f"a batch {batch} must be one stride")
        reach = step * extent
    return (found or 0) // as_dtype(spec.dtype).itemsize


def _alignment(dtype: str, *extents: int) -> int:
    return math.gcd(_WIDEST // as_dtype(dtype).itemsize, *extents)


def _matrix(spec: OperandSpec, place: int, batch: tuple[int, ...], prefer: str = "") -> Array:
    """Return a matrix, one direction of which must be contiguous; of both, `prefer` or else that of wider accesses."""
    itemsize = as_dtype(spec.dtype).itemsize
    extents, strides = spec.shape[-2:], [stride // itemsize for stride in spec.strides[-2:]]
    step, widest, found = _batch_stride(spec, batch), _WIDEST // itemsize, []
    for layout, inner, outer in (("row", 1, 0), ("column", 0, 1)):
        if (strides[inner] == 1 or extents[inner] == 1) and (extents[outer] == 1 or strides[outer] >= extents[inner]):
            ld = strides[outer] if extents[outer] > 1 else -(-extents[inner] // widest) * widest
            alignment = _alignment(spec.dtype, ld, step, extents[inner])
            found.append(Array(place, spec.dtype, "matrix", layout, ld, step, alignment))
    if not found:
        raise _refusal(spec, "rows or columns must be contiguous, and not overlap")
    return max(found, key=lambda one: (one.layout == prefer, one.alignment))  # the first one of equals: rows


def _spread(spec: OperandSpec, place: int, batch: tuple[int, ...], shape: tuple[int, int], prefer: str) -> Array:
    """Return an array that the tree reads."""
    kind = broadcast_kind(spec.shape)
    if spec.shape[-2:] == shape:  # a matrix, even of one row
        return _matrix(spec, place, batch, prefer)
    if len(spec.shape) < 2:
        missing = 2 - len(spec.shape)
        spec = _reshaped(spec, (1,) * missing + spec.shape, (0,) * missing + spec.strides)
    itemsize, step = as_dtype(spec.dtype).itemsize, _batch_stride(spec, batch)
    if kind in ("row", "column") and spec.strides[-1 if kind == "row" else -2] != itemsize:
        raise _refusal(spec, "its elements must be contiguous")
    extents = [e for e in spec.shape[-2:] if e > 1]
    return Array(place, spec.dtype, kind, "row", 0, step, _alignment(spec.dtype, step, *extents) if extents else 1)


def _reduced(spec: OperandSpec, place: int, axis: int) -> Array:
    """Return an output of a reduction, with its extent for each matrix of the batch."""
    expected = itemsize = as_dtype(spec.dtype).itemsize
    for extent, stride in zip(spec.shape[::-1], spec.strides[::-1], strict=True):
        if extent > 1 and stride != expected:
            raise _refusal(spec, "it must be dense")
        expected *= extent
    kind = {0: "row", 1: "column"}.get(axis, "scalar")
    return Array(place, spec.dtype, kind, "row", 0, spec.shape[-1] if len(spec.shape) > 1 else 0, 16 // itemsize)


def _reshaped(spec: OperandSpec, shape: tuple[int, ...], strides: tuple[int, ...]) -> OperandSpec:
    from msgspec.structs import replace as changed

    return changed(spec, shape=shape, strides=strides)


def _turned(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes[:-2], axes[-1], axes[-2])


def problem_of(spec: PlanSpec[GemmAttributes], *, turned: bool = False) -> Problem:
    """Return a plan's product as a kernel sees it; `turned`, that of the transposes, whose columns of D are contiguous.

    Raises
    ------
    Unsupported
        For layouts that no kernel reads; the message names the operand.
    """
    at = {operand.name: (operand, place) for place, operand in enumerate(spec.operands)}
    for name, known, shape, strides in spec.attributes.views:
        one, place = at.pop(name)
        at[known] = _reshaped(one, shape, strides), place
    for name in spec.attributes.transposed:
        one, place = at[name]
        at[name] = _reshaped(one, _turned(one.shape), _turned(one.strides)), place
    for name, kind in spec.attributes.spread:
        one, place = at[name]
        at[name] = _reshaped(one, *spread_axes(one.shape, one.strides, kind)), place
    if "offsets" in at:
        return _grouped(at, spec.attributes)
    if isinstance(spec.attributes, ConvolutionAttributes):
        return _convolved(at, spec.attributes)
    out = at["out"][0]
    *batch, m, n = out.shape
    axes = tuple(batch)
    a, b, d = (_matrix(*at[name], axes) for name in ("a", "b", "out"))
    others = {name: one for name, one in at.items() if name not in ("a", "b", "b_scale", "out")}
    reduced = {str(node[1]): int(node[4]) for node in spec.attributes.nodes if node[0] == "reduce"}
    arrays = {
        name: _reduced(*one, reduced[name]) if name in reduced else _spread(*one, axes, (m, n), d.layout)
        for name, one in others.items()
    }
    if spec.attributes.in_place:
        arrays["c"] = d
    k = at["a"][0].shape[-1]
    made = Problem(m, n, k, math.prod(batch), a, b, d, tuple(arrays.items()), transposed=False)
    if as_dtype(b.dtype).itemsize < as_dtype(a.dtype).itemsize:
        made = _mixed(made, at, axes)
    elif (d.layout == "column") != turned:
        made = _transposed(made)
    for name, array in made.arrays:
        if array.kind == "matrix" and array.layout != made.d.layout:
            raise _refusal(at[name][0], f"it must have the order of out, whose strides are {out.strides}")
    return made


def _mixed(p: Problem, at: dict[str, tuple[OperandSpec, int]], batch: tuple[int, ...]) -> Problem:
    """Return the product of the transposes, in which the operand that is converted is the first."""
    if p.d.layout != "row":
        raise _refusal(at["out"][0], "rows must be contiguous, since b is converted")
    scale, group = None, 0
    if "b_scale" in at:
        spec, place = at["b_scale"]
        scale, group = _matrix(spec, place, batch), p.k // spec.shape[-2]
        if scale.layout != "row":
            raise _refusal(spec, "rows must be contiguous")
    return replace(_transposed(p), scale=scale, group=group)


def _grouped(at: dict[str, tuple[OperandSpec, int]], attributes: GemmAttributes) -> Problem:
    """Return a grouped product: rows of A, C and D are in the order of their groups, B is a matrix for each."""
    m, n = at["out"][0].shape
    groups, k, _ = at["b"][0].shape
    matrices = {}
    for name in ("a", "out", *(name for name, (one, _) in at.items() if name == "c" and one.shape == (m, n))):
        matrices[name] = _matrix(*at[name], (), "row")
        if matrices[name].layout != "row":
            raise _refusal(at[name][0], "rows must be contiguous, and not overlap")
    arrays = {}
    for name, (one, place) in at.items():
        if name in ("a", "b", "out", "offsets"):
            continue
        # Two axes more keep an array of D's shape from being a matrix.
        found = matrices.get(name) or _spread(one, place, (groups,), (-1, -1), "row")
        arrays[name] = replace(found, alignment=1) if found.kind == "column" else found  # groups begin anywhere
    if attributes.in_place:
        arrays["c"] = matrices["out"]
    ends, place = at["offsets"]
    if ends.strides != (as_dtype(ends.dtype).itemsize,) and groups > 1:
        raise _refusal(ends, "its elements must be contiguous")
    offsets = Array(place, ends.dtype, "row", "row", 0, 0, 1)
    b = _matrix(*at["b"], (groups,))
    return Problem(m, n, k, groups, matrices["a"], b, matrices["out"], tuple(arrays.items()), False, offsets)


def _flat(spec: OperandSpec, lead: int, rank: int) -> OperandSpec:
    """Return an array of images or filters as a matrix, whose rows are the elements of the first `lead` axes."""
    expected = as_dtype(spec.dtype).itemsize
    for extent, stride in zip(spec.shape[::-1], spec.strides[::-1], strict=True):
        if extent > 1 and stride != expected:
            raise _refusal(spec, "it must be dense, with its channels innermost")
        expected *= extent
    shape = (1,) * (rank - len(spec.shape)) + spec.shape
    rows, columns = math.prod(shape[:lead]), math.prod(shape[lead:])
    itemsize = as_dtype(spec.dtype).itemsize
    return _reshaped(spec, (rows, columns), (columns * itemsize, itemsize))


def _convolved(at: dict[str, tuple[OperandSpec, int]], attributes: ConvolutionAttributes) -> Problem:
    """Return a convolution as a product: rows of D are pixels, or filters, and K counts what is summed."""
    out, rank = at["out"][0], attributes.spatial + 2
    lead = 1 if attributes.operation == "filter_gradient" else rank - 1
    first, second = OPERANDS[attributes.operation]
    d_spec = _flat(out, lead, rank)
    m, n = d_spec.shape
    # Channels are what their kernels load together.
    a, b = (_matrix(_flat(at[name][0], rank - 1, rank), at[name][1], (), "row") for name in (first, second))
    d = _matrix(d_spec, at["out"][1], (), "row")
    others = {name: one for name, one in at.items() if name not in (first, second, "out")}
    arrays = {name: _spread(_flat(one, lead, rank), place, (), (m, n), "row") for name, (one, place) in others.items()}
    if attributes.in_place:
        arrays["c"] = d
    numbers = attributes.numbers
    taps = math.prod(numbers[f"filter_{axis}"] for axis in ("depth", "height", "width"))
    k = {
        "forward": taps * numbers["channels"],
        "data_gradient": taps * numbers["filters"],
        "filter_gradient": math.prod(at[first][0].shape[:-1]),
    }[attributes.operation]
    return Problem(m, n, k, 1, a, b, d, tuple(arrays.items()), transposed=False)


def _swapped(array: Array) -> Array:
    if array.kind == "matrix":
        return replace(array, layout="row" if array.layout == "column" else "column")
    return replace(array, kind={"row": "column", "column": "row"}.get(array.kind, array.kind))


def _transposed(p: Problem) -> Problem:
    """Return the product of the transposes: D^T = B^T A^T."""
    arrays = tuple((name, _swapped(array)) for name, array in p.arrays)
    return Problem(p.n, p.m, p.k, p.batch, _swapped(p.b), _swapped(p.a), _swapped(p.d), arrays, transposed=True)
