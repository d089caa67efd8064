"""How the methods of the CUTLASS actor give values, and how these become requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...plans.calls import CallForm, Forms
from .convolution import FusedConvolutionRequest
from .grouped import GroupedGemmRequest
from .request import GemmRequest
from .spec import is_array

__all__ = ["CONVOLUTION", "FORMS", "GEMM", "GROUPED", "gemm_values"]

_ARRAYS: Final = ("a", "b", "c", "out", "b_scale")
_OPTIONS: Final = ("epilogue", "out_dtype", "compute", "fast_accum", "config")
_FACTORS: Final = ("alpha", "beta")
_FIELDS: Final = (*_ARRAYS, *_OPTIONS, "tune", *_FACTORS)


class _Names(NamedTuple):
    """Names of operands, and of outputs, each with its dtype, or None for an array that follows."""

    operands: tuple[str, ...]
    outputs: tuple[tuple[str, Any], ...]


@lru_cache(maxsize=1024, typed=True)
def _names(operands: tuple[str, ...], outputs: tuple[tuple[str, Any], ...]) -> _Names:
    return _Names(operands, outputs)


def gemm_values(fields: tuple[Any, ...], operands: Any, outputs: Any) -> tuple[Any, ...]:
    """Return the values of a call: fields, names, operands and given outputs; what is no mapping stays."""
    if not operands and not outputs:
        return (*fields, None)
    operands, outputs = operands or {}, outputs or {}
    if not isinstance(operands, Mapping) or not isinstance(outputs, Mapping):
        return (*fields, (operands, outputs))
    wanted = tuple((name, None if is_array(value) else value) for name, value in outputs.items())
    try:
        names = _names(tuple(operands), wanted)
    except TypeError:  # a name or dtype that is not hashable
        names = _Names(tuple(operands), wanted)
    return (*fields, names, *operands.values(), *(value for value in outputs.values() if is_array(value)))


def _unpack(values: tuple[Any, ...]) -> GemmRequest:
    fields = dict(zip(_FIELDS, values, strict=False))
    names, rest = values[len(_FIELDS)], values[len(_FIELDS) + 1 :]
    if names is None:
        return GemmRequest(**fields)
    if not isinstance(names, _Names):
        return GemmRequest(**fields, operands=names[0], outputs=names[1])
    operands = dict(zip(names.operands, rest, strict=False))
    arrays = iter(rest[len(names.operands) :])
    outputs = {name: next(arrays) if dtype is None else dtype for name, dtype in names.outputs}
    return GemmRequest(**fields, operands=operands, outputs=outputs)


def _pack(r: GemmRequest) -> tuple[Any, ...]:
    return gemm_values(tuple(getattr(r, name) for name in _FIELDS), r.operands, r.outputs)


GEMM: Final = CallForm(
    _unpack,
    _pack,
    (*_FIELDS, "names"),
    b"a" * len(_ARRAYS) + b"o" * (len(_OPTIONS) + 1) + b"n" * len(_FACTORS) + b"o",
    (None, None, None, None, None, None, None, None, False, None, False, 1.0, 0.0, None),
    b"n",
)

_GROUPED_ARRAYS: Final = ("a", "b", "offsets", "c", "out")
_GROUPED_FIELDS: Final = (*_GROUPED_ARRAYS, *_OPTIONS, "tune", *_FACTORS)


def _unpack_grouped(values: tuple[Any, ...]) -> GroupedGemmRequest:
    fields = dict(zip(_GROUPED_FIELDS, values, strict=False))
    names, rest = values[len(_GROUPED_FIELDS)], values[len(_GROUPED_FIELDS) + 1 :]
    if names is None:
        return GroupedGemmRequest(**fields)
    if not isinstance(names, _Names):
        return GroupedGemmRequest(**fields, operands=names[0])
    return GroupedGemmRequest(**fields, operands=dict(zip(names.operands, rest, strict=False)))


def _pack_grouped(r: GroupedGemmRequest) -> tuple[Any, ...]:
    return gemm_values(tuple(getattr(r, name) for name in _GROUPED_FIELDS), r.operands, None)


GROUPED: Final = CallForm(
    _unpack_grouped,
    _pack_grouped,
    (*_GROUPED_FIELDS, "names"),
    b"a" * len(_GROUPED_ARRAYS) + b"o" * (len(_OPTIONS) + 1) + b"n" * len(_FACTORS) + b"o",
    (None, None, None, None, None, None, None, None, False, None, False, 1.0, 0.0, None),
    b"n",
)

_CONVOLUTION_ARRAYS: Final = ("a", "b", "c", "out")
_CONVOLUTION_OPTIONS: Final = (
    "operation", "size", "stride", "padding", "dilation", "epilogue", "out_dtype", "compute", "config", "tune"
)  # fmt: skip
_CONVOLUTION_FIELDS: Final = (*_CONVOLUTION_ARRAYS, *_CONVOLUTION_OPTIONS, *_FACTORS)


def _unpack_convolution(values: tuple[Any, ...]) -> FusedConvolutionRequest:
    fields = dict(zip(_CONVOLUTION_FIELDS, values, strict=False))
    names, rest = values[len(_CONVOLUTION_FIELDS)], values[len(_CONVOLUTION_FIELDS) + 1 :]
    if names is None:
        return FusedConvolutionRequest(**fields)
    if not isinstance(names, _Names):
        return FusedConvolutionRequest(**fields, operands=names[0])
    return FusedConvolutionRequest(**fields, operands=dict(zip(names.operands, rest, strict=False)))


def _pack_convolution(r: FusedConvolutionRequest) -> tuple[Any, ...]:
    return gemm_values(tuple(getattr(r, name) for name in _CONVOLUTION_FIELDS), r.operands, None)


CONVOLUTION: Final = CallForm(
    _unpack_convolution,
    _pack_convolution,
    (*_CONVOLUTION_FIELDS, "names"),
    b"a" * len(_CONVOLUTION_ARRAYS) + b"o" * len(_CONVOLUTION_OPTIONS) + b"n" * len(_FACTORS) + b"o",
    (None, None, None, None, None, None, 1, 0, 1, None, None, None, None, False, 1.0, 0.0, None),
    b"n",
)

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {GemmRequest: GEMM, GroupedGemmRequest: GROUPED, FusedConvolutionRequest: CONVOLUTION}
