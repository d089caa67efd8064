"""Contractions of tensors of blocks by one call of cuTENSOR."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ...._lib.cutensor import CONSTANTS, TensorBlocks
from ....builders.cuda.sequence import Source
from ....dtypes import as_dtype
from ....errors import LibraryError, Unsupported
from .contract import factors_of
from .cutensor import TYPES, BlocksCall, compute_of, open_library

if TYPE_CHECKING:
    from .blocks import Blocks

__all__ = ["contract_blocks", "structure"]

#: Dtypes of tensors.
_DTYPES: Final = ("float32", "float64", "complex64", "complex128")
#: Modes of a tensor.
_MODES: Final = 32


def structure(
    modes: Sequence[int], sections: Sequence[Sequence[int]], blocks: Sequence[Sequence[int]], starts: Sequence[int],
    itemsize: int,
) -> Iterator[int]:  # fmt: skip
    """Yield the words of a tensor's structure, as ``cython/libraries/cutensor/blocks.h`` has them.

    The innermost mode is the first: strides of all blocks must ascend in one order of modes, also where some are equal.

    Parameters
    ----------
    modes : sequence of int
    sections : sequence of sequence of int
        Of each of these modes.
    blocks : sequence of sequence of int
        Coordinates of each block.
    starts : sequence of int
        Where each block begins, in elements.
    itemsize : int
        Bytes of an element.
    """
    inner = sections[::-1]
    yield from (len(modes), len(blocks), *modes[::-1], *map(len, inner))
    for extents in inner:
        yield from extents
    for block in blocks:
        yield from block[::-1]
    for block in blocks:
        shape = [extents[i] for extents, i in zip(inner, block[::-1], strict=True)]
        yield from (math.prod(shape[:i]) for i in range(len(shape)))
    yield from (start * itemsize for start, _ in zip(starts, blocks, strict=False))


def _refusal(builder: Blocks) -> str:
    """Return why the library does not take these tensors, or nothing."""
    given = builder.given
    dtypes = {operand.dtype for operand in builder.spec.operands}
    if len(dtypes) > 1 or given.dtype not in _DTYPES or given.dtype not in dtypes or given.compute != given.dtype:
        return f"it has {', '.join(_DTYPES)}, of one dtype in all tensors, and no other compute type"
    if any(given.conj) and given.dtype.startswith("complex"):
        return "it conjugates no tensor of blocks"
    if not all(0 < len(modes) <= _MODES for modes in builder.modes):
        return f"it takes 1 to {_MODES} modes"
    if not all(given.blocks) or any(0 in given.sections[m] for modes in builder.modes for m in modes):
        return "it takes no tensor without blocks, and no section without elements"
    return ""


def contract_blocks(builder: Blocks, instead: Callable[[], object]) -> bool:
    """Add the contraction as one call, if the library has it; `instead` adds steps for messages with alpha = 0.

    Raises
    ------
    Unsupported
        If the library is missing.
    """
    open_library()
    reason = _refusal(builder) or _add(builder, instead)
    builder.notes.append(
        f"cuTENSOR does not take the blocks at once: {reason}" if reason else "all blocks at once: cuTENSOR"
    )
    return not reason


def _add(builder: Blocks, instead: Callable[[], object]) -> str:
    given, spec = builder.given, builder.spec
    size = as_dtype(given.dtype).itemsize
    words: list[int] = []
    for modes, sections, blocks, starts in zip(
        builder.modes, builder.sections, given.blocks, builder.starts, strict=True
    ):
        words += structure(modes, sections, blocks, starts, size)
    out = len(spec.operands) - 1
    factors = factors_of(spec.scalars, is_complex=given.dtype.startswith("complex"))
    parts = [tuple(factor) + (-1,) * (2 - len(factor)) for factor in factors] or [(-1, -1)] * 2
    call = BlocksCall(
        type=CONSTANTS[f"CUDA_{TYPES[given.dtype]}"],
        compute=compute_of("float64" if given.dtype in ("float64", "complex128") else "float32"),
        operand=(0, 1, {"c": 2}.get(given.added, out), out),
        factor=tuple(part[0] for part in parts) + tuple(part[1] for part in parts),
        number=(1, 0),
        workspace_bytes=builder.context.most,
        n_operands=len(spec.operands),
        n_scalars=len(spec.scalars),
    )

    def add() -> str:
        try:
            run = TensorBlocks(builder.context.backend, call, tuple(words))
        except (Unsupported, LibraryError) as error:
            return str(error)
        sources: tuple[Source, ...] = tuple(("operand", i) for i in range(len(spec.operands)))
        builder.scratch.add(run, sources, tuple(("scalar", j) for j in range(len(spec.scalars))), run.workspace)
        return ""

    return builder.guarded(factors[:1], add, instead)
