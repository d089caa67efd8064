"""How the methods of the tensor actor give values, and how these become requests."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from ...plans.calls import CallForm, Forms, form_of
from .elementwise import TensorElementwiseRequest
from .reduction import TensorReduceRequest
from .request import EinsumRequest

__all__ = ["EINSUM", "ELEMENTWISE", "FORMS", "REDUCE"]


def _with_operands(request: Any, arrays: str, options: str, numbers: str) -> CallForm:
    """Return the form of requests with any number of operands, which come last."""
    kinds = {name: kind for names, kind in ((arrays, "a"), (options, "o"), (numbers, "n")) for name in names.split()}
    defaults = {f.name: f.default for f in fields(request)}
    names, count = tuple(kinds), len(kinds)
    of = attrgetter(*names)

    def unpack(values: tuple[Any, ...]) -> Any:
        return request(**dict(zip(names, values, strict=False)), operands=values[count:])

    def pack(r: Any) -> tuple[Any, ...]:
        return (*of(r), *r.operands)

    return CallForm(
        unpack, pack, names, "".join(kinds.values()).encode(), tuple(defaults.get(name) for name in names), b"a"
    )


_EINSUM_VALUES: Final = (
    "c", "out", "subscripts", "conj", "out_dtype", "compute", "optimize", "memory_limit", "route", "tune",
    "deterministic", "tail", "tail_names", "alpha", "beta",
)  # fmt: skip


def _einsum_form() -> CallForm:
    """Return the form of expressions: operands come last, and after them those of the tail, whose names are a value."""
    count, tail_names = len(_EINSUM_VALUES), _EINSUM_VALUES.index("tail_names")
    own = tuple(name for name in _EINSUM_VALUES if name != "tail_names")
    defaults = {f.name: f.default for f in fields(EinsumRequest)} | {"tail_names": ()}
    before, after = attrgetter(*own[:tail_names]), attrgetter(*own[tail_names:])

    def unpack(values: tuple[Any, ...]) -> EinsumRequest:
        names, arrays = values[tail_names], values[count:]
        operands = arrays[: len(arrays) - len(names)]
        given = dict(zip(_EINSUM_VALUES, values, strict=False))
        del given["tail_names"]
        return EinsumRequest(
            **given, operands=operands, tail_operands=dict(zip(names, arrays[len(operands) :], strict=True))
        )

    def pack(r: EinsumRequest) -> tuple[Any, ...]:
        return (*before(r), tuple(r.tail_operands), *after(r), *r.operands, *r.tail_operands.values())

    kinds = b"aa" + b"o" * (count - 4) + b"nn"
    return CallForm(unpack, pack, _EINSUM_VALUES, kinds, tuple(defaults.get(n) for n in _EINSUM_VALUES), b"a")


EINSUM: Final = _einsum_form()
ELEMENTWISE: Final = _with_operands(
    TensorElementwiseRequest, "out", "subscripts ab abc unary unary_ab out_dtype padding route", "alpha beta gamma"
)
REDUCE: Final = form_of(TensorReduceRequest, "x c out", "op subscripts out_dtype route", "alpha beta")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    EinsumRequest: EINSUM,
    TensorElementwiseRequest: ELEMENTWISE,
    TensorReduceRequest: REDUCE,
}
