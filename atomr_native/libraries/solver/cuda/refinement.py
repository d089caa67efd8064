"""From a plan specification of a refined solve to a call of cuSOLVER for each matrix, and kernels around it."""

from __future__ import annotations

import math
from typing import Final

from ...._lib import cusolver
from ...._lib.cusolver import CONSTANTS, Refinement
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import Source
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import RefinementAttributes
from .native import RefinementCall
from .steps import Matrix, Steps

__all__ = ["build_refinement"]

_PRECISIONS: Final = {"float32": "32F", "tf32": "TF32", "bfloat16": "16BF", "float16": "16F"}


def build_refinement(spec: PlanSpec[RefinementAttributes], context: CudaContext) -> Built:
    """Build a refined solve: operands in the order of the request's lowering."""
    if context.deterministic:
        raise Unsupported(
            f"{spec.op} of cuSOLVER is not documented to give equal bits in each run, and the System has "
            f"deterministic=True; allowed: the method device.solver.solve_refined with factor='float32'",
            rule="solver.deterministic",
        )
    if 0 in spec.attributes.batch:
        return Built("noop")
    return _Builder(spec, context).build()


class _Builder(Steps):
    """The steps of one plan."""

    how: RefinementAttributes

    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""
        if name in ("info", "iterations_out"):
            return 0
        return 1 if self.how.vector and name in ("b", "out") else 2

    def build(self) -> Built:
        """Return the plan."""
        a, iterations = self.matrix("a"), self.take(4 * self.count)
        if a.rows == 0 or math.prod(self.spec.operands[self.at["out"]].shape) == 0:
            self.launch("clear", (iterations,), (self.count,), self.count)
            self._counts(iterations)
            if "info" in self.at:
                self.launch("clear", (self.new_info(),), (self.count,), self.count)
                self.give_info()
            return self.built()
        cusolver.load(library_file("cusolver"))
        factor = self.matrix("factor")
        self.new_notes()
        self.move(factor, a, "note")
        place = self.matrix("work" if "work" in self.at else "out")
        right = self._right_side(place.columns)
        self._call(factor, right, place, iterations)
        self._look_for_failures(factor, place, right, iterations)
        guards = ("guard", "noted")
        if "work" in self.at:
            self.move(self.matrix("out"), place, *guards)
        else:
            self.move(place, place, *guards, "only_bad")
        self._counts(iterations)
        self.give_info()
        self.judge("SINGULAR" if self.how.check else "ANY")
        return self.built()

    def _right_side(self, columns: int) -> Matrix:
        """Copy B, column by column, to the workspace."""
        given = self.matrix("b")
        n = given.rows
        each = n * columns
        lead = (self.extents[0] * self.extents[1] * each, self.extents[1] * each, each)
        source = self.take(given.itemsize * self.count * each)
        made = Matrix(source, n, columns, 1, n, lead, each * given.itemsize, given.itemsize)
        self.move(made, given)
        return made

    def _call(self, a: Matrix, b: Matrix, x: Matrix, iterations: Source) -> None:
        kind = "C" if self.how.dtype.startswith("complex") else "R"
        # GMRES, with the factors as its preconditioner, converges for more matrices, and takes one right side
        solver = "GMRES" if b.columns == 1 else "CLASSICAL"
        operands = [a.source, b.source, x.source, iterations, self.new_info()]
        call = RefinementCall(
            main=CONSTANTS[f"CUSOLVER_{kind}_64F"],
            lowest=CONSTANTS[f"CUSOLVER_{kind}_{_PRECISIONS[self.how.factor]}"],
            solver=CONSTANTS[f"CUSOLVER_IRS_REFINE_{solver}"],
            most=self.how.iterations,
            n=a.rows,
            k=b.columns,
            a=0,
            b=1,
            x=2,
            iterations=3,
            info=4,
            scratch=5,
            step=(a.ld, b.ld, x.ld),
            batch=self.count,
            jump=(a.jump, b.jump, x.jump),
            n_operands=6,
        )
        native = Refinement(self.context.backend, call)
        self.note(f"refined by {solver}, with factors in {self.how.factor}: this lane waits for it")
        if self.count > 1:
            self.note(f"{self.count} refined solves, one after the other")
        self.native(native, (*operands, self.take(native.scratch_bytes)))

    def _look_for_failures(self, a: Matrix, x: Matrix, b: Matrix, iterations: Source) -> None:
        """Make the info numbers of singular matrices, of which cuSOLVER 12.0 says nothing.

        A solve that fell back has left its LU factors in A.  One that did not has a small residual.
        """
        zero = self.take(4 * self.count)
        numbers = (a.rows, self.count, *self.extents, a.ld + 1, *a.leads)
        self.launch("zeros", (a.source, zero), numbers, self.count, grid=min(self.count, 65535))
        of_a, info = self.notes, self.info
        notes = []
        for matrix in (b, x):
            self.new_notes()
            self.move(matrix, matrix, "note", "infinite", "only_note")
            notes.append(self.notes)
        self.notes = of_a
        sources = (info, iterations, zero, of_a, *notes)
        self.launch("refined_infos", sources, (x.rows, self.count), self.count)  # type: ignore[arg-type]

    def _counts(self, iterations: Source) -> None:
        numbers = (self.count, *self.extents, *self.leads["iterations_out"])
        self.launch("infos", (self.operand("iterations_out"), iterations), numbers, self.count)
