"""How the methods of the tensor actor give values, and how these become requests."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from ...plans.calls import CallForm, Forms
from .block_request import BlockContractionRequest
from .blocks import BlockTensor
from .elementwise import TensorElementwiseRequest
from .reduction import TensorReduceRequest
from .request import EinsumRequest

__all__ = ["BLOCKS", "EINSUM", "ELEMENTWISE", "FORMS", "REDUCE"]


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


def _with_tail(request: Any, arrays: str, options: str, numbers: str, *, several: bool) -> CallForm:
    """Return the form of requests with a tail, whose operands come last, and whose names are a value.

    With `several` the request's own operands come before these.
    """
    kinds = {name: kind for names, kind in ((arrays, "a"), (options, "o"), (numbers, "n")) for name in names.split()}
    names, count = tuple(kinds), len(kinds)
    place = names.index("tail_names")
    before, after = attrgetter(*names[:place]), attrgetter(*names[place + 1 :])
    defaults = {f.name: f.default for f in fields(request)} | {"tail_names": ()}

    def unpack(values: tuple[Any, ...]) -> Any:
        given = dict(zip(names, values, strict=False))
        called = given.pop("tail_names")
        first = len(values) - len(called)
        if several:
            given["operands"] = values[count:first]
        return request(**given, tail_operands=dict(zip(called, values[first:], strict=True)))

    def pack(r: Any) -> tuple[Any, ...]:
        own = r.operands if several else ()
        return (*before(r), tuple(r.tail_operands), *after(r), *own, *r.tail_operands.values())

    return CallForm(
        unpack, pack, names, "".join(kinds.values()).encode(), tuple(defaults.get(name) for name in names), b"a"
    )


EINSUM: Final = _with_tail(
    EinsumRequest, "c out",
    "subscripts conj out_dtype compute optimize memory_limit route tune deterministic order tail tail_names",
    "alpha beta", several=True,
)  # fmt: skip
ELEMENTWISE: Final = _with_operands(
    TensorElementwiseRequest, "out", "subscripts ab abc unary unary_ab out_dtype padding route tune", "alpha beta gamma"
)
REDUCE: Final = _with_tail(
    TensorReduceRequest, "x c out", "op subscripts out_dtype route tune tail tail_names", "alpha beta", several=False
)

_BLOCK_VALUES: Final = (
    "a", "b", "c", "out", "subscripts", "structures", "blocks", "conj", "compute", "route", "alpha", "beta",
)  # fmt: skip


def _block_form() -> CallForm:
    """Return the form of contractions of blocks, whose arrays are values; `structures` are the sections and blocks."""
    names = _BLOCK_VALUES[:4]
    others = attrgetter(*_BLOCK_VALUES[6:])

    def unpack(values: tuple[Any, ...]) -> BlockContractionRequest:
        given = dict(zip(_BLOCK_VALUES, values, strict=True))
        for name, structure in zip(names, given.pop("structures"), strict=True):
            if structure is not None:
                given[name] = BlockTensor(given[name], *structure)
        return BlockContractionRequest(**given)

    def pack(r: BlockContractionRequest) -> tuple[Any, ...]:
        tensors = [getattr(r, name) for name in names]
        values = [None if x is None else x.values for x in tensors]
        structures = tuple(None if x is None else (x.sections, x.blocks) for x in tensors)
        return (*values, r.subscripts, structures, *others(r))

    defaults = (None, None, None, None, None, None, None, False, None, "auto", 1, 0)
    return CallForm(unpack, pack, _BLOCK_VALUES, b"aaaaoooooonn", defaults)


BLOCKS: Final = _block_form()

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    BlockContractionRequest: BLOCKS,
    EinsumRequest: EINSUM,
    TensorElementwiseRequest: ELEMENTWISE,
    TensorReduceRequest: REDUCE,
}
