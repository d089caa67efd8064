"""How the methods of the tensor actor give values, and how these become requests."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from ...plans.calls import CallForm, Forms, form_of
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
    TensorElementwiseRequest, "out", "subscripts ab abc unary unary_ab out_dtype padding route tune", "alpha beta gamma"
)
REDUCE: Final = form_of(TensorReduceRequest, "x c out", "op subscripts out_dtype route tune", "alpha beta")

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
