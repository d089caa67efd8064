"""Contractions of tensors of blocks on the host device: NumPy's einsum for each product of two blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES
from ...plans.spec import PlanSpec
from .attributes import BlockAttributes
from .blocks import block_extents, block_offsets, block_products
from .host import factors_of_call, store
from .modes import text_of
from .types import accumulator

__all__ = ["build_blocks"]

Array = np.ndarray[Any, Any]


def build_blocks(spec: PlanSpec[BlockAttributes], _context: HostContext) -> Built:
    """Return the run of ``tensor.blocks``: values of A and B, [c], out."""
    how = spec.attributes
    kind = DTYPES[accumulator(how.dtype)]
    terms = block_products(how.inputs, how.output, how.blocks[:2])
    modes = (*how.inputs, how.output)
    sections = [tuple(how.sections[m] for m in own) for own in modes]
    starts = [block_offsets(cut, blocks) for cut, blocks in zip(sections, how.blocks, strict=True)]
    text = text_of(how.inputs, how.output)

    def part(values: Array, tensor: int, number: int) -> Array:
        start, end = starts[tensor][number : number + 2]
        return values[start:end].reshape(block_extents(sections[tensor], how.blocks[tensor][number]))

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        inputs = [x if how.zero else x.astype(kind) for x in arrays[:2]]
        inputs = [x.conj() if conj else x for x, conj in zip(inputs, how.conj, strict=True)]
        c = {"none": None, "c": arrays[2], "out": arrays[-1]}[how.added]
        factors = factors_of_call(arrays, scalars, len(arrays) - 1, kind)
        for number, block in enumerate(how.blocks[2]):
            out = part(arrays[-1], 2, number)
            made = np.zeros(out.shape, kind)
            for i, j in () if how.zero else terms.get(block, ()):
                product = np.einsum(text, part(inputs[0], 0, i), part(inputs[1], 1, j))
                made = np.logical_or(made, product) if kind.kind == "b" else made + product
            store(out, made, None if c is None else part(c, 2, number), factors, kind)

    return Built(run, notes=(f"numpy.einsum: {text} for each pair of blocks",))
