"""Contractions of tensors of blocks: a step for each product of two blocks, where they lie in the tensors' values."""

from __future__ import annotations

import math
from dataclasses import replace

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import BlockAttributes, EinsumAttributes
from ..blocks import block_extents, block_offsets, block_products
from ..modes import Subscripts
from ..path import contractions
from ..types import accumulator
from .arrays import Array
from .block_call import contract_blocks
from .einsum import Einsum
from .finish import NOTHING, Finish
from .scratch import Scratch

__all__ = ["build_blocks"]


class Blocks(Einsum):
    """The steps of one contraction."""

    is_frugal = True

    def __init__(self, spec: PlanSpec[BlockAttributes], context: CudaContext) -> None:
        given = spec.attributes
        self.spec, self.context, self.given = spec, context, given
        self.how = EinsumAttributes(
            inputs=given.inputs, output=given.output, conj=given.conj, steps=((0, 1),), slices=(), dtype=given.dtype,
            compute=given.compute, route=given.route, added="none", zero=False,
        )  # fmt: skip
        self.dtype, self.summed = given.dtype, accumulator(given.dtype)
        (self.step,) = contractions(Subscripts(given.inputs, given.output, ()), self.how.steps)
        self.scratch = Scratch(spec.op, context.most)
        self.notes, self.tuning = [], []
        self.choice, self.taken = None, ""
        self.output = given.output
        modes = (*given.inputs, given.output)
        sections = [tuple(given.sections[m] for m in own) for own in modes]
        self.modes, self.sections = modes, sections
        self.starts = [block_offsets(cut, blocks) for cut, blocks in zip(sections, given.blocks, strict=True)]

    def build(self) -> Built:
        """Return the plan."""
        terms = block_products(self.given.inputs, self.given.output, self.given.blocks[:2])
        pairs = sum(map(len, terms.values()))
        if not self._at_once():
            self._all({} if self.given.zero else terms)
        program = self.scratch.program((*dict.fromkeys(self.notes), f"{pairs} products of two blocks"))
        return Built(program, program.workspace, program.notes)

    def _at_once(self) -> bool:
        """Add one call for all blocks, unless the plan is to do without, or cuTENSOR does not have it."""
        route = self.given.route
        if self.given.zero or route not in ("auto", "cutensor"):
            return False
        try:
            return contract_blocks(self, lambda: self._all({}))
        except Unsupported:
            if route == "cutensor":
                raise
            return False  # without the library

    def _all(self, terms: dict[tuple[int, ...], list[tuple[int, int]]]) -> None:
        """Add the steps of all blocks of the result, from the products of which each is the sum."""
        for number, block in enumerate(self.given.blocks[2]):
            self._block(number, terms.get(block, []))

    def _at(self, tensor: int, number: int, operand: int) -> Array:
        """Return a block of a tensor: 0 and 1 are A and B, 2 has the result's structure."""
        modes = self.modes[tensor]
        shape = block_extents(self.sections[tensor], self.given.blocks[tensor][number])
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return Array(
            ("operand", operand), self.spec.operands[operand].dtype, modes, strides, self.starts[tensor][number]
        )

    def _block(self, number: int, pairs: list[tuple[int, int]]) -> None:
        """Add the steps of a block of the result."""
        extents = dict(zip(self.output, block_extents(self.sections[2], self.given.blocks[2][number]), strict=True))
        last = len(self.spec.operands) - 1
        into = self._at(2, number, last)
        c = self._at(2, number, 2) if self.given.added == "c" else None
        finish = Finish(self.spec.scalars, None, None, c, self.given.added == "out")
        self.extents = [extents.get(m, 1) for m in range(len(self.given.sections))]
        if 0 in extents.values():
            return
        inner = [m for m in range(len(self.given.sections)) if m not in extents]
        kept = []
        for i, j in pairs:
            sizes = {
                m: self.given.sections[m][at] for m, at in zip(self.modes[0], self.given.blocks[0][i], strict=True)
            }
            if all(sizes[m] for m in inner):
                kept.append((i, j, [extents.get(m, sizes.get(m, 1)) for m in range(len(self.given.sections))]))
        if not kept:
            self.reduce((), into, self.output, (), self.summed, replace(finish, zero=True), conj=())
            return
        # A single product is finished by its own step; a sum of several is made in the result, if that has its type.
        plain = finish == NOTHING and into.dtype == self.summed
        total = into if len(kept) == 1 or plain else self.buffer(self.summed, self.output)
        for at, (i, j, whole) in enumerate(kept):
            self.extents = whole
            operands = [(self._at(0, i, 0), self.given.conj[0]), (self._at(1, j, 1), self.given.conj[1])]
            own = finish if len(kept) == 1 else Finish(added=True) if at else NOTHING
            self._step(self.step, operands, total, own)
        if total is not into:
            self.map(total, into, self.output, self.summed, finish)


def build_blocks(spec: PlanSpec[BlockAttributes], context: CudaContext) -> Built:
    """Build ``tensor.blocks``.  Waits for the compiler, and for the libraries' heuristics.

    Raises
    ------
    Unsupported
        For more workspace than the limit.
    """
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    return Blocks(spec, context).build()
