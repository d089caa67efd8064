"""From a plan specification of a range of eigenvalues to a call of cuSOLVER for each matrix, and kernels around it."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from ...._lib import cusolver
from ...._lib.cusolver import CONSTANTS
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....plans.spec import PlanSpec
from ..attributes import EigenRangeAttributes
from .decomposition import DecompositionSteps
from .steps import Matrix

__all__ = ["build_eigen_range"]


def build_eigen_range(spec: PlanSpec[EigenRangeAttributes], context: CudaContext) -> Built:
    """Build a range of eigenvalues: operands in the order of the request's lowering."""
    if 0 in spec.attributes.batch:
        return Built("noop")
    return _Builder(spec, context).build()


def _bits(value: float) -> int:
    """Return a number as its bits in float64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


class _Builder(DecompositionSteps):
    """The steps of one plan."""

    how: EigenRangeAttributes

    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""
        return 0 if name in ("info", "found") else 1 if name == "w" else 2

    def build(self) -> Built:
        """Return the plan."""
        a = self.matrix("a")
        if a.rows == 0:
            return self._without_matrices()
        cusolver.load(library_file("cusolver"))
        self._range(a)
        self.give_info()
        self.judge("UNCONVERGED" if self.how.check else "ANY")
        return self.built()

    def _without_matrices(self) -> Built:
        """Return the plan for matrices without elements, which have no eigenvalues."""
        for name in ("found", "info"):
            if name in self.at:
                self.launch("clear", (self.new_info(),), (self.count,), self.count)
                self.launch(
                    "infos", (self.operand(name), self.info or self.operand(name)),
                    (self.count, *self.extents, *self.leads[name]), self.count,
                )  # fmt: skip
        return self.built() if self.has_steps else Built("noop")

    def _range(self, a: Matrix) -> None:
        how, n, by_value = self.how, a.rows, self.how.by == "value"
        factor = self.matrix("factor")
        self._take_in(factor, a, "lower" if how.lower else "upper")
        values, found = self.take(self.real_size * self.count * n), self.take(4 * self.count)
        self._call(
            "SYEVDX",
            factor,
            values,
            n,
            found=found,
            size=(n, n),
            uplo=int(not how.lower),
            job=int("v" in self.at),
            range=CONSTANTS[f"CUSOLVER_EIG_RANGE_{'V' if by_value else 'I'}"],
            first=how.first + 1,
            last=how.last + 1,
            above=_bits(how.above),
            up_to=_bits(how.up_to),
        )
        self.note("cuSOLVER's syevdx says on the host how many there are: this lane waits for it")
        k = self.spec.operands[self.at["w"]].shape[-1]
        self._values("w", values, k, jump=n)
        if "v" in self.at:
            self.move(self.matrix("v"), replace(factor, columns=k), "guard", "noted")
        if not by_value:
            return
        bad = (self.info or found, self.notes or found)
        self.launch(
            "counts",
            (self.operand("found"), found, *bad),
            (self.count, *self.extents, *self.leads["found"]),
            self.count,
        )
        out = self.spec.operands[self.at["w"]]
        vectors = self.matrix("v") if "v" in self.at else None
        leads = vectors.leads if vectors else (0, 0, 0)
        self.launch(
            "beyond",
            (self.operand("w"), vectors.source if vectors else self.operand("w"), found),
            (
                n, n if vectors else 0, self.count, *self.extents, out.strides[-1] // self.real_size, *self.leads["w"],
                vectors.row if vectors else 0, vectors.column if vectors else 0, *leads,
            ),
            math.prod((n, n, self.count)) if vectors else n * self.count,
        )  # fmt: skip
