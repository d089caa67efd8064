"""How the methods of the matmul actor give values, and how these become requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ..._lib.sender import are_aligned
from ...plans.calls import CallForm, Forms
from .grouped import ALIGNMENT, GroupedRequest
from .request import MatmulRequest

__all__ = ["FORMS", "GROUP", "LISTS", "MATMUL", "group_values", "operand_values"]

#: Operands of a request, besides those of a `CustomEpilogue` and factors in device memory.
_ARRAYS: Final = (
    "a", "b", "c", "out", "bias", "aux", "bias_grad", "a_scale", "b_scale", "c_scale", "d_scale",
)  # fmt: skip
_OPTIONS: Final = (
    "trans_a", "trans_b", "epilogue", "out_dtype", "compute_type", "compute", "fast_accum", "reduced_precision",
    "conj_a", "conj_b", "amax", "tune", "copies", "route",
)  # fmt: skip
_FACTORS: Final = ("alpha", "beta")
_FIELDS: Final = (*_ARRAYS, *_OPTIONS, *_FACTORS)


def _unpack_matmul(values: tuple[Any, ...]) -> MatmulRequest:
    """Return the request of a call: its fields, the names of a custom epilogue's operands, and these operands."""
    given, operands = values[len(_FIELDS)], values[len(_FIELDS) + 1 :]
    if isinstance(given, _Names):
        given = dict(zip(given.names, operands, strict=True))
    return MatmulRequest(**dict(zip(_FIELDS, values, strict=False)), operands=given)


def _pack_matmul(r: MatmulRequest) -> tuple[Any, ...]:
    return (*_fields_of(r), *operand_values(r.operands))


class _Names(NamedTuple):
    names: tuple[str, ...]


@lru_cache(maxsize=1024, typed=True)
def _names(*names: str) -> _Names:
    return _Names(names)


def operand_values(operands: Any) -> tuple[Any, ...]:
    """Return the names of operands, and the operands; what is no mapping as it is, for the request to refuse."""
    if operands.__class__ is dict or isinstance(operands, Mapping):
        return (_names(*operands), *operands.values())
    return (operands,)


_fields_of: Final = attrgetter(*_FIELDS)
MATMUL: Final = CallForm(
    _unpack_matmul,
    _pack_matmul,
    (*_FIELDS, "operands"),
    b"a" * len(_ARRAYS) + b"o" * len(_OPTIONS) + b"n" * len(_FACTORS) + b"o",
    (*({f.name: f.default for f in fields(MatmulRequest)}[name] for name in _FIELDS), None),
    b"a",
)


def _unpack_group(values: tuple[Any, ...]) -> GroupedRequest:
    """Return the request of a group: which lists there are and how long they are, options, factors, the arrays."""
    lists, names, options, _, alpha, beta, *arrays = values
    found: dict[str, Any] = {"a": None, "b": None}
    start = 0
    for name, count in zip(LISTS, lists, strict=True):
        if count is not None:
            found[name] = arrays[start : start + count]
            start += count
    given = dict(zip(names, options, strict=True)) | {"alpha": alpha, "beta": beta}
    return GroupedRequest(**found, way=given.pop("way"), options=tuple(sorted(given.items())))


def _pack_group(r: GroupedRequest) -> tuple[Any, ...]:
    given = dict(r.options)
    alpha, beta = given.pop("alpha", 1.0), given.pop("beta", 0.0)
    return group_values((r.a, r.b, r.c, r.bias, r.out), r.way, given, alpha, beta)


def group_values(
    lists: tuple[Any, ...], way: str, options: Mapping[str, Any], alpha: Any, beta: Any
) -> tuple[Any, ...]:
    """Return the values of a group's call: which lists there are and how long, options, factors, the arrays."""
    counts: list[int | None] = []
    arrays: list[Any] = []
    for given in lists:
        if given is None:
            counts.append(None)
        else:
            counts.append(len(given))
            arrays += given
    aligned = are_aligned(arrays, ALIGNMENT)
    return (tuple(counts), ("way", *options), (way, *options.values()), aligned, alpha, beta, *arrays)


LISTS: Final = ("a", "b", "c", "bias", "out")
GROUP: Final = CallForm(
    _unpack_group, _pack_group, ("lists", "names", "options", "aligned", "alpha", "beta"), b"oooonn", (None,) * 6, b"a"
)

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {MatmulRequest: MATMUL, GroupedRequest: GROUP}
