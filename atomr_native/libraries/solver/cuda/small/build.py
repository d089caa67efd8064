"""From a plan specification whose route is ``kernel`` to the launch of a kernel for small matrices.

The kernel reads and writes operands as they lie, writes NaN into the results of matrices that failed, counts these, and
reports them to the host.  So the message needs no arrays besides its own, and is one launch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

from ....._lib import cusolver
from ....._lib.cusolver import Verdict
from .....builders.context import Built
from .....builders.cuda.codegen import alignment, kernels
from .....builders.cuda.context import CudaContext, library_file
from .....builders.cuda.sequence import Source, Step
from .....builders.cuda.target import Argument, KernelProgram, Launch
from .....dtypes import as_dtype
from .....plans.spec import PlanSpec
from ...attributes import DecompositionAttributes, SolverAttributes
from ...routes import POSITIVE, kind_of_failure
from ..steps import Steps
from . import factors, jacobi, orthogonal

__all__ = ["build_small"]

#: Blocks of a kernel for each multiprocessor.
_BLOCKS: Final = 16


def build_small(spec: PlanSpec[Any], context: CudaContext) -> Built:
    """Build a message for one kernel; no extent is 0."""
    return _Builder(spec, context).build()


class _Builder(Steps):
    how: SolverAttributes | DecompositionAttributes

    def __init__(self, spec: PlanSpec[Any], context: CudaContext) -> None:
        super().__init__(spec, context)
        self.routine = spec.op.removeprefix("solver.")

    def own_axes(self, name: str) -> int:
        """Return how many axes of an operand are not those of batches."""
        if name == "info":
            return 0
        if name in ("tau_out", "s", "w", "pivots_out"):
            return 1
        return 1 if getattr(self.how, "vector", False) and name in ("b", "out") else 2

    def build(self) -> Built:
        """Return the plan."""
        cusolver.load(library_file("cusolver"))  # the verdict is a part of its module
        name = "eigh" if self.routine == "eigvalsh" else "svd" if self.routine == "svdvals" else self.routine
        if name in ("qr", "qr_factor"):
            self._qr()
            return self.built()
        getattr(self, f"_{'solve' if name == 'inv' else name}")()
        return self.built()

    def _array(self, name: str, *, turned: bool = False) -> tuple[Source, tuple[int, ...]]:
        """Return an operand, and its strides."""
        found = self.matrix(name)
        found = found.turned() if turned else found
        return found.source, (found.row, found.column, *found.leads)

    def _vector(self, name: str) -> tuple[Source, tuple[int, ...]]:
        given = self.spec.operands[self.at[name]]
        return self.operand(name), (given.strides[-1] // as_dtype(given.dtype).itemsize, *self.leads[name])

    def _launch(
        self, made: tuple[str, int, int], sources: tuple[Source, ...], numbers: tuple[int, ...], *, failures: bool
    ) -> None:
        """Add the kernel, and with `failures` the verdict about what it reports."""
        source, lanes, threads = made
        target = self.context.target
        built = kernels(source, [], target, dtypes=(self.how.dtype,), alignments=())
        program = cast("KernelProgram", built.run)
        scalars: tuple[Source, ...] = ()
        if failures:
            sources, scalars = (*sources, ("info", 0)), (("lane", 0),)
        arguments: tuple[Argument, ...] = (
            *(("operand", i) for i in range(len(sources))),
            *(("uint64", number % 2**64) for number in numbers),
            *(("int64", i) for i in range(len(scalars))),
        )
        groups = threads // lanes
        blocks = max(1, min(-(-self.count // groups), target.sm_count * _BLOCKS))
        launch = Launch("small", (blocks, 1, 1), (threads, 1, 1), 0, arguments, overlaps=target.overlaps)
        given = self.spec.operands
        aligned = tuple(alignment(given[at].dtype) if kind == "operand" else 4 for kind, at in sources)
        self._steps.append(Step(replace(program, launches=(launch,), alignments=aligned), sources, scalars))
        self.note(f"{self.count} matrices in one kernel, {lanes} lanes each")
        if failures:
            kind = kind_of_failure(self.routine, getattr(self.how, "assume", "")) if self.how.check else "ANY"
            self.native(Verdict(self.context.backend, self.verdict_of(kind, "RECORD")), ())

    @property
    def _batch(self) -> tuple[int, ...]:
        return (self.count, *self.extents)

    @property
    def _infos(self) -> tuple[Source, tuple[int, ...], int]:
        """Where info numbers go, their strides, and whether they are wanted."""
        if "info" in self.at:
            return self.operand("info"), self.leads["info"], 1
        return ("info", 0), (0, 0, 0), 0

    def _lu_factor(self) -> None:
        (a, of_a), (out, of_out), (pivots, of_pivots) = (
            self._array("a"), self._array("out"), self._vector("pivots_out"),
        )  # fmt: skip
        infos, of_infos, gives = self._infos
        size = self.matrix("a")
        numbers = (*self._batch, *of_a, *of_out, *of_pivots, *of_infos, int(self.how.check), gives)
        self._launch(
            factors.lu(self.how.dtype, size.rows, size.columns), (a, out, pivots, infos), numbers, failures=True
        )

    def _cholesky(self) -> None:
        (a, of_a), (out, of_out) = self._array("a"), self._array("out")
        infos, of_infos, gives = self._infos
        numbers = (*self._batch, *of_a, *of_out, *of_infos, int(self.how.lower), gives)
        self._launch(factors.cholesky(self.how.dtype, self.matrix("a").rows), (a, out, infos), numbers, failures=True)

    def _solve(self) -> None:
        (a, of_a), (out, of_out) = self._array("a"), self._array("out")
        b, of_b = self._array("b") if "b" in self.at else (a, (0,) * 5)
        infos, of_infos, gives = self._infos
        n, columns = self.matrix("a").rows, self.matrix("out").columns
        positive = getattr(self.how, "assume", "") == POSITIVE
        made = factors.solve(self.how.dtype, n, columns if "b" in self.at else 0, positive=positive)
        numbers = (columns, *self._batch, *of_a, *of_b, *of_out, *of_infos, int(self.how.lower), gives)
        self._launch(made, (a, b, out, infos), numbers, failures=True)

    def _qr(self) -> None:
        a, of_a = self._array("a")
        none: tuple[Source, tuple[int, ...]] = (a, (0,) * 5)
        size = self.matrix("a")
        if self.routine == "qr_factor":
            (q, of_q), (tau, of_tau), (r, of_r), columns, rows = (
                self._array("packed"), self._vector("tau_out"), none, 0, 1,
            )  # fmt: skip
        else:
            (q, of_q), (r, of_r), (tau, of_tau) = (
                self._array("q") if "q" in self.at else none, self._array("r"), (a, (0,) * 4),
            )  # fmt: skip
            columns, rows = self.matrix("q").columns if "q" in self.at else 0, self.matrix("r").rows
        made = orthogonal.qr(self.how.dtype, size.rows, size.columns, columns, rows)
        numbers = (*self._batch, *of_a, *of_q, *of_r, *of_tau, int(self.routine == "qr_factor"))
        self._launch(made, (a, q, r, tau), numbers, failures=False)

    def _eigh(self) -> None:
        (a, of_a), (w, of_w) = self._array("a"), self._vector("w")
        v, of_v = self._array("v") if "v" in self.at else (a, (0,) * 5)
        infos, of_infos, gives = self._infos
        made = jacobi.eigh(self.how.dtype, self.matrix("a").rows, vectors="v" in self.at)
        numbers = (*self._batch, *of_a, *of_v, *of_w, *of_infos, int(self.how.lower), gives)
        self._launch(made, (a, v, w, infos), numbers, failures=True)

    def _svd(self) -> None:
        size = self.matrix("a")
        turned = size.rows < size.columns  # the rows of A become the columns that are rotated
        (a, of_a), (s, of_s) = self._array("a", turned=turned), self._vector("s")
        left, right = ("vh", "u") if turned else ("u", "vh")
        none: tuple[Source, tuple[int, ...]] = (a, (0,) * 5)
        u, of_u = self._array(left, turned=turned) if "u" in self.at else none
        v, of_v = self._array(right, turned=turned) if "u" in self.at else none
        infos, of_infos, gives = self._infos
        rows, columns = max(size.rows, size.columns), min(size.rows, size.columns)
        made = jacobi.svd(self.how.dtype, rows, columns, vectors="u" in self.at)
        numbers = (*self._batch, *of_a, *of_u, *of_s, *of_v, *of_infos, gives)
        self._launch(made, (a, u, s, v, infos), numbers, failures=True)
