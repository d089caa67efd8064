"""Requests of the fused actor: what all of them share, and activations, rotary embeddings and dropout.

A request's `made` says everything about its message: operands, scalars, kernels, and what its sender gets.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ._checks import check_choice, check_flag, is_real
from ._operands import (
    Fresh,
    check_disjoint,
    check_input,
    check_output,
    describe_output,
    same_view,
)
from ._signature import Signature, signature_of
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import InvalidRequest
from .kernels import Part
from .plan_spec import OVERWRITE, READ, WRITE, PlanSpec

if TYPE_CHECKING:
    from .gpu_ref import GpuRef

__all__ = [
    "CURVES",
    "FLOATS",
    "ActivationGradientRequest",
    "ActivationRequest",
    "FusedRequest",
    "GatedGradient",
    "Made",
    "Operand",
    "check_float",
    "check_like",
    "check_number",
    "check_rows",
    "input_",
    "output",
    "row_step",
]

#: Dtypes of elements.
FLOATS: Final = ("float32", "float16", "bfloat16", "float64")
CURVES: Final = ("silu", "squared_relu", "gelu", "gelu_tanh")


class Operand(NamedTuple):
    """An array of a message: the handle, or None for one that is to be allocated contiguously."""

    name: str
    given: Any
    dtype: str
    shape: tuple[int, ...]
    access: int


class Made(NamedTuple):
    """A request as a message.

    Attributes
    ----------
    op : str
    operands : tuple of Operand
    collect : callable
        From the operands by name to what the sender gets.
    module : str
        Of `atomr_native.kernels`.
    parts : tuple of Part
        The kernels in the order of their launches.
    scalars : tuple of (str, str, number)
        Name, type and value of each.
    attributes : tuple of (str, JSON value)
    numbers : tuple of str
        What the scalars are made of: fields of the request.  By themselves, the scalars' names.
    convert : callable or None
        From these to the scalars, where they differ.
    """

    op: str
    operands: tuple[Operand, ...]
    collect: Callable[[dict[str, Any]], Any]
    module: str
    parts: tuple[Part, ...]
    scalars: tuple[tuple[str, str, float | int], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    numbers: tuple[str, ...] = ()
    convert: Callable[..., tuple[float | int, ...]] | None = None

    def spec(self, code: tuple[tuple[str, Any], ...] = ()) -> PlanSpec:
        """Return the plan's specification; `code` is what a GPU's worker loads."""
        operands = tuple(
            describe_output(o.name, o.given, Fresh(o.shape, DTYPES[o.dtype]), o.access) for o in self.operands
        )
        return PlanSpec(self.op, operands, tuple(kind for _, kind, _ in self.scalars), (*self.attributes, *code))

    def signature(self, spec: PlanSpec, defaults: Sequence[float | int] = ()) -> Signature:
        """Return how the plan is called: scalars by name, with these values where a call has none."""
        names = tuple(name for name, _, _ in self.scalars)
        return signature_of(spec, names, tuple(defaults) or (None,) * len(names))


class FusedRequest(ABC):
    """A request that is checked by making its message."""

    __slots__ = ()

    def __post_init__(self) -> None:
        self.made()

    @abstractmethod
    def made(self) -> Made:
        """Return the message."""


# ---------------------------------------------------------------------------------------------- checks


def row_step(name: str, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the elements from one row of an array to the next; a row is the last axis.

    Raises
    ------
    InvalidRequest
        If the elements of a row do not lie together, or rows do not follow each other evenly.
    """
    if 0 in shape:
        return 0
    step = next_step = None
    fits = not shape or shape[-1] == 1 or strides[-1] == itemsize
    for extent, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if extent == 1:
            continue
        fits = fits and (next_step is None or stride == next_step)
        step = stride if step is None else step
        next_step = stride * extent
    if not fits:
        raise InvalidRequest(
            f"{name} has shape {shape} and strides {strides}; allowed: a last axis whose elements lie together, and "
            f"axes before it that fold into one (contiguous arrays, and slices of them along the last axis); copy it "
            f"first"
        )
    return 0 if step is None else step // itemsize


def check_rows(name: str, array: Any) -> None:
    """Raise `InvalidRequest` if an array is not what `row_step` takes."""
    row_step(name, tuple(array.shape), tuple(array.strides), as_dtype(array.dtype).itemsize)


def check_float(name: str, array: Any, allowed: tuple[str, ...] = FLOATS) -> str:
    """Return the dtype of an input that a kernel takes, with rows as `check_rows` has them."""
    check_input(name, array)
    found = dtype_name(as_dtype(array.dtype))
    if found not in allowed:
        raise InvalidRequest(f"{name} has dtype {found}; allowed: {', '.join(allowed)}")
    check_rows(name, array)
    return found


def check_like(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise `InvalidRequest` if an input or output differs from this dtype and shape, or has other rows."""
    check_input(name, array)
    found = dtype_name(as_dtype(array.dtype))
    if found != dtype or tuple(array.shape) != shape:
        raise InvalidRequest(
            f"{name} has dtype {found} and shape {tuple(array.shape)}; allowed here: {dtype} of {shape}"
        )
    check_rows(name, array)


def check_number(
    name: str, value: object, least: float, most: float, *, above: bool = False, below: bool = False
) -> float:
    """Return a real number within limits, the lower one excluded with `above`, the upper one with `below`."""
    if not is_real(value):
        raise InvalidRequest(f"{name}={value!r}; it must be a real number")
    try:
        number = float(cast("float", value))
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    excluded = (above and number == least) or (below and number == most)
    if not (least <= number <= most) or excluded or math.isinf(number):
        begin, end = "(" if above else "[", ")" if below or math.isinf(most) else "]"
        raise InvalidRequest(f"{name}={value!r}; allowed: {begin}{least:g}, {most:g}{end}")
    return number


def input_(name: str, array: Any) -> Operand:
    """Return an array that is read."""
    return Operand(name, array, dtype_name(as_dtype(array.dtype)), tuple(array.shape), READ)


def output(
    name: str, array: Any, dtype: str, shape: tuple[int, ...], inputs: tuple[Operand, ...], *, in_place: bool = False
) -> Operand:
    """Return an array that is written whole: the one given, after checks, or one that is to be allocated.

    With `in_place` it may be one of the inputs, the very view.
    """
    if array is None:
        return Operand(name, None, dtype, shape, WRITE | OVERWRITE)
    check_output(name, array)
    check_like(name, array, dtype, shape)
    same = [o for o in inputs if in_place and same_view(o.given, array)]
    others = [(o.name, o.given) for o in inputs if o.given is not None and o not in same]
    check_disjoint([(name, array)], others, "; or be that very view" if in_place else "")
    return Operand(name, array, dtype, shape, READ | WRITE if same else WRITE | OVERWRITE)


# ---------------------------------------------------------------------------------------------- activations


class GatedGradient(NamedTuple):
    """Gradients of a gated activation.

    Attributes
    ----------
    gate : GpuRef
        Of the gate; of both, as one array of twice the last extent, where gate and up came as one.
    up : GpuRef or None
    """

    gate: GpuRef
    up: GpuRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRequest(FusedRequest):
    """``curve(x)``, or with `gated` ``curve(x) * up``; checked when it is made.

    Parameters
    ----------
    x
        float32, float16, bfloat16 or float64, of any shape; the gate, if `gated`.
    curve : str
        ``"silu"``, ``"squared_relu"``, ``"gelu"`` (by erf) or ``"gelu_tanh"``.
    gated : bool
    up
        As x; None if `gated` and x is one array of gate and up, in this order along the last axis.
    out
        Where the result goes, x or up themselves among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.
    """

    x: Any
    curve: str = "silu"
    gated: bool = False
    up: Any = None
    out: Any = None

    def made(self) -> Made:
        """Return the message."""
        dtype, shape, inputs = _activation(self.x, self.up, self.curve, self.gated)
        packed = self.gated and self.up is None
        out = output("out", self.out, dtype, shape, inputs, in_place=not packed)
        options = (("curve", self.curve), ("dtype", dtype), ("gated", self.gated))
        return Made(
            "fused.activate", (*inputs, out), lambda made: made["out"], "activations",
            (Part("activate", options),), attributes=(("curve", self.curve), ("gated", self.gated)),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationGradientRequest(FusedRequest):
    """Gradients of an `ActivationRequest`, all in one pass; checked when it is made.

    Parameters
    ----------
    dy
        Gradient of the result, of its dtype and shape.
    x, curve, gated, up
        As they were.
    out, up_out
        Where the gradients of x and up go, dy, x and up themselves among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.
    """

    dy: Any
    x: Any
    curve: str = "silu"
    gated: bool = False
    up: Any = None
    out: Any = None
    up_out: Any = None

    def made(self) -> Made:
        """Return the message."""
        dtype, shape, arrays = _activation(self.x, self.up, self.curve, self.gated)
        check_like("dy", self.dy, dtype, shape)
        inputs = (input_("dy", self.dy), *arrays)
        outputs: tuple[Operand, ...] = (output("out", self.out, dtype, tuple(self.x.shape), inputs, in_place=True),)
        if self.up is not None:
            outputs += (output("up_out", self.up_out, dtype, shape, inputs, in_place=True),)
            if self.out is not None and self.up_out is not None:
                check_disjoint([("up_out", self.up_out)], [("out", self.out)])
        elif self.up_out is not None:
            raise InvalidRequest("up_out goes with up; the gradient of gate and up as one array is out")
        gated = self.gated
        options = (("curve", self.curve), ("dtype", dtype), ("gated", gated))
        return Made(
            "fused.activate_backward",
            (*inputs, *outputs),
            lambda made: GatedGradient(made["out"], made.get("up_out")) if gated else made["out"],
            "activations",
            (Part("activate_backward", options),),
            attributes=(("curve", self.curve), ("gated", gated)),
        )


def _activation(x: Any, up: Any, curve: str, gated: bool) -> tuple[str, tuple[int, ...], tuple[Operand, ...]]:
    """Return the dtype and shape of a result, and the inputs."""
    check_choice("curve", curve, CURVES)
    check_flag("gated", gated)
    name = "x, the gate," if gated else "x"
    dtype = check_float(name, x)
    shape = tuple(x.shape)
    if up is not None:
        if not gated:
            raise InvalidRequest("up goes with gated=True")
        check_like("up", up, dtype, shape)
        return dtype, shape, (input_("x", x), input_("up", up))
    if gated:
        if not shape or shape[-1] % 2:
            raise InvalidRequest(f"{name} has shape {shape}; without up the last extent must be even: gate, then up")
        shape = (*shape[:-1], shape[-1] // 2)
    return dtype, shape, (input_("x", x),)
