"""Tensor maps: how the Tensor Memory Accelerator of a GPU sees an array, for kernels in CUDA C++.

The rules are those of ``cuTensorMapEncodeTiled`` (CUDA driver API, "Tensor Map Object
Management"), which encodes the map in the worker, at each launch, for the address that the array has then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..._support.checks import check_choice
from ..._support.options import named_methods
from ...arrays.gpu_ref import GpuRef
from ...dtypes import dtype_name
from ...errors import InvalidRequest, Unsupported

__all__ = ["NBYTES", "TensorMap"]

#: Size of a CUtensorMap.
NBYTES: Final = 128

# Values of the driver's enums are the positions in these tables.
_TYPES: Final = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16",
)  # fmt: skip
_SAME_BITS: Final = {
    "bool": "uint8", "int8": "uint8", "int16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
}  # fmt: skip
_INTERLEAVES: Final = ("none", "16B", "32B")
_SWIZZLES: Final = ("none", "32B", "64B", "128B")
_PROMOTIONS: Final = ("none", "64B", "128B", "256B")
_FILLS: Final = ("zeros", "nan")
_MOST_AXES, _MOST_BOX, _MOST_STEP = 5, 256, 8


@named_methods
@dataclass(frozen=True, slots=True)
class TensorMap:
    """An array as a tensor map, for a parameter ``const __grid_constant__ CUtensorMap``.

    Axes are in NumPy's order, the innermost last (CUDA's coordinates come the other way round).

    Attributes
    ----------
    ref : GpuRef
        Of one to five axes, the last one contiguous; strides of the others are multiples of 16 bytes, as is the
        address.
    box : tuple of int
        Extents of the tile that an instruction moves, 1 to 256 along each axis; its last axis holds a multiple of 16
        bytes.
    element_strides : tuple of int, optional
        Step along each axis inside of a box, 1 to 8, so that ceil(box / step) elements are moved; the last one must be
        1 unless interleaved.
    swizzle : {"none", "32B", "64B", "128B"}
        How the tile's 16-byte pieces are spread over the banks of shared memory; its rows must not be longer.
    interleave : {"none", "16B", "32B"}
        For arrays such as NC/8HWC8; needs three axes.  ``"32B"`` needs swizzle 32B, and addresses and strides that
        are multiples of 32 bytes.
    l2_promotion : {"none", "64B", "128B", "256B"}
        Bytes that the second level cache fetches at once.
    oob_fill : {"zeros", "nan"}
        The value of elements outside of the array; ``"nan"`` for floating point only.

    Raises
    ------
    InvalidRequest
        If the driver would refuse the map; the message names the rule.
    Unsupported
        For complex elements, which there are no maps of.
    """

    ref: GpuRef
    box: tuple[int, ...]
    element_strides: tuple[int, ...] | None = None
    swizzle: Literal["none", "32B", "64B", "128B"] = "none"
    interleave: Literal["none", "16B", "32B"] = "none"
    l2_promotion: Literal["none", "64B", "128B", "256B"] = "none"
    oob_fill: Literal["zeros", "nan"] = "zeros"

    def __post_init__(self) -> None:
        ref = self.ref
        if not isinstance(ref, GpuRef):
            raise InvalidRequest(f"ref is a {type(ref).__name__}; a TensorMap describes a GpuRef")
        check_choice("swizzle", self.swizzle, _SWIZZLES)
        check_choice("interleave", self.interleave, _INTERLEAVES)
        check_choice("l2_promotion", self.l2_promotion, _PROMOTIONS)
        check_choice("oob_fill", self.oob_fill, _FILLS)
        if not 1 <= ref.ndim <= _MOST_AXES:
            raise InvalidRequest(f"ref has shape {ref.shape}; a tensor map has 1 to {_MOST_AXES} axes")
        object.__setattr__(self, "box", _integers("box", self.box, ref.ndim, _MOST_BOX))
        steps = (1,) * ref.ndim if self.element_strides is None else self.element_strides
        object.__setattr__(self, "element_strides", _integers("element_strides", steps, ref.ndim, _MOST_STEP))
        _type_of(ref.dtype)
        self._check_array()
        self._check_modes()

    @property
    def alignment(self) -> int:
        """Bytes of which the array's address must be a multiple."""
        return 32 if self.interleave == "32B" else 16

    def _check_array(self) -> None:
        ref, unit = self.ref, self.alignment
        if not ref.size or max(ref.shape) > 1 << 32:
            raise InvalidRequest(f"ref has shape {ref.shape}; extents of a tensor map are 1 to 2**32")
        if ref.strides[-1] != ref.dtype.itemsize and ref.shape[-1] > 1:
            raise InvalidRequest(
                f"ref has strides {ref.strides}; the last axis of a tensor map must be contiguous: copy it first"
            )
        for axis, stride in enumerate(ref.strides[:-1]):
            if stride <= 0 or stride % unit or stride >= 1 << 40:
                raise InvalidRequest(
                    f"axis {axis} of ref has a stride of {stride} bytes; a tensor map takes positive multiples of "
                    f"{unit} bytes below 2**40: pad the rows, or copy it"
                )

    def _check_modes(self) -> None:
        ref = self.ref
        inner = self.box[-1] * ref.dtype.itemsize
        if self.interleave == "none":
            if inner % 16:
                raise InvalidRequest(
                    f"box {self.box} of {dtype_name(ref.dtype)} is {inner} bytes wide; it must be a multiple of 16"
                )
            if self.swizzle != "none" and inner > int(self.swizzle[:-1]):
                raise InvalidRequest(
                    f"box {self.box} of {dtype_name(ref.dtype)} is {inner} bytes wide; swizzle {self.swizzle} takes at "
                    f"most {self.swizzle[:-1]} bytes"
                )
            if self.element_strides is not None and self.element_strides[-1] != 1:
                raise InvalidRequest(
                    f"element_strides are {self.element_strides}; the last one must be 1 unless the map is interleaved"
                )
        elif ref.ndim < 3:
            raise InvalidRequest(f"ref has shape {ref.shape}; an interleaved tensor map has at least 3 axes")
        elif self.interleave == "32B" and self.swizzle != "32B":
            raise InvalidRequest(f"swizzle is {self.swizzle!r}; with interleave '32B' it must be '32B'")
        if self.oob_fill == "nan" and not _type_of(ref.dtype).startswith(("float", "bfloat")):
            raise InvalidRequest(f"oob_fill is 'nan' for {dtype_name(ref.dtype)}; it is for floating-point maps only")

    def described(self) -> tuple[tuple[tuple[int, int, int, int], ...], tuple[int, int, int, int, int]]:
        """Return extent, stride (bytes), box and step of each axis, the innermost first; and the modes' values."""
        ref = self.ref
        axes = zip(ref.shape, ref.strides, self.box, self.element_strides or (), strict=True)
        modes = (
            _TYPES.index(_type_of(ref.dtype)),
            _INTERLEAVES.index(self.interleave),
            _SWIZZLES.index(self.swizzle),
            _PROMOTIONS.index(self.l2_promotion),
            _FILLS.index(self.oob_fill),
        )
        return tuple(axes)[::-1], modes


def _type_of(dtype: np.dtype[Any]) -> str:
    """Return the name of the elements of a map."""
    name = dtype_name(dtype)
    found = _SAME_BITS.get(name, name)
    if found not in _TYPES:
        raise Unsupported(f"ref is of {name}; tensor maps have elements of {', '.join((*_TYPES, *_SAME_BITS))}")
    return found


def _integers(option: str, values: object, count: int, most: int) -> tuple[int, ...]:
    items = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    if len(items) != count or any(
        isinstance(item, bool) or not isinstance(item, int | np.integer) or not 1 <= item <= most for item in items
    ):
        raise InvalidRequest(f"{option} is {values!r}; it must be {count} integers from 1 to {most}, one for each axis")
    return tuple(int(item) for item in items)
